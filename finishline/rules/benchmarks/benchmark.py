"""Benchmark definitions: one TOML file holds every number a benchmark is scored by."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path
from typing import cast, get_args

from finishline.rules.benchmarks.definition_checks import check_offered
from finishline.rules.benchmarks.latency_protocol import LatencyProtocol, read_latency_protocol
from finishline.rules.benchmarks.policy import TrainingPolicy, read_training_policy
from finishline.rules.benchmarks.quality import QualityTarget as QualityTarget
from finishline.rules.benchmarks.quality import read_target
from finishline.rules.benchmarks.reference_points import ConvergenceUnit, ReferencePoint, SpreadOf
from finishline.rules.errors import BenchmarkError, joined
from finishline.rules.fields import Fields, read_each, read_whole
from finishline.rules.measurements import PrecisionName
from finishline.rules.run import CLOCK_NAMES, Clock
from finishline.rules.text import count_text, parse_toml, shown

DIVISIONS = ("closed", "open")
TIME_UNITS = ("s", "min", "h:mm:ss")
REACH_RULES = ("first_crossing", "sustained", "fixed_stop")
SEED_RULES = ("required", "if_logged")
NUMBERED_EVIDENCE = ("measured", "published")
MOST_RUNS = 100  # Of a verification.


@dataclass(frozen=True)
class ReachRule:
    """Rule for when a run reaches its target; `evaluations` in a row for "sustained"."""

    name: str
    evaluations: int = 1


@dataclass(frozen=True)
class DataSet:
    """Training and evaluation data; `sha256` is over the raw items where one is defined.

    The counts are None where no fixed set of items is trained or evaluated on.
    """

    name: str
    source: str
    train_items: int | None
    test_items: int | None
    sha256: str | None


@dataclass(frozen=True)
class RunsRule:
    """Runs a result is made of, and how many are dropped at each end before the mean.

    `started` is for benchmarks with runs that often fail: so many are started, and the first
    `count` that reach the target make the result. `seeds` is "required" where every closed run must
    log one, "if_logged" where the rules did not ask for it; none may repeat either way.
    """

    count: int
    dropped: int
    started: int | None = None
    seeds: str = "required"

    @property
    def wanted(self) -> int:
        """Number of runs a submission must have."""
        return self.started or self.count


@dataclass(frozen=True)
class RcpRule:
    """Rule that compares a closed set's convergence with the reference's.

    `stdev_of` says which reading of the standard deviation holds, `allowance` how far below the
    limit a mean may still be (rules.convergence), `normalise` whether the time of a set that
    converged faster than the mean is raised. `samples_per_epoch` is given where the points count
    samples and a log may count epochs.
    """

    stdev_of: SpreadOf
    allowance: float
    points: tuple[ReferencePoint, ...]
    normalise: bool = True
    samples_per_epoch: int | None = None


@dataclass(frozen=True)
class Hyperparameter:
    """One setting of the reference model: its default and the values a submission may choose.

    `closed` tells whether a closed submission may set it at all.
    """

    name: str
    default: float
    minimum: float
    maximum: float
    integer: bool
    closed: bool


@dataclass(frozen=True)
class ReplayPolicy:
    """Rules for running and judging verifications of this benchmark.

    `reference` names the module in reference_models. The server draws between `min_runs` and
    `max_runs` runs. `alpha` is the chance that an honest claim is rejected, for the whole
    verification. `time_tolerance` is how much slower (0.5 = 50 %) a replay on the same hardware
    class may be before its time speaks against the claim. `automatic` asks for a verification
    of every submission. `equal_seed_distance` is how far two curves of one seed may be apart, as a
    root mean square in the metric's unit; None where that was not measured. `precisions` are those
    that the reference can train in, its own first; empty where it chooses by the device.
    """

    reference: str
    min_runs: int
    max_runs: int
    alpha: float
    time_tolerance: float
    run_limit_seconds: float
    lease_seconds: float
    max_attempts: int
    automatic: bool
    equal_seed_distance: float | None = None
    precisions: tuple[PrecisionName, ...] = ()

    def told(self, precision: PrecisionName | None) -> PrecisionName | None:
        """The precision to tell the reference: None for its own, and for one it does not offer."""
        return precision if precision in self.precisions[1:] else None


@dataclass(frozen=True)
class ReferenceRun:
    """One calibrated run of the reference model: quality at every evaluation, in order."""

    batch_size: int
    seed: int
    quality: tuple[float, ...]


@dataclass(frozen=True)
class RankingRule:
    """Evidence that is numbered; None stands for measured and published results."""

    numbers: tuple[str, ...] | None = None


# Version and name of a benchmark of a published round.
MLPERF_ID = re.compile(r"mlperf-v([0-9]+)\.([0-9]+)-([a-z0-9_]+)")


@dataclass(frozen=True)
class Benchmark:
    """Task + data set + quality target + rules version, read from one file.

    `sha256` is the hash of that file: a result names the definition it was scored under.
    `convergence_unit` is the unit of convergence (epochs or samples); `rcp` is None where no
    reference convergence points are known, `latency` where the latency of its model is not
    measured, `trainings` where no package is trained, `time_unit` where the times of a board
    choose the unit that pages show them in.
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
    ranking: RankingRule = RankingRule()
    trainings: TrainingPolicy | None = None
    time_unit: str | None = None

    def defaults(self) -> dict[str, float]:
        """The reference hyperparameters."""
        return {name: item.default for name, item in self.hyperparameters.items()}

    def reference_runs_at(self, batch_size: float) -> tuple[ReferenceRun, ...]:
        """The calibrated runs at one batch size."""
        return tuple(run for run in self.reference_runs if run.batch_size == batch_size)


