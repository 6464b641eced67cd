"""Read benchmark definitions: one TOML file holds every number a benchmark is scored by."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, get_args

from annotated_types import MinLen

from finishline.rules.benchmarks.definition_tables import (
    ConvergenceUnit,
    DataSet,
    Hyperparameter,
    LatencyProtocol,
    RankingRule,
    RcpRule,
    ReachRule,
    ReferenceRun,
    ReplayPolicy,
    RunsRule,
    TrainingPolicy,
)
from finishline.rules.benchmarks.quality import UNITS, QualityTarget, TargetTable, target_of
from finishline.rules.errors import BenchmarkError
from finishline.rules.run import Clock, ClockName
from finishline.rules.statistics.gaps import TIME, Score
from finishline.rules.table import FieldError, Text, read_table
from finishline.rules.text import parse_toml

Division = Literal["closed", "open"]
DIVISIONS: tuple[str, ...] = get_args(Division)
Fault = tuple[str, str, str]  # Field, value and expected value.
# Version and name of a benchmark of a published round.
MLPERF_ID = re.compile(r"mlperf-v([0-9]+)\.([0-9]+)-([a-z0-9_]+)")


@dataclass(frozen=True)
class Benchmark:
    """Task + data set + quality target + rules version, read from one file.

    `sha256` is the hash of the file: a result names the definition of its score. `rcp` is None
    without reference convergence points, `latency` where its model's latency is not measured,
    `trainings` where no code is trained. `time_unit` is None where each board chooses the unit.
    """

    benchmark_id: str
    title: str
    version: str
    task: str
    about: str
    data_set: DataSet
    target: QualityTarget
    reach: ReachRule
    clock: Clock
    runs: RunsRule
    divisions: tuple[str, ...]
    log_names: tuple[str, ...]
    hyperparameters: Mapping[str, Hyperparameter]
    replay: ReplayPolicy | None
    reference_runs: tuple[ReferenceRun, ...]
    sha256: str
    convergence_unit: ConvergenceUnit = "epoch_num"
    rcp: RcpRule | None = None
    latency: LatencyProtocol | None = None
    ranking: RankingRule = field(default_factory=RankingRule)
    trainings: TrainingPolicy | None = None
    time_unit: str | None = None

    def defaults(self) -> dict[str, float]:
        return {name: item.default for name, item in self.hyperparameters.items()}

    @property
    def score(self) -> Score:
        """Return the figure that ranks its runs."""
        if self.ranking.by == "time":
            return TIME
        step = self.target.resolution
        if step is None:  # One item's share of a mean, or the last digits of a logged figure.
            step = abs(self.target.value or 1.0) / (self.data_set.test_items or FINEST_SHARE)
        return Score("quality", self.target.direction, step, self.target.unit)

    def reference_runs_at(self, batch_size: float) -> tuple[ReferenceRun, ...]:
        return tuple(run for run in self.reference_runs if run.batch_size == batch_size)


def load_benchmark(path: Path) -> Benchmark:
    """Read a definition from its TOML file. Raises a RuleError naming file and fields."""
    content = path.read_bytes()
    return parse_benchmark(content, file=path.name)


def parse_benchmark(content: bytes, *, file: str) -> Benchmark:
    """Read a definition that is to be offered. Raises a RuleError naming file and fields."""
    benchmark = read_benchmark(content, file=file)
    for place, found, expected in _faults(benchmark):
        raise BenchmarkError(found, file=file, field=place, expected=expected)
    return benchmark


@dataclass(frozen=True)
class ConvergenceTable:
    """`[convergence]` of a definition."""

    unit: ConvergenceUnit


@dataclass(frozen=True)
class DefinitionTable:
    """A definition as its file has it."""

    id: Text
    title: Text
    version: Text
    task: Text
    about: Text
    data_set: DataSet
    target: TargetTable
    clock: ClockName
    runs: RunsRule
    divisions: Annotated[tuple[Division, ...], MinLen(1)]
    log_names: Annotated[tuple[Text, ...], MinLen(1)] | None = None
    hyperparameters: Mapping[str, Hyperparameter] = field(default_factory=dict)
    replay: ReplayPolicy | None = None
    reference_runs: tuple[ReferenceRun, ...] = ()
    convergence: ConvergenceTable = ConvergenceTable("epoch_num")
    rcp: RcpRule | None = None
    latency: LatencyProtocol | None = None
    ranking: RankingRule = field(default_factory=RankingRule)
    trainings: TrainingPolicy | None = None
    time_unit: Literal["s", "min"] | None = None

    def __post_init__(self) -> None:
        for name, found, expected in self._contradictions():
            raise FieldError(found, expected=expected, field=name)

    def _contradictions(self) -> Iterator[Fault]:
        runs, points = self.runs, self.rcp.points if self.rcp is not None else ()
        if runs.count <= 2 * runs.dropped:
            found = f"{runs.dropped} of {runs.count} at each end leaves no run"
            yield "runs.dropped", found, "less than half of count"
        if runs.started is not None and runs.started < runs.count:
            yield "runs.started", f"got {runs.started}", f"at least {runs.count}, as count"
        if runs.started is not None and runs.most is not None:
            yield "runs.started", "with a range of runs", "a number of runs in count"
        if self.rcp is not None:
            sizes = [point.batch_size for point in points]
            if runs.count < 3:
                yield "rcp.points", f"with runs.count = {runs.count}", "at least 3 runs"
            if not sizes or len(set(sizes)) != len(sizes):
                yield "rcp.points", f"batch sizes {sizes}", "a point for each batch size"
            # The rules ask for 2N figures. The tables of a few benchmarks were accepted with fewer.
            fewest = self.rcp.fewest_figures or 2 * runs.count
            for place, point in enumerate(points):
                if len(point.epochs) < fewest:
                    found, expected = f"{len(point.epochs)} figures", f"at least {fewest} figures"
                    yield f"rcp.points[{place}].epochs", found, expected
        if self.target.reach == "fixed_stop" and self.replay and self.replay.min_runs < 2:
            yield "replay.min_runs", "1 with fixed_stop", "at least 2: a mean"
        if self.latency is not None and self.replay is None:
            yield "latency", "no reference trains the model", "a [replay] table"


@lru_cache(maxsize=256)
def read_benchmark(content: bytes, *, file: str) -> Benchmark:
    """Read a stored definition, under which a result was published. Raises a RuleError.

    A definition that was accepted once can be read for ever: new checks belong in `_faults`.
    Cached, because the server and all proofs read the same few definitions.
    """
    whole = parse_toml(content, file=file, error=BenchmarkError)
    found = read_table(DefinitionTable, whole, file=file, error=BenchmarkError)
    if found.id != file.removesuffix(".toml"):
        message, expected = f"{found.id[:80]!r} in a file named {file}", "the file's name"
        raise BenchmarkError(message, file=file, field="id", expected=expected)
    same = {each.name for each in fields(Benchmark)} & {each.name for each in fields(found)}
    budget = found.ranking.budget_seconds
    target = target_of(found.target, found.data_set.test_items)
    values = {name: getattr(found, name) for name in same} | {
        "target": replace(target, budget_seconds=budget),
        "clock": Clock(found.clock),
        "log_names": found.log_names or (found.id,),
    }
    reach = ReachRule(found.target.reach, found.target.evaluations or 1)
    if budget is not None:
        reach = ReachRule("budget", budget_seconds=budget)
    return Benchmark(
        benchmark_id=found.id,
        reach=reach,
        convergence_unit=found.convergence.unit,
        sha256=hashlib.sha256(content).hexdigest(),
        **values,
    )


def load_benchmarks(folder: Path) -> dict[str, Benchmark]:
    """Read the benchmarks of a folder, by id. Raises BenchmarkError if it is empty."""
    benchmarks = [load_benchmark(path) for path in sorted(folder.glob("*.toml"))]
    if not benchmarks:
        raise BenchmarkError(
            "no benchmark definition", file=str(folder), expected="a folder with *.toml files"
        )
    return {benchmark.benchmark_id: benchmark for benchmark in benchmarks}


# Checks that a definition must pass before it opens for submissions.
_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")  # It names files and folders.
LONGEST_SECONDS = 30 * 86_400.0  # A lease of 1e300 seconds ends after all calendars.
MAX_RUNS = 100  # Logs of a submission.
FINEST_SHARE = 10**6  # Of a target with uncounted test items.
MOST_ITEMS = 10**15  # Of a data set, a million times the largest one of an archive.
# References with several precisions have it as the first, and train in it without being told.
OWN_PRECISION = "fp32"


def _faults(benchmark: Benchmark) -> Iterator[Fault]:
    runs, data_set, replay = benchmark.runs, benchmark.data_set, benchmark.replay
    if not _ID.fullmatch(benchmark.benchmark_id):
        yield "id", f"got {benchmark.benchmark_id[:80]!r}", "letters, digits, _, . and -"
    for number, also in enumerate(benchmark.target.also):
        yield from _target_faults(also, f"target.also[{number}]")
    yield from _target_faults(benchmark.target, "target")
    yield from _direction_faults(benchmark)
    yield from _training_faults(benchmark)
    for name in ("replay", "trainings"):
        policy = getattr(benchmark, name)
        for limit in ("run_limit_seconds", "lease_seconds"):
            seconds = getattr(policy, limit, 0.0)
            if seconds > LONGEST_SECONDS:
                expected = f"at most {LONGEST_SECONDS:g} seconds"
                yield f"{name}.{limit}", f"{seconds:g}", expected
        budget = benchmark.reach.budget_seconds
        if policy is not None and budget is not None and budget > policy.run_limit_seconds:
            expected = f"at most {policy.run_limit_seconds:g}, run_limit_seconds of [{name}]"
            yield "ranking.budget_seconds", f"{budget:g}", expected
    if replay is not None and replay.precisions and replay.precisions[0] != OWN_PRECISION:
        expected = f"{OWN_PRECISION} first, which the reference trains in by itself"
        yield "replay.precisions", f"{replay.precisions[0]} comes first", expected
    for place, found, most in (
        ("runs.count", runs.count, MAX_RUNS),
        ("runs.count", runs.most or 0, MAX_RUNS),
        ("runs.started", runs.started or 0, MAX_RUNS),
        ("data_set.train_items", data_set.train_items or 0, MOST_ITEMS),
        ("data_set.test_items", data_set.test_items or 0, MOST_ITEMS),
    ):
        if found > most:
            yield place, f"{found}", f"at most {most:,}"


def _training_faults(benchmark: Benchmark) -> Iterator[Fault]:
    """Require a clock that never pauses, the first crossing, and one division for code."""
    if benchmark.trainings is None:
        return
    if benchmark.clock.name != "mlperf":
        yield "clock", f"{benchmark.clock.name!r} with [trainings]", "'mlperf'"
    if benchmark.reach.name not in ("first_crossing", "budget"):
        yield "target.reach", f"{benchmark.reach.name!r} with [trainings]", "'first_crossing'"
    if "open" not in benchmark.divisions:
        expected = "open among them: code submissions are ranked there"
        yield "divisions", "no open division with [trainings]", expected


def _target_faults(target: QualityTarget, field: str) -> Iterator[Fault]:
    """Check for an impossible share, a share in the other unit, and a target beyond the best."""
    scale, found = UNITS.get(target.unit), f"{target.value:g} {target.unit}"
    if scale is not None and not 0 <= target.value <= scale:
        yield f"{field}.value", found, f"0 to {scale:g}, or another unit"
    elif target.unit == "percent" and target.direction == "higher" and target.value <= 1:
        yield f"{field}.value", found, f"{100 * target.value:g}, or the unit fraction"
    if target.is_beyond_floor(target.value):
        expected = "the best possible quality, at least as good as the target"
        yield f"{field}.floor", f"{target.floor:g}, but the target is {target.value:g}", expected


def _direction_faults(benchmark: Benchmark) -> Iterator[Fault]:
    """Check for a target that every calibrated run reaches before it has learned anything."""
    runs, target = benchmark.reference_runs, benchmark.target
    if not benchmark.reach.is_at_quality or not any(len(run.quality) > 1 for run in runs):
        return
    if all(target.is_reached(quality) for run in runs for quality in run.quality[:1]):
        found = f"every reference run reaches {target.in_words} at its first evaluation"
        expected = "the direction of improvement, and a target that takes training"
        yield "target.direction", found, expected


# When the rounds of MLPerf were published. 0.6, 0.7: the pages of the results,
# mlperf.org/training-results-0-6 and -0-7, are headed by the day. 5.0 to 6.0: the announcements
# "MLPerf Training v5.0 ..." and so on of MLCommons (GLOBE NEWSWIRE) are dated.
PUBLISHED_ON = {
    "0.6": date(2019, 7, 10),
    "0.7": date(2020, 7, 29),
    "5.0": date(2025, 6, 4),
    "5.1": date(2025, 11, 12),
    "6.0": date(2026, 6, 16),
}


def published_on(benchmark_id: str) -> date | None:
    """Return the day on which the round of an MLPerf benchmark was published, if known."""
    found = MLPERF_ID.match(benchmark_id)
    return PUBLISHED_ON.get(f"{found[1]}.{found[2]}") if found else None


def round_of_day(rounds: Sequence[str], day: date | None) -> str:
    """Return the first round (oldest first) published on a day or later, else the newest."""
    if day is not None:
        past = [i for i, each in enumerate(rounds) if PUBLISHED_ON.get(each, day) < day]
        later = rounds[past[-1] + 1 :] if past else rounds
        if later and later[0] in PUBLISHED_ON:
            return later[0]
    return rounds[-1]
