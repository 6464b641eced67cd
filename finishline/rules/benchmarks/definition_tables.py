"""The tables of a benchmark's definition, each with its reader.

A reader raises the error of its table, naming file and field. It has only checks that no benchmark
can do without: results were published under definitions that a later check would refuse.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, cast, get_args

from finishline.rules.fields import Fields
from finishline.rules.measurements import PrecisionName
from finishline.rules.text import count_text, shown

MOST_RUNS = 100  # Of a verification.
REACH_RULES = ("first_crossing", "sustained", "fixed_stop")
SEED_RULES = ("required", "if_logged")
SpreadOf = Literal["trimmed", "all"]
ConvergenceUnit = Literal["epoch_num", "samples_count"]


@dataclass(frozen=True)
class ReachRule:
    """Rule for when a run reaches its target; `evaluations` in a row for "sustained"."""

    name: str
    evaluations: int = 1


def read_reach(table: Fields) -> ReachRule:
    """Read the rule in `[target]`."""
    name = table.choice("reach", REACH_RULES)
    if name == "sustained":
        return ReachRule(name, table.integer("evaluations", minimum=2))
    if table.has("evaluations"):
        expected = "reach = 'sustained' or nothing"
        raise table.fail("evaluations", f"given with reach = {name!r}", expected=expected)
    return ReachRule(name)


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


def read_data_set(table: Fields) -> DataSet:
    """Read `[data_set]`."""
    return table.whole(
        DataSet,
        name=table.text("name"),
        source=table.text("source"),
        train_items=table.optional_integer("train_items", minimum=1),
        test_items=table.optional_integer("test_items", minimum=1),
        sha256=table.optional_text("sha256"),
    )


@dataclass(frozen=True)
class RunsRule:
    """Runs of a result, and how many are dropped at each end before the mean.

    `started` is for benchmarks with runs that often fail: so many are started, and the first
    `count` that reach the target make the result. `seeds` is "required" where every closed run must
    log one, "if_logged" where the rules did not ask for it. No seed may repeat either way.
    """

    count: int
    dropped: int
    started: int | None = None
    seeds: str = "required"

    @property
    def wanted(self) -> int:
        """Number of runs a submission must have."""
        return self.started or self.count


def read_runs(table: Fields) -> RunsRule:
    """Read `[runs]`."""
    count = table.integer("count", minimum=1)
    dropped = table.integer("dropped", minimum=0)
    started = table.optional_integer("started", minimum=count)
    seeds = table.choice("seeds", SEED_RULES, default="required")
    if count <= 2 * dropped:
        message = f"{dropped} of {count} at each end leaves no run"
        raise table.fail("dropped", message, expected="less than half of count")
    return table.whole(RunsRule, count=count, dropped=dropped, started=started, seeds=seeds)


@dataclass(frozen=True)
class ReferencePoint:
    """Epochs (or samples) the reference model took to converge, run by run, at one batch size."""

    batch_size: int
    epochs: tuple[float, ...]


@dataclass(frozen=True)
class RcpRule:
    """Rule that compares a closed set's convergence with the reference's.

    `stdev_of` says which reading of the standard deviation holds, `allowance` how far below the
    limit a mean may still be (scoring.convergence), `normalise` whether the time of a set that
    converged faster than the mean is raised. `samples_per_epoch` is given where the points count
    samples and a log may count epochs.
    """

    stdev_of: SpreadOf
    allowance: float
    points: tuple[ReferencePoint, ...]
    normalise: bool = True
    samples_per_epoch: int | None = None


def read_rcp(table: Fields, runs: RunsRule) -> RcpRule:
    """Read `[rcp]`."""
    if runs.count < 3:
        raise table.fail("points", f"with runs.count = {runs.count}", expected="at least 3 runs")
    # The rules ask for 2N figures. The tables of a few benchmarks were accepted with fewer.
    fewest = table.optional_integer("fewest_figures", minimum=3) or 2 * runs.count
    points = tuple(_reference_point(item, fewest=fewest) for item in table.tables("points"))
    sizes = [point.batch_size for point in points]
    if not points or len(set(sizes)) != len(sizes):
        raise table.fail("points", f"batch sizes {sizes}", expected="a point for each batch size")
    return table.whole(
        RcpRule,
        stdev_of=table.choice("stdev_of", get_args(SpreadOf)),
        allowance=table.optional_number("allowance", minimum=0.0) or 0.0,
        points=points,
        normalise=table.boolean("normalise", default=True),
        samples_per_epoch=table.optional_integer("samples_per_epoch", minimum=1),
    )


def _reference_point(table: Fields, *, fewest: int) -> ReferencePoint:
    batch_size, epochs = table.integer("batch_size", minimum=1), table.numbers("epochs")
    if min(epochs) <= 0 or len(epochs) < fewest:
        message = f"{count_text(len(epochs), 'figure')} from {min(epochs):g} on"
        raise table.fail("epochs", message, expected=f"at least {fewest} figures above 0")
    return table.whole(ReferencePoint, batch_size=batch_size, epochs=epochs)


def read_convergence_unit(table: Fields) -> ConvergenceUnit:
    """Read `[convergence]`."""
    name = table.choice("unit", get_args(ConvergenceUnit))
    table.refuse_unknown()
    return cast(ConvergenceUnit, name)


@dataclass(frozen=True)
class Hyperparameter:
    """One setting of the reference model: its default and the values a submission may choose.

    `closed` is whether a closed submission may set it at all.
    """

    name: str
    default: float
    minimum: float
    maximum: float
    integer: bool
    closed: bool


def read_hyperparameters(tables: Fields) -> dict[str, Hyperparameter]:
    """Read `[hyperparameters]`, which has a table for each."""
    return {name: _hyperparameter(name, tables.table(name)) for name, _ in tables.items()}


def _hyperparameter(name: str, table: Fields) -> Hyperparameter:
    minimum = table.number("minimum")
    maximum = table.number("maximum", minimum=minimum)
    return table.whole(
        Hyperparameter,
        name=name,
        default=table.number("default", minimum=minimum, maximum=maximum),
        minimum=minimum,
        maximum=maximum,
        integer=table.boolean("integer", default=False),
        closed=table.boolean("closed", default=False),
    )


@dataclass(frozen=True)
class ReplayPolicy:
    """Rules for running and judging verifications of this benchmark.

    `reference` names the module in reference_models. The server draws between `min_runs` and
    `max_runs` runs. `alpha` is the chance that an honest claim is rejected, for the whole
    verification. `time_tolerance` is how much slower (0.5 = 50 %) a replay on the same hardware
    class may be before its time speaks against the claim. `automatic` asks for a verification
    of every submission. `equal_seed_distance` is how far two curves of one seed may be apart, as a
    root mean square in the metric's unit, None where that was not measured. `precisions` are those
    that the reference can train in, its own first. They are empty where it chooses by the device.
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