def load_benchmark(path: Path) -> Benchmark:
    """The benchmark defined in a TOML file. Raises a RuleError naming file and fields."""
    content = path.read_bytes()
    return parse_benchmark(content, file=path.name)


def parse_benchmark(content: bytes, *, file: str) -> Benchmark:
    """The benchmark that TOML text is to offer. Raises a RuleError naming file and fields."""
    benchmark = read_benchmark(content, file=file)
    check_offered(benchmark, file=file)
    return benchmark


def read_benchmark(content: bytes, *, file: str) -> Benchmark:
    """Read a stored definition: the benchmark that a result was published under.

    A definition that was accepted once can be read forever: new checks belong in rules.offered, and
    only checks that no benchmark can do without belong here. Raises a RuleError with the first
    wrong field of each table.
    """
    return _read_once(content, file)


@lru_cache(maxsize=256)
def _read_once(content: bytes, file: str) -> Benchmark:
    """The server, the checks and every proof read the same few definitions again and again."""
    table = parse_toml(content, file=file, error=BenchmarkError)
    root = Fields(table, file=file, error=BenchmarkError)
    parts, problems = read_each(
        {
            "benchmark_id": lambda: _id(root, file),
            "data_set": lambda: _data_set(root.table("data_set")),
            "runs": lambda: _runs(root.table("runs")),
            "target": lambda: root.table("target"),
        }
    )
    if problems:  # The others rest on these.
        raise joined(problems)
    target = parts.pop("target")
    sha256 = hashlib.sha256(content).hexdigest()
    benchmark = read_whole(
        root,
        partial(Benchmark, sha256=sha256, **parts),
        {
            "title": lambda: root.text("title"),
            "version": lambda: root.text("version"),
            "task": lambda: root.text("task"),
            "about": lambda: root.text("about"),
            "reach": lambda: _reach(target),
            "target": lambda: read_target(target, test_items=parts["data_set"].test_items),
            "clock": lambda: Clock(root.choice("clock", CLOCK_NAMES)),
            "divisions": lambda: _divisions(root),
            "log_names": lambda: (
                root.texts("log_names") if root.has("log_names") else (parts["benchmark_id"],)
            ),
            "hyperparameters": lambda: _hyperparameters(root.optional_table("hyperparameters")),
            "replay": lambda: _replay(root.optional_table("replay")),
            "reference_runs": lambda: tuple(
                _reference_run(item) for item in root.tables("reference_runs")
            ),
            "convergence_unit": lambda: _convergence_unit(root.optional_table("convergence")),
            "rcp": lambda: _rcp(root.optional_table("rcp"), parts["runs"]),
            "latency": lambda: read_latency_protocol(root.optional_table("latency")),
            "ranking": lambda: _ranking(root.optional_table("ranking")),
            "trainings": lambda: read_training_policy(root.optional_table("trainings")),
            "time_unit": lambda: (
                root.choice("time_unit", TIME_UNITS) if root.has("time_unit") else None
            ),
        },
    )
    if benchmark.reach.name == "fixed_stop" and benchmark.replay and benchmark.replay.min_runs < 2:
        raise root.fail("replay.min_runs", "1 with fixed_stop", expected="at least 2: a mean")
    if benchmark.latency is not None and benchmark.replay is None:
        raise root.fail("latency", "no reference trains the model", expected="a [replay] table")
    return benchmark


