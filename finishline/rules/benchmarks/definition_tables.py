"""Tables of a benchmark's definition, as dataclasses with only the limits that all need.

Results were published under definitions that a later limit would refuse.
"""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from annotated_types import Ge, Gt, Le, MinLen

from finishline.rules.measurements import PrecisionName
from finishline.rules.table import EACH_ONCE, FieldError, Text, like
from finishline.rules.text import shown

MOST_RUNS = 100  # Of a verification, and of a submission with a range of runs.
SpreadOf = Literal["trimmed", "all"]
ConvergenceUnit = Literal["epoch_num", "samples_count", "steps"]
Count = Annotated[int, Ge(1)]
Seconds = Annotated[float, Ge(1)]
Alpha = Annotated[float, Ge(1e-6), Le(0.5)]
Positive = Annotated[float, Ge(0)]
Numbers = Annotated[tuple[float, ...], MinLen(1)]


@dataclass(frozen=True)
class ReachRule:
    """Rule for the end of a run: a quality, `evaluations` in a row if "sustained", or a budget."""

    name: str
    evaluations: int = 1
    budget_seconds: float | None = None

    @property
    def is_at_quality(self) -> bool:
        """Whether the quality ends a run, rather than a step or a budget."""
        return self.name in ("first_crossing", "sustained")


@dataclass(frozen=True)
class DataSet:
    """Training and evaluation data, with the raw items' `sha256`, and counts for a fixed set."""

    name: Text
    source: Text
    train_items: Count | None = None
    test_items: Count | None = None
    sha256: Text | None = None


@dataclass(frozen=True)
class RunsRule:
    """Runs of a result, and how many are dropped at each end before the mean.

    A file has `count` as a number, or as a range such as "2.." or "2..75": then all runs count, at
    most `most`. `started` is for benchmarks with runs that often fail: so many are started, and the
    first `count` that reach the target make the result. `seeds` is "required" where every closed
    run must log one, "if_logged" where the rules did not ask for it. Seeds never repeat either way.
    """

    count: Count
    dropped: Annotated[int, Ge(0)]
    started: int | None = None
    seeds: Literal["required", "if_logged"] = "required"
    most: Count | None = None

    @property
    def wanted(self) -> int:
        """Return the number of runs a submission must have."""
        return self.started or self.count

    def counted(self, started: int) -> int:
        """Return how many of the started runs make the result: all of a range."""
        return started if self.most is not None else min(started, self.count)

    @property
    def in_words(self) -> str:
        if self.most is None:
            return str(self.count)
        return f"{self.count} or more" if self.most == MOST_RUNS else f"{self.count} to {self.most}"

    @classmethod
    def __get_pydantic_core_schema__(cls, kind: Any, handler: Callable[[Any], Any]) -> Any:
        from pydantic_core import core_schema

        return core_schema.no_info_before_validator_function(_with_range, handler(kind))


def _with_range(table: Any) -> Any:
    if not isinstance(table, dict):
        return table
    expected = 'a whole number, or a range such as "2.." or "2..75"'
    if "most" in table:
        raise FieldError("unknown field", expected=f"count as {expected}", field="most")
    if not isinstance(count := table.get("count"), str):
        return table
    found = re.fullmatch(r"([1-9][0-9]{0,8})\.\.([1-9][0-9]{0,8})?", count)
    least, most = (int(found[1]), int(found[2] or MOST_RUNS)) if found else (1, 0)
    if most < least:
        raise FieldError(f"got {shown(count)}", expected=expected, field="count")
    return table | {"count": least, "most": most}


@dataclass(frozen=True)
class ReferencePoint:
    """Epochs (or samples) the reference model took to converge, run by run, at one batch size."""

    batch_size: Count
    epochs: Annotated[tuple[Annotated[float, Gt(0)], ...], MinLen(1)]