def read_replay(table: Fields) -> ReplayPolicy:
    """Read `[replay]`."""
    min_runs = table.integer("min_runs", minimum=1)
    return table.whole(
        ReplayPolicy,
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


def _precisions(table: Fields) -> tuple[PrecisionName, ...]:
    names, known = table.optional_texts("precisions") or (), get_args(PrecisionName)
    if not set(names) <= set(known) or len(set(names)) < len(names):
        raise table.fail("precisions", shown(list(names)), expected=f"each once of {known}")
    return cast(tuple[PrecisionName, ...], names)


@dataclass(frozen=True)
class ReferenceRun:
    """One calibrated run of the reference model: quality at every evaluation, in order."""

    batch_size: int
    seed: int
    quality: tuple[float, ...]


def read_reference_run(table: Fields) -> ReferenceRun:
    """Read one of `[[reference_runs]]`."""
    return table.whole(
        ReferenceRun,
        batch_size=table.integer("batch_size", minimum=1),
        seed=table.integer("seed", minimum=0),
        quality=table.numbers("quality"),
    )


FEWEST_PAIRS, MOST_PAIRS = 3, 30  # Of a head-to-head.


@dataclass(frozen=True)
class RankingRule:
    """Pairs of a head-to-head at most."""

    pairs: int = MOST_PAIRS


def read_ranking(table: Fields) -> RankingRule:
    """Read `[ranking]`."""
    pairs = table.optional_integer("pairs", minimum=FEWEST_PAIRS, maximum=MOST_PAIRS)
    return table.whole(RankingRule, pairs=MOST_PAIRS if pairs is None else pairs)


MOST_ITEMS = 2000  # A backend's times, in whole passes, fit one line of the training process.
MOST_WARMUP_ITEMS = 200


@dataclass(frozen=True)
class LatencyProtocol:
    """One item at a time at batch size 1: `warmup_items` that do not count, then `items`.

    A smaller evaluation set is measured in whole passes until there are at least so many; of a
    larger one the first `items` are. `output_tolerance` is how far the outputs of a
    backend may be from those of eager, as a share of the largest output. `time_tolerance` is how
    much slower (0.5 = 50 %) another machine of a hardware class may be before that speaks against a
    claim; `alpha` the chance of an honest claim beyond it to be rejected. `limit_seconds` is for
    compiling, exporting and measuring, beside the training's own limit: after an eighth of it a
    backend ends as soon as it has FEWEST_ITEMS, after a quarter with the items it has.
    """

    items: int
    warmup_items: int
    output_tolerance: float
    time_tolerance: float
    alpha: float
    limit_seconds: float

    def samples_of(self, test_items: int | None) -> int:
        """Number of times that count for an evaluation set of so many items."""
        return samples_in_whole_passes(self.items, test_items)

    @property
    def enough_seconds(self) -> float:
        """After so many seconds a backend ends as soon as it has FEWEST_ITEMS."""
        return self.limit_seconds / 8

    @property
    def most_seconds(self) -> float:
        """Seconds after which a backend ends with the items it has."""
        return self.limit_seconds / 4


def samples_in_whole_passes(items: int, set_items: int | None) -> int:
    """At least `items` samples from whole passes over a set; `items` of one that has as many."""
    if not set_items or set_items >= items:
        return items
    return set_items * math.ceil(items / set_items)


def read_latency_protocol(table: Fields) -> LatencyProtocol:
    """Read `[latency]`."""
    return table.whole(
        LatencyProtocol,
        items=table.integer("items", minimum=64, maximum=MOST_ITEMS),
        warmup_items=table.integer("warmup_items", minimum=1, maximum=MOST_WARMUP_ITEMS),
        output_tolerance=table.number("output_tolerance", minimum=0.0, maximum=1.0),
        time_tolerance=table.number("time_tolerance", minimum=0.0),
        alpha=table.number("alpha", minimum=1e-6, maximum=0.5),
        limit_seconds=table.number("limit_seconds", minimum=1.0),
    )


TASK_FILE = "task.py"
REFERENCE = "reference/"  # Folder of the reference, a package.
LARGEST_PACKAGE_BYTES = 256 << 10
MOST_ENTRY_RUNS = 20
Trust = Literal["ranked", "demonstration"]
_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*")
_SHA256 = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class TrainingPolicy:
    """How code submissions to a benchmark are measured.

    Each has `runs` measured runs. `prepare_seconds` are of the processor. With `halves` the second
    half of the test items judges, else both halves are the whole. A board whose answers are public
    is a "demonstration". With a `control_quality` one run more is a shortcut test, which has to be
    as good. `files` has the SHA-256 of the benchmark's own files by name, so that the hash of the
    definition covers them.
    """

    runs: int
    run_limit_seconds: float
    prepare_seconds: float
    lease_seconds: float
    max_attempts: int
    halves: bool
    trust: Trust
    max_evaluations: int = 20
    memory_mib: int = 3072
    threads: int = 1
    max_bytes: int = LARGEST_PACKAGE_BYTES
    control_quality: float | None = None
    files: Mapping[str, str] = field(default_factory=dict)


def read_training_policy(table: Fields) -> TrainingPolicy:
    """Read `[trainings]`."""
    largest = LARGEST_PACKAGE_BYTES
    return table.whole(
        TrainingPolicy,
        runs=table.integer("runs", minimum=3, maximum=MOST_ENTRY_RUNS),
        run_limit_seconds=table.number("run_limit_seconds", minimum=1.0),
        prepare_seconds=table.number("prepare_seconds", minimum=1.0, maximum=3600.0),
        lease_seconds=table.number("lease_seconds", minimum=1.0),
        max_attempts=table.integer("max_attempts", minimum=1, maximum=10),
        halves=table.boolean("halves", default=False),
        trust=table.choice("trust", get_args(Trust)),
        max_evaluations=table.optional_integer("max_evaluations", minimum=1, maximum=1000) or 20,
        memory_mib=table.optional_integer("memory_mib", minimum=64, maximum=1 << 21) or 3072,
        threads=table.optional_integer("threads", minimum=1, maximum=1024) or 1,
        max_bytes=table.optional_integer("max_bytes", minimum=1, maximum=largest) or largest,
        control_quality=table.optional_number("control_quality"),
        files=_files(table.table("files")),
    )


def _files(table: Fields) -> dict[str, str]:
    found = {name: table.text(name) for name, _ in table.items()}
    for name, digest in found.items():
        if not _NAME.fullmatch(name):
            expected = "A-Z, a-z, 0-9, _, . and - below /"
            raise table.fail(name, "not a file's name", expected=expected)
        if not _SHA256.fullmatch(digest):
            raise table.fail(name, f"got {digest[:80]!r}", expected="64 hex digits, its SHA-256")
    if TASK_FILE not in found:
        raise table.fail(TASK_FILE, "missing", expected="the SHA-256 of the benchmark's task")
    return found
