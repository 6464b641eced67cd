"""The interval of a claimed time: its spread is the reference's."""

from functools import lru_cache

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.calibrated_runs import crossing_epochs, curves_at
from finishline.rules.statistics.aggregate import Interval
from finishline.rules.statistics.spread import Spread, interval_of, pooled_spread, resolution_of


def calibrated_spread(benchmark: Benchmark) -> Spread | None:
    """The spread of the reference's log epochs within batch sizes: calibrated, or as published."""
    sizes = sorted({run.batch_size for run in benchmark.reference_runs})
    target, reach = benchmark.target, benchmark.reach
    epochs = [
        tuple(crossing_epochs(curves_at(benchmark, size), target, reach, fractional=False))
        for size in sizes
    ]
    points = benchmark.rcp.points if benchmark.rcp is not None else ()
    return _spread_of_epochs(tuple(epochs) or tuple(point.epochs for point in points))


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
    """The interval of a time that a submitter's logs tell, read off `step_seconds` apart.

    `runs` are those that were scored, of which so many are `dropped` at each end.
    """
    if spread is None or not seconds:
        return None
    at_least = spread.at_least(resolution_of(step_seconds=step_seconds, seconds=seconds))
    return interval_of(seconds, runs=runs, spread=at_least, dropped=dropped)
