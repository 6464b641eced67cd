"""Compute time to accuracy: when a run, or a calibrated curve, reached its target."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.run import Clock, Evaluation, Ledger, Run
from finishline.rules.statistics.aggregate import (
    Interval,
    Reference,
    Spread,
    pooled_spread,
    reference_of,
    resolution_of,
)
from finishline.rules.statistics.gaps import interval_of, log_times
from finishline.rules.text import LARGEST_PLAIN, significant

# Relative error of hours * 3600: 0.07 hours are 252.00000000000003 s.
_CONVERSION_ERROR = 1e-15


def first_evaluation_at_target(
    evaluations: Sequence[Evaluation], target: QualityTarget, reach: ReachRule
) -> Evaluation | None:
    """Find the evaluation at which the target counts as reached, if it does.

    first_crossing: the first evaluation in log order at the target or beyond. sustained: the last
    of the first `reach.evaluations` such evaluations in a row. fixed_stop: the last evaluation, at
    any quality, because there the mean over runs is tested. budget: the last evaluation within it.
    Raises RuleError on a run without evaluations.
    Source: dawn-bench-entries README, "CIFAR10 Training". Modded-nanogpt, rules of the speedrun.
    """
    if not evaluations:
        raise RuleError("a run without evaluations", expected="at least one evaluation")
    if reach.budget_seconds is not None:
        within = [each for each in evaluations if each.seconds <= reach.budget_seconds]
        return within[-1] if within else None
    place = place_at_target(target.reached_at(evaluations), reach)
    return None if place is None else evaluations[place]


def place_at_target(at_target: Sequence[bool], reach: ReachRule) -> int | None:
    """Find the index of `first_evaluation_at_target`, by whether each is at the target."""
    if reach.name == "fixed_stop":
        return len(at_target) - 1 if at_target else None
    in_a_row = 0
    for place, is_at_target in enumerate(at_target):
        in_a_row = in_a_row + 1 if is_at_target else 0
        if in_a_row == reach.evaluations:
            return place
    return None


def time_to_accuracy(
    run: Run,
    target: QualityTarget,
    reach: ReachRule,
    *,
    clock: Clock,
    division: str,
) -> float | None:
    """Return the seconds until the run reached the target on a clock, if it did.

    On the log's own clock, a log with a run_stop counts to its run_stop, if its status is "success"
    (MLPerf), and any other to the evaluation that reached the target (DAWNBench). On another clock
    the ledger of this evaluation decides, None without a ledger.
    Source: MLPerf training_rules.adoc, "Benchmark results". Dawn-bench-entries README.
    """
    reached = first_evaluation_at_target(run.evaluations, target, reach)
    if reached is None:
        return None
    if reach.budget_seconds is not None:
        return reached.seconds
    if run.status is not None and run.status != "success":
        return None
    if clock.name != run.clock:
        return None if reached.ledger is None else clock.seconds(reached.ledger, division=division)
    if run.stop_seconds is None:
        return reached.seconds
    return run.stop_seconds + excess_preparation_seconds(run, clock, division)


def on_clock(run: Run, clock: Clock, *, division: str) -> Run:
    """Time a run's evaluations on a clock, and drop untimed ones."""
    if run.clock == clock.name:
        return run
    evaluations = (
        replace(each, seconds=clock.seconds(each.ledger, division=division))
        for each in run.evaluations
        if each.ledger is not None
    )
    return replace(run, clock=clock.name, evaluations=tuple(evaluations))


def excess_preparation_seconds(run: Run, clock: Clock, division: str) -> float:
    """Return the preparation beyond the free allowance, in seconds, which a log's times leave out.

    From the first init_start to run_start. The published checker counts to init_stop.
    Source: MLPerf training_rules.adoc, "Run Results".
    """
    if run.preparation_seconds is None or clock.name != "mlperf":
        return 0.0
    return clock.seconds(Ledger(init=run.preparation_seconds), division=division)


def evaluation_interval_seconds(run: Run) -> float | None:
    """Return the median seconds between evaluations, the quantum of a TTA, if there are two."""
    times = [evaluation.seconds for evaluation in run.evaluations]
    gaps = [later - earlier for earlier, later in itertools.pairwise(times)]
    return median(gaps) if gaps else None


def display_seconds(seconds: float) -> str:
    """Write a time for people: "0.853 s" below a minute, else H:MM:SS."""
    if 60 <= seconds <= LARGEST_PLAIN:
        return stopwatch(seconds)
    return f"{significant(seconds, 3)} s"


def stopwatch(seconds: float) -> str:
    """Write seconds rounded up, as H:MM:SS.

    Source: dawn-bench-entries, the published leaderboard (19 of 19 shown times fit rounding up).
    """
    whole = math.ceil(seconds * (1 - _CONVERSION_ERROR))
    return f"{whole // 3600}:{whole % 3600 // 60:02d}:{whole % 60:02d}"