def load_benchmarks(folder: Path) -> dict[str, Benchmark]:
    """Every benchmark of a folder, by id. Raises BenchmarkError if the folder holds none."""
    benchmarks = [load_benchmark(path) for path in sorted(folder.glob("*.toml"))]
    if not benchmarks:
        raise BenchmarkError(
            "no benchmark definition", file=str(folder), expected="a folder with *.toml files"
        )
    return {benchmark.benchmark_id: benchmark for benchmark in benchmarks}


def _id(root: Fields, file: str) -> str:
    name = root.text("id")
    if name != file.removesuffix(".toml"):
        message = f"{name[:80]!r} in a file named {file}"
        raise root.fail("id", message, expected="the file's name")
    return name


def _divisions(root: Fields) -> tuple[str, ...]:
    names = root.texts("divisions")
    if not set(names) <= set(DIVISIONS):
        raise root.fail("divisions", shown(list(names)), expected="closed, open or both")
    return names


def _data_set(table: Fields) -> DataSet:
    data_set = DataSet(
        name=table.text("name"),
        source=table.text("source"),
        train_items=table.optional_integer("train_items", minimum=1),
        test_items=table.optional_integer("test_items", minimum=1),
        sha256=table.optional_text("sha256"),
    )
    table.refuse_unknown()
    return data_set


def _reach(table: Fields) -> ReachRule:
    name = table.choice("reach", REACH_RULES)
    if name == "sustained":
        return ReachRule(name, table.integer("evaluations", minimum=2))
    if table.has("evaluations"):
        raise table.fail(
            "evaluations", f"given with reach = {name!r}", expected="reach = 'sustained' or nothing"
        )
    return ReachRule(name)


def _runs(table: Fields) -> RunsRule:
    count = table.integer("count", minimum=1)
    rule = RunsRule(
        count=count,
        dropped=table.integer("dropped", minimum=0),
        started=table.optional_integer("started", minimum=count),
        seeds=table.choice("seeds", SEED_RULES, default="required"),
    )
    if rule.count <= 2 * rule.dropped:
        raise table.fail(
            "dropped",
            f"{rule.dropped} of {rule.count} at each end leaves no run",
            expected="less than half of count",
        )
    table.refuse_unknown()
    return rule


def _convergence_unit(table: Fields | None) -> ConvergenceUnit:
    if table is None:
        return "epoch_num"
    name = table.choice("unit", ("epoch_num", "samples_count"))
    table.refuse_unknown()
    return "samples_count" if name == "samples_count" else "epoch_num"


