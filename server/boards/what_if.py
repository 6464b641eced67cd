"""A board through another lens: stored curves under another clock, or at another target.

A time through a lens ends at the evaluation that reaches the target; later seconds, up to the log's
own stop, belong to the ranking alone.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import overload

import orjson

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.logs import clock_of_log
from finishline.rules.run import (
    CLOCK_NAMES,
    EPOCH,
    QUALITY,
    SECONDS,
    Clock,
    CurveRow,
    evaluation_of,
    ledger_of,
)
from finishline.rules.scoring.scoring import scored_places
from finishline.rules.scoring.tta import place_at_target
from finishline.rules.statistics.aggregate import (
    LONGEST_SECONDS,
    coefficient_of_variation_percent,
    mean,
    measured_seconds,
    olympic_mean,
)
from finishline.rules.submissions.claim_checks import MOST_EPOCHS
from finishline.rules.text import shown

IMPOSSIBLE = "its curve has an impossible value"
NO_LEDGER = "no ledger: the log does not separate evaluation time"


@dataclass(frozen=True)
class Lens:
    """The clock and the target that a board is seen under."""

    clock: Clock
    target: QualityTarget
    own_target: bool


class PackedCurve(Sequence[CurveRow]):
    """A curve in a fifth of the memory: a row is decoded when it is asked for."""

    def __init__(self, rows: Sequence[CurveRow]) -> None:
        self.qualities: Sequence[float] = array("d", [row[QUALITY] for row in rows])
        self._text = b"\n".join(map(orjson.dumps, rows))

    def __len__(self) -> int:
        return len(self.qualities)

    @overload
    def __getitem__(self, place: int) -> CurveRow: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[CurveRow]: ...
    def __getitem__(self, place: int | slice) -> CurveRow | Sequence[CurveRow]:
        rows = self._text.splitlines()[place]
        return orjson.loads(rows) if isinstance(rows, bytes) else [orjson.loads(r) for r in rows]


@dataclass(frozen=True)
class StoredRun:
    """Stored fields of a run: its log's name, whether it was scored as reaching, its curve."""

    name: str
    reached: bool
    curve: Sequence[CurveRow]


@dataclass(frozen=True)
class LensTime:
    """Seconds and epochs of a run to the target; `reason` tells why the seconds are unknown.

    All None for a run that did not reach the target.
    """

    seconds: float | None
    epochs: float | None = None
    reason: str | None = None


@dataclass(frozen=True)
class LensResult:
    """Result of a submission's runs through a lens, like `scoring.Result`.

    `runs` holds the seconds of those that reached the target, on the scale of `tta_seconds`.
    """

    tta_seconds: float | None
    raw_tta_seconds: float | None
    cv_percent: float | None
    epochs_to_target: float | None
    runs: tuple[float, ...]
    reason: str | None


def make_lens(
    benchmark: Benchmark, *, clock: str | None, target: float | None, field: str = "target"
) -> Lens | None:
    """The lens for a clock and a target value, or None if that is the benchmark's own ranking.

    A benchmark whose runs all stop at a fixed step has one target: quality does not stop them.
    """
    if clock is not None and clock not in CLOCK_NAMES:
        raise RuleError(shown(clock), field="clock", expected=" or ".join(CLOCK_NAMES))
    value = benchmark.target.value if target is None else _checked(target, benchmark, field=field)
    own_target = value == benchmark.target.value
    named = Clock(clock or benchmark.clock.name)
    if own_target and named == benchmark.clock:
        return None
    return Lens(named, replace(benchmark.target, value=value), own_target)


def _checked(value: float, benchmark: Benchmark, *, field: str) -> float:
    target = benchmark.target
    if not math.isfinite(value) or not target.is_possible(value):
        expected = f"a {target.metric}: {target.possible_in_words}"
        raise RuleError(f"{value:g}", field=field, expected=expected)
    if benchmark.reach.name == "fixed_stop" and value != target.value:
        message = "every run of this benchmark stops at the same step, whatever its quality"
        raise RuleError(message, field=field, expected="no target")
    return value


def time_of_run(run: StoredRun, lens: Lens, benchmark: Benchmark, *, division: str) -> LensTime:
    """Time of a stored run to the lens's target on the lens's clock.

    On the clock its log was written by, the log's own seconds; on any other its ledger decides. At
    the benchmark's own target a run counts only if it was scored as reaching it, because a log may
    say of itself that it failed; at any other target its curve alone decides.
    """
    place = place_at_target(_at_target(run.curve, lens.target), benchmark.reach)
    if place is None:
        return LensTime(None)
    row = run.curve[place]
    ledger, own_clock = ledger_of(row), clock_of_log(run.name)
    was_scored = ledger is not None or own_clock == benchmark.clock.name
    if lens.own_target and was_scored and not run.reached:
        return LensTime(None)
    if ledger is not None:
        found = LensTime(lens.clock.seconds(ledger, division=division), row[EPOCH])
    elif own_clock == lens.clock.name:
        found = LensTime(row[SECONDS], row[EPOCH])
    else:
        found = LensTime(None, row[EPOCH], NO_LEDGER)
    return found if _can_be_summed(found) else LensTime(None, reason=IMPOSSIBLE)


def _can_be_summed(found: LensTime) -> bool:
    """Whether no figure is beyond any that a training has: its sum with others may have no value.

    None that short is refused here: the rank of the whole set is (rules.ranking).
    """
    return abs(found.seconds or 0.0) <= LONGEST_SECONDS and abs(found.epochs or 0.0) <= MOST_EPOCHS


def _at_target(curve: Sequence[CurveRow], target: QualityTarget) -> list[bool]:
    if target.also:
        return target.reached_at([evaluation_of(row) for row in curve])
    # Curves are long: no evaluation is made where its quality says it all.
    qualities: Sequence[float] = (
        curve.qualities if isinstance(curve, PackedCurve) else [row[QUALITY] for row in curve]
    )
    least = target.least
    if target.direction == "higher":
        return [quality >= least for quality in qualities]
    return [quality <= least for quality in qualities]


def result_of_set(
    times: Sequence[LensTime],
    lens: Lens,
    benchmark: Benchmark,
    *,
    factor: float,
    sealed: bool = False,
) -> LensResult:
    """Result of a set of runs through a lens; `sealed` runs are scored as a pool is measured.

    `factor` multiplies the set's time for its convergence; it holds on every clock but was measured
    at the benchmark's own target, so at another one it is left out. One run without a time leaves
    the set without one.
    """
    reason = next((time.reason for time in times if time.reason is not None), None)
    scale = factor if lens.own_target else 1.0
    seconds = [time.seconds for time in times]
    reached = [s for s in seconds if s is not None] if reason is None else []
    mean_of = measured_seconds if sealed else partial(_olympic_seconds, benchmark)
    raw = mean_of(seconds) if reason is None else None
    runs = tuple(s * scale for s in reached)
    epochs = [time.epochs for time in times if time.epochs is not None]
    return LensResult(
        tta_seconds=None if raw is None else raw * scale,
        raw_tta_seconds=raw,
        cv_percent=coefficient_of_variation_percent(reached),
        epochs_to_target=mean(epochs) if epochs else None,
        runs=runs,
        reason=reason,
    )


def _olympic_seconds(benchmark: Benchmark, seconds: Sequence[float | None]) -> float | None:
    counted = [seconds[place] for place in scored_places(seconds, benchmark.runs)]
    dropped = benchmark.runs.dropped
    return olympic_mean(counted, dropped=dropped) if len(counted) > 2 * dropped else None
