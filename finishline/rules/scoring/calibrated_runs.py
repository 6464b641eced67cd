"""Calibrated curves and epochs at a batch size, and their spread."""

import math
from functools import lru_cache

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.run import Evaluation
from finishline.rules.scoring.tta import find_crossing
from finishline.rules.statistics.aggregate import (
    Interval,
    Reference,
    Spread,
    pooled_spread,
    reference_of,
    resolution_of,
)
from finishline.rules.statistics.gaps import interval_of

Curves = tuple[tuple[float, ...], ...]


def curves_at(benchmark: Benchmark, batch_size: float) -> Curves:
    """The calibrated curves at one batch size, an evaluation after each epoch."""
    return tuple(run.quality for run in benchmark.reference_runs_at(batch_size))


@lru_cache(maxsize=64)
def crossing_epochs(
    curves: Curves, target: QualityTarget, reach: ReachRule, *, fractional: bool
) -> tuple[float, ...]:
    """Epochs to the target of the calibrated runs that reached it."""
    evaluated = ([Evaluation(float(n), 0.0, q) for n, q in enumerate(each, 1)] for each in curves)
    found = (find_crossing(each, target, reach) for each in evaluated)
    return tuple((c.fraction if fractional else c.epoch) for c in found if c is not None)


def calibrated_epochs(
    benchmark: Benchmark, batch_size: float, *, fractional: bool = False
) -> tuple[float, ...]:
    """Epochs to the target of the calibrated runs at a batch size that reached it."""
    curves = curves_at(benchmark, batch_size)
    return crossing_epochs(curves, benchmark.target, benchmark.reach, fractional=fractional)


def interpolated_epochs(
    benchmark: Benchmark, batch_size: float, *, fractional: bool
) -> Reference | None:
    """Epochs to the target at a batch size between two calibrated ones, as 2 N runs, or None.

    Source: MLPerf training_rules.adoc, "Reference Convergence Points"; mlperf-logging.
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
    return Reference(
        mean=first.mean + (second.mean - first.mean) * share,
        stdev=first.stdev + (second.stdev - first.stdev) * share,
        count=2 * benchmark.runs.count,
    )


def pooled(first: Reference, second: Reference) -> Reference:
    """The reference that the figures behind two references make together."""
    count = first.count + second.count
    centre = (first.mean * first.count + second.mean * second.count) / count
    squares = sum(
        (each.count - 1) * each.stdev**2 + each.count * (each.mean - centre) ** 2
        for each in (first, second)
    )
    return Reference(mean=centre, stdev=math.sqrt(squares / (count - 1)), count=count)


def calibrated_spread(benchmark: Benchmark) -> Spread | None:
    """The spread of the reference's log epochs within batch sizes: calibrated, or as published."""
    points = benchmark.rcp.points if benchmark.rcp is not None else ()
    epochs = [calibrated_epochs(benchmark, size) for size in calibrated_sizes(benchmark)]
    return _spread_of_epochs(tuple(epochs) or tuple(point.epochs for point in points))


def calibrated_sizes(benchmark: Benchmark) -> list[int]:
    """The batch sizes with calibrated runs, smallest first."""
    return sorted({run.batch_size for run in benchmark.reference_runs})


@lru_cache(maxsize=64)
def _spread_of_epochs(epochs: tuple[tuple[float, ...], ...]) -> Spread | None:
    return pooled_spread(epochs)


def claimed_interval(
    seconds: float | None,
    *,
    runs: int,
    dropped: int,
    spread: Spread | None,
    step_seconds: float | None,
) -> Interval | None:
    """The interval of a time in a submitter's logs, read off `step_seconds` apart."""
    if spread is None or not seconds:
        return None
    at_least = spread.at_least(resolution_of(step_seconds=step_seconds, seconds=seconds))
    return interval_of(seconds, runs=runs, spread=at_least, dropped=dropped)