def _rcp(table: Fields | None, runs: RunsRule) -> RcpRule | None:
    if table is None:
        return None
    if runs.count < 3:
        raise table.fail("points", f"with runs.count = {runs.count}", expected="at least 3 runs")
    # The rules ask for 2N figures; the tables of a few benchmarks were accepted with fewer.
    fewest = table.optional_integer("fewest_figures", minimum=3) or 2 * runs.count
    points = tuple(_reference_point(item, fewest=fewest) for item in table.tables("points"))
    sizes = [point.batch_size for point in points]
    if not points or len(set(sizes)) != len(sizes):
        raise table.fail("points", f"batch sizes {sizes}", expected="a point for each batch size")
    rule = RcpRule(
        stdev_of="all" if table.choice("stdev_of", ("trimmed", "all")) == "all" else "trimmed",
        allowance=table.optional_number("allowance", minimum=0.0) or 0.0,
        points=points,
        normalise=table.boolean("normalise", default=True),
        samples_per_epoch=table.optional_integer("samples_per_epoch", minimum=1),
    )
    table.refuse_unknown()
    return rule


def _reference_point(table: Fields, *, fewest: int) -> ReferencePoint:
    point = ReferencePoint(
        batch_size=table.integer("batch_size", minimum=1), epochs=table.numbers("epochs")
    )
    if min(point.epochs) <= 0 or len(point.epochs) < fewest:
        raise table.fail(
            "epochs",
            f"{count_text(len(point.epochs), 'figure')} from {min(point.epochs):g} on",
            expected=f"at least {fewest} figures above 0",
        )
    table.refuse_unknown()
    return point


def _hyperparameters(table: Fields | None) -> dict[str, Hyperparameter]:
    if table is None:
        return {}
    return {name: _hyperparameter(name, table.table(name)) for name, _ in table.items()}


def _hyperparameter(name: str, table: Fields) -> Hyperparameter:
    minimum = table.number("minimum")
    maximum = table.number("maximum", minimum=minimum)
    item = Hyperparameter(
        name=name,
        default=table.number("default", minimum=minimum, maximum=maximum),
        minimum=minimum,
        maximum=maximum,
        integer=table.boolean("integer", default=False),
        closed=table.boolean("closed", default=False),
    )
    table.refuse_unknown()
    return item


def _replay(table: Fields | None) -> ReplayPolicy | None:
    if table is None:
        return None
    min_runs = table.integer("min_runs", minimum=1)
    policy = ReplayPolicy(
        reference=table.text("reference"),
        min_runs=min_runs,
        max_runs=table.integer("max_runs", minimum=min_runs, maximum=MOST_RUNS),
        alpha=table.number("alpha", minimum=1e-6, maximum=0.5),
        time_tolerance=table.number("time_tolerance", minimum=0.0),
        run_limit_seconds=table.number("run_limit_seconds", minimum=1.0),
        lease_seconds=table.number("lease_seconds", minimum=1.0),
        max_attempts=table.integer("max_attempts", minimum=1, maximum=10),
        automatic=table.boolean("automatic", default=False),
        equal_seed_distance=table.optional_number("equal_seed_distance", minimum=0.0),
        precisions=_precisions(table),
    )
    table.refuse_unknown()
    return policy


def _precisions(table: Fields) -> tuple[PrecisionName, ...]:
    if not table.has("precisions"):
        return ()
    names, known = table.texts("precisions"), get_args(PrecisionName)
    if not set(names) <= set(known) or len(set(names)) < len(names):
        raise table.fail("precisions", shown(list(names)), expected=f"each once of {known}")
    return cast(tuple[PrecisionName, ...], names)


def _ranking(table: Fields | None) -> RankingRule:
    if table is None:
        return RankingRule()
    numbers = table.texts("numbers") if table.has("numbers") else None
    if numbers is not None and (not numbers or not set(numbers) <= set(NUMBERED_EVIDENCE)):
        expected = "measured, published or both"
        raise table.fail("numbers", shown(list(numbers)), expected=expected)
    table.refuse_unknown()
    return RankingRule(numbers)


def _reference_run(table: Fields) -> ReferenceRun:
    run = ReferenceRun(
        batch_size=table.integer("batch_size", minimum=1),
        seed=table.integer("seed", minimum=0),
        quality=table.numbers("quality"),
    )
    table.refuse_unknown()
    return run