@dataclass(frozen=True)
class RcpRule:
    """Rule that compares a closed set's convergence with the reference's.

    `stdev_of` says which reading of the standard deviation holds, `allowance` how far below the
    limit a mean may still be (scoring.convergence), `normalise` whether the time of a set that
    converged faster than the mean is raised. `samples_per_epoch` is given where the points count
    samples and a log may count epochs. A point has twice as many figures as a result has runs, or
    at least `fewest_figures`: the tables of a few benchmarks were accepted with fewer.
    """

    stdev_of: SpreadOf
    allowance: Positive = 0.0
    points: Annotated[tuple[ReferencePoint, ...], MinLen(1)] = ()
    normalise: bool = True
    samples_per_epoch: Count | None = None
    fewest_figures: Annotated[int, Ge(3)] | None = None


@dataclass(frozen=True)
class Hyperparameter:
    """A setting of the reference: default, limits, and whether `closed` submissions may set it."""

    default: float
    minimum: float
    maximum: float
    integer: bool = False
    closed: bool = False

    def __post_init__(self) -> None:
        if self.maximum < self.minimum:
            expected = f"at least the minimum, {self.minimum:g}"
            raise FieldError(f"got {self.maximum:g}", expected=expected, field="maximum")
        if not self.minimum <= self.default <= self.maximum:
            raise FieldError(f"got {self.default:g}", expected=self.in_words, field="default")

    @property
    def in_words(self) -> str:
        whole = "whole " if self.integer else ""
        return f"a {whole}number from {self.minimum:g} to {self.maximum:g}"

    def allows(self, value: float) -> bool:
        is_whole = float(value).is_integer()
        return self.minimum <= value <= self.maximum and (is_whole or not self.integer)


@dataclass(frozen=True)
class ReplayPolicy:
    """Rules for running and judging verifications of this benchmark.

    `reference` names the module in reference_models. The server draws between `min_runs` and
    `max_runs` runs. `alpha` is the chance that an honest claim is rejected, for the whole
    verification. `time_tolerance` is how much slower (0.5 = 50 %) a replay on the same hardware
    class may be before its time counts against the claim. `automatic` verifies every submission.
    `equal_seed_distance` is how far apart two curves of one seed may be, as a root mean square in
    the metric's unit, None if unmeasured. `precisions` are the reference's, its own first, and
    empty where it chooses by the device.
    """

    reference: Text
    min_runs: Count
    max_runs: Annotated[int, Ge(1), Le(MOST_RUNS)]
    alpha: Alpha
    time_tolerance: Positive
    run_limit_seconds: Seconds
    lease_seconds: Seconds
    max_attempts: Annotated[int, Ge(1), Le(10)]
    automatic: bool = False
    equal_seed_distance: Positive | None = None
    precisions: Annotated[tuple[PrecisionName, ...], EACH_ONCE] = ()

    def __post_init__(self) -> None:
        if self.max_runs < self.min_runs:
            expected = f"at least the {self.min_runs} of min_runs"
            raise FieldError(f"got {self.max_runs}", expected=expected, field="max_runs")

    def told(self, precision: PrecisionName | None) -> PrecisionName | None:
        """Return the precision to send to the reference: None for its own or an unknown one."""
        return precision if precision in self.precisions[1:] else None


@dataclass(frozen=True)
class ReferenceRun:
    """One calibrated run of the reference model: quality at every evaluation, in order."""

    batch_size: Count
    seed: Annotated[int, Ge(0)]
    quality: Numbers


FEWEST_PAIRS, MOST_PAIRS = 3, 30  # Of a head-to-head.


@dataclass(frozen=True)
class RankingRule:
    """The figure that a board ranks by, and the pairs of a head-to-head at most.

    By "quality" a run's last evaluation within `budget_seconds` on the clock counts.
    """

    pairs: Annotated[int, Ge(FEWEST_PAIRS), Le(MOST_PAIRS)] = MOST_PAIRS
    by: Literal["time", "quality"] = "time"
    budget_seconds: Annotated[float, Gt(0)] | None = None

    def __post_init__(self) -> None:
        if (self.by == "quality") == (self.budget_seconds is None):
            found = "missing" if self.budget_seconds is None else f"{self.budget_seconds:g}"
            expected = "seconds above 0 with by = 'quality', and with no other"
            raise FieldError(
                f"{found} with by = {self.by!r}", expected=expected, field="budget_seconds"
            )


