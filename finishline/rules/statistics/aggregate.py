"""Aggregate the runs of a set to one figure, and its scatter."""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text

SHORTEST_SECONDS = 0.001  # Logs are stamped in milliseconds: nothing shorter was measured.
LONGEST_SECONDS = 1e12  # No log has so late a time stamp.
FEWEST_SEALED_RUNS = 3
FEWEST_RUNS_OF_SPREAD = 10
NORMAL = NormalDist()
# The variance of an olympic mean as a multiple of one figure's, by the number of normal figures and
# how many are dropped at each end.
VARIANCE_OF_MEAN = {(3, 1): 0.449, (4, 1): 0.298, (5, 1): 0.227, (5, 2): 0.287, (10, 1): 0.105}


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval."""

    low: float
    high: float


def olympic_mean(times: Sequence[float | None], *, dropped: int) -> float | None:
    """Average without the `dropped` fastest and slowest runs. None if too few converged.

    None in `times` is a run that did not converge and counts as the slowest. Raises RuleError if
    dropping leaves nothing.
    Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    if len(times) <= 2 * dropped:
        raise RuleError(
            f"{count_text(len(times), 'run')}, {dropped} to drop at each end", expected="more runs"
        )
    ordered = sorted(math.inf if seconds is None else seconds for seconds in times)
    kept = ordered[dropped : len(ordered) - dropped]
    return None if math.isinf(kept[-1]) else mean(kept)


def olympic_weight(count: int, *, dropped: int) -> int:
    """Return of how many runs the plain mean scatters no less than the olympic mean of `count`.

    The variance of an olympic mean of normal figures is below sigma^2 / (count - dropped).
    """
    return count - dropped


def median_window(times: Sequence[float | None], *, count: int, dropped: int) -> slice:
    """Find the `count` consecutive runs with the median olympic mean of all such windows.

    An invalid window counts as infinite. Of two windows in the middle the slower is taken, because
    the submitter chose how many runs there are. Of equal windows the first. All runs where there
    are at most `count`.
    Source: MLPerf training_rules.adoc, "Benchmark results" (M > N runs).
    """
    windows = [slice(i, i + count) for i in range(len(times) - count + 1)]

    def olympic_seconds(window: slice) -> float:
        seconds = olympic_mean(times[window], dropped=dropped)
        return math.inf if seconds is None else seconds

    return sorted(windows, key=olympic_seconds)[len(windows) // 2] if windows else slice(None)


def mean(values: Sequence[float]) -> float:
    """Return the arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float], *, ddof: int) -> float:
    """Return the standard deviation of more than `ddof` values."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - ddof))


def coefficient_of_variation_percent(values: Sequence[float]) -> float | None:
    """Return the population deviation over the mean, in percent. None below two values or at 0.

    Source: Verma et al., "Demystifying the MLPerf Training Benchmark Suite" (ddof = 0).
    """
    if len(values) < 2 or mean(values) == 0.0:
        return None
    return standard_deviation(values, ddof=0) / mean(values) * 100.0


@dataclass(frozen=True)
class Reference:
    """Mean and spread of a figure over `count` reference runs. `stdev` with ddof = 1."""

    mean: float
    stdev: float
    count: int


def reference_of(values: Sequence[float]) -> Reference:
    """Make a reference of at least two figures."""
    return Reference(mean(values), standard_deviation(values, ddof=1), len(values))


@dataclass(frozen=True)
class Spread:
    """The standard deviation of the log of one run's time, and its degrees of freedom."""

    stdev: float
    degrees_of_freedom: float

    def at_least(self, resolution: float) -> "Spread":
        """Raise the spread to at least the relative step of the readings."""
        return Spread(max(self.stdev, resolution), self.degrees_of_freedom)


def dropped_at_each_end(runs: int) -> int:
    """Return how many measured runs the mean drops at each end: a tenth, at least one."""
    return max(1, math.floor(runs / 10 + 0.5))


def measured_seconds(times: Sequence[float | None]) -> float | None:
    """Return the olympic mean of at least three measured runs, in seconds.

    A run without a time missed the target or ran into its limit: it counts as infinite.
    """
    if len(times) < FEWEST_SEALED_RUNS:
        return None
    return olympic_mean(times, dropped=dropped_at_each_end(len(times)))


def variance_of_mean(runs: int, *, dropped: int | None = None) -> float | None:
    """Return the variance of the olympic mean of so many normal figures, over one figure's.

    `dropped` are left out at each end, by default as many as of measured runs. None below two runs,
    and if all are dropped. It is at most 2 % off from six runs on.
    Source: Huber, Robust Statistics, 3.3.
    """
    dropped = dropped_at_each_end(runs) if dropped is None else dropped
    if runs < 2 or runs <= 2 * dropped:
        return None
    if dropped == 0:
        return 1 / runs
    if (runs, dropped) in VARIANCE_OF_MEAN:
        return VARIANCE_OF_MEAN[runs, dropped]
    share = dropped / runs
    end = NORMAL.inv_cdf(1 - share)
    within = 1 - 2 * share - 2 * end * NORMAL.pdf(end)
    return (within + 2 * share * end**2) / (1 - 2 * share) ** 2 / runs


def _log(figure: float) -> float:
    return math.log(max(figure, SHORTEST_SECONDS))


def pooled_spread(
    pools: Iterable[Sequence[float]], *, scale: Callable[[float], float] = _log
) -> Spread | None:
    """Pool the spread of log figures within pools of at least ten runs together.

    `pools` holds the seconds (or epochs) of the runs that reached the target. A pool of one run
    does not count. Another `scale` replaces the logarithm.
    """
    squares, runs, groups = 0.0, 0, 0
    for figures in pools:
        if len(figures) < 2:
            continue
        logs = [scale(figure) for figure in figures]
        squares += (len(logs) - 1) * standard_deviation(logs, ddof=1) ** 2
        runs += len(logs)
        groups += 1
    if runs < FEWEST_RUNS_OF_SPREAD:
        return None
    return Spread(math.sqrt(squares / (runs - groups)), runs - groups)


def resolution_of(*, step_seconds: float | None, seconds: float) -> float:
    """Return the least relative spread of a time read off at evaluations `step_seconds` apart.

    The standard deviation of rounding to a step is step / sqrt(12). 0 for an unknown step.
    """
    return 0.0 if not step_seconds or seconds <= 0 else step_seconds / seconds / math.sqrt(12)