@dataclass(frozen=True)
class Crossing:
    """Point where a curve reached its target.

    `epoch` is the epoch at which the target counts as reached, and `fraction` the same on the
    straight line from the evaluation before to this one (the first in the row, where the rule wants
    several). `interval_epochs` is between the two, if there are two.
    """

    epoch: float
    fraction: float
    interval_epochs: float | None


def find_crossing(
    curve: Sequence[Evaluation], target: QualityTarget, reach: ReachRule
) -> Crossing | None:
    """Find where a curve reaches its target, if it does and has epochs."""
    reached = first_evaluation_at_target(curve, target, reach) if curve else None
    if reached is None or reached.epoch is None:
        return None
    index = next(i for i, evaluation in enumerate(curve) if evaluation is reached)
    index -= reach.evaluations - 1
    at = curve[index]
    before = curve[index - 1] if index else None
    if before is None or before.epoch is None or at.epoch is None or at.epoch <= before.epoch:
        return Crossing(reached.epoch, reached.epoch, None)
    interval = at.epoch - before.epoch
    if target.is_reached(before.quality):  # A fixed stop needs no crossing.
        return Crossing(reached.epoch, reached.epoch, interval)
    share = (target.value - before.quality) / (at.quality - before.quality)
    return Crossing(reached.epoch, reached.epoch - (1 - share) * interval, interval)


Curves = tuple[tuple[float, ...], ...]


def curves_at(benchmark: Benchmark, batch_size: float) -> Curves:
    """Return the calibrated curves at one batch size, an evaluation after each epoch."""
    return tuple(run.quality for run in benchmark.reference_runs_at(batch_size))


@lru_cache(maxsize=64)
def crossing_epochs(
    curves: Curves, target: QualityTarget, reach: ReachRule, *, fractional: bool
) -> tuple[float, ...]:
    """Return the epochs to the target of the calibrated runs that reached it."""
    evaluated = ([Evaluation(float(n), 0.0, q) for n, q in enumerate(each, 1)] for each in curves)
    found = (find_crossing(each, target, reach) for each in evaluated)
    return tuple((c.fraction if fractional else c.epoch) for c in found if c is not None)


def calibrated_epochs(
    benchmark: Benchmark, batch_size: float, *, fractional: bool = False
) -> tuple[float, ...]:
    """Return the epochs to the target of the calibrated runs at a batch size that reached it."""
    curves = curves_at(benchmark, batch_size)
    return crossing_epochs(curves, benchmark.target, benchmark.reach, fractional=fractional)


def interpolated_epochs(
    benchmark: Benchmark, batch_size: float, *, fractional: bool
) -> Reference | None:
    """Interpolate the epochs to the target between two calibrated batch sizes, as 2 N runs.

    Source: MLPerf training_rules.adoc, "Reference Convergence Points" and mlperf-logging.
    """
    below = max((size for size in calibrated_sizes(benchmark) if size < batch_size), default=None)
    above = min((size for size in calibrated_sizes(benchmark) if size > batch_size), default=None)
    if below is None or above is None:
        return None
    low, high = (
        calibrated_epochs(benchmark, size, fractional=fractional) for size in (below, above)
    )
    if len(low) < 2 or len(high) < 2:
        return None
    share = (batch_size - below) / (above - below)
    first, second = reference_of(low), reference_of(high)
    centre = first.mean + (second.mean - first.mean) * share
    stdev = first.stdev + (second.stdev - first.stdev) * share
    return Reference(centre, stdev, count=2 * benchmark.runs.count)


def pooled(first: Reference, second: Reference) -> Reference:
    """Join the figures behind two references to one reference."""
    count = first.count + second.count
    centre = (first.mean * first.count + second.mean * second.count) / count
    squares = sum(
        (each.count - 1) * each.stdev**2 + each.count * (each.mean - centre) ** 2
        for each in (first, second)
    )
    return Reference(mean=centre, stdev=math.sqrt(squares / (count - 1)), count=count)


def calibrated_spread(benchmark: Benchmark) -> Spread | None:
    """Return the calibrated or published spread of the reference's log epochs at a batch size."""
    points = benchmark.rcp.points if benchmark.rcp is not None else ()
    epochs = [calibrated_epochs(benchmark, size) for size in calibrated_sizes(benchmark)]
    return pooled_spread(epochs or [point.epochs for point in points])


def calibrated_sizes(benchmark: Benchmark) -> list[int]:
    return sorted({run.batch_size for run in benchmark.reference_runs})


def claimed_interval(
    seconds: float | None,
    *,
    runs: int,
    dropped: int,
    spread: Spread | None,
    times: Sequence[float],
    step_seconds: float | None,
) -> Interval | None:
    """Return the interval of a time in a submitter's logs, read off `step_seconds` apart.

    The spread is at least what these runs show.
    """
    if spread is None or not seconds:
        return None
    shown = log_times(times)
    at_least = spread.at_least(resolution_of(step_seconds=step_seconds, seconds=seconds))
    if shown is not None and shown.variance is not None:
        at_least = at_least.at_least(math.sqrt(shown.variance))
    return interval_of(seconds, runs=runs, spread=at_least, dropped=dropped)