MOST_ITEMS = 2000  # A backend's times, in whole passes, fit one line of the training process.
MOST_WARMUP_ITEMS = 200


@dataclass(frozen=True)
class LatencyProtocol:
    """One item at a time at batch size 1: `warmup_items` that do not count, then `items`.

    A smaller evaluation set is measured in whole passes until there are at least so many, a larger
    one up to `items`. `output_tolerance` is how far the outputs of a backend may be from eager's,
    as a share of the largest output. `time_tolerance` is how much slower (0.5 = 50 %) another
    machine of a hardware class may be before that counts against a claim. `alpha` is the chance
    that an honest claim beyond it is rejected. `limit_seconds` is for compiling, exporting and
    measuring, on top of the training's own limit: after an eighth of it a backend ends as soon as
    it has FEWEST_ITEMS, after a quarter with the items it has.
    """

    items: Annotated[int, Ge(64), Le(MOST_ITEMS)]
    warmup_items: Annotated[int, Ge(1), Le(MOST_WARMUP_ITEMS)]
    output_tolerance: Annotated[float, Ge(0), Le(1)]
    time_tolerance: Positive
    alpha: Alpha
    limit_seconds: Seconds

    def samples_of(self, test_items: int | None) -> int:
        return samples_in_whole_passes(self.items, test_items)

    @property
    def enough_seconds(self) -> float:
        """After so many seconds a backend ends as soon as it has FEWEST_ITEMS."""
        return self.limit_seconds / 8

    @property
    def most_seconds(self) -> float:
        """After so many seconds a backend ends with the items it has."""
        return self.limit_seconds / 4


def samples_in_whole_passes(items: int, set_items: int | None) -> int:
    """Return how many samples whole passes over a set give: at least `items`."""
    if not set_items or set_items >= items:
        return items
    return set_items * math.ceil(items / set_items)


TASK_FILE = "task.py"
REFERENCE = "reference/"  # Folder of the reference, a package.
LARGEST_PACKAGE_BYTES = 256 << 10
MOST_ENTRY_RUNS = 20
FileName = Annotated[
    str,
    like(
        "[A-Za-z0-9_-][A-Za-z0-9_.-]*(/[A-Za-z0-9_-][A-Za-z0-9_.-]*)*",
        "a file's name of A-Z, a-z, 0-9, _, . and - below /",
    ),
]
FileSha256 = Annotated[str, like("[0-9a-f]{64}", "64 hex digits, its SHA-256")]


@dataclass(frozen=True)
class TrainingPolicy:
    """How code submissions to a benchmark are measured.

    Each has `runs` measured runs. `prepare_seconds` are of the processor. With `halves` the second
    half of the test items judges, else both halves are the whole. A board whose answers are public
    is a "demonstration". With a `control_quality` one run more is a shortcut test, which has to be
    as good. `files` has the SHA-256 of the benchmark's own files by name, so the hash of the
    definition covers them.
    """

    runs: Annotated[int, Ge(3), Le(MOST_ENTRY_RUNS)]
    run_limit_seconds: Seconds
    prepare_seconds: Annotated[float, Ge(1), Le(3600)]
    lease_seconds: Seconds
    max_attempts: Annotated[int, Ge(1), Le(10)]
    trust: Literal["ranked", "demonstration"]
    halves: bool = False
    max_evaluations: Annotated[int, Ge(1), Le(1000)] = 20
    memory_mib: Annotated[int, Ge(64), Le(1 << 21)] = 3072
    threads: Annotated[int, Ge(1), Le(1024)] = 1
    max_bytes: Annotated[int, Ge(1), Le(LARGEST_PACKAGE_BYTES)] = LARGEST_PACKAGE_BYTES
    control_quality: float | None = None
    files: Mapping[FileName, FileSha256] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if TASK_FILE not in self.files:
            expected = "the SHA-256 of the benchmark's task"
            raise FieldError("missing", expected=expected, field=f"files.{TASK_FILE}")
