"""The spread of runs, and the olympic mean of measured ones with its interval."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import NormalDist

from finishline.rules.statistics.aggregate import Interval, mean, olympic_mean
from finishline.rules.statistics.significance import SHORTEST_SECONDS, t_quantile

FEWEST_SEALED_RUNS = 3
CONFIDENCE = 0.95
FEWEST_RUNS_OF_SPREAD = 10
WIDEST_LOG = math.log(1e9)
NORMAL = NormalDist()
# The variance of an olympic mean as a multiple of one figure's: of so many normal figures, of which
# so many are dropped at each end.
VARIANCE_OF_MEAN = {(3, 1): 0.449, (4, 1): 0.298, (5, 1): 0.227, (5, 2): 0.287, (10, 1): 0.105}


@dataclass(frozen=True)
class Spread:
    """The standard deviation of the log of one run's time, and its degrees of freedom."""

    stdev: float
    degrees_of_freedom: float

    def at_least(self, resolution: float) -> "Spread":
        """The same, but no run scatters less than the relative step it is read off at."""
        return Spread(max(self.stdev, resolution), self.degrees_of_freedom)


def dropped_at_each_end(runs: int) -> int:
    """Number of sealed runs that the mean drops at each end: a tenth, at least one."""
    return max(1, math.floor(runs / 10 + 0.5))


def measured_seconds(times: Sequence[float | None]) -> float | None:
    """The olympic mean of sealed runs in seconds, or None below three of them.

    A run without a time missed the target or ran into its limit: it counts as infinite. Where
    more of them missed than are dropped, there is no time either.
    """
    if len(times) < FEWEST_SEALED_RUNS:
        return None
    return olympic_mean(times, dropped=dropped_at_each_end(len(times)))


def variance_of_mean(runs: int, *, dropped: int | None = None) -> float | None:
    """The variance of the olympic mean of so many normal figures, over that of one.

    `dropped` are left out at each end, as many as of sealed runs by default. None below two runs,
    and where none is left. Where no figure is stated it is the variance of a trimmed mean of many
    figures, which is at most 2 % off from six runs on.
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


def pooled_spread(pools: Iterable[Sequence[float]]) -> Spread | None:
    """The spread of log figures within pools, over all pools; None below ten runs.

    `pools` holds the seconds (or epochs) of the runs that reached the target. A single run tells
    nothing of a spread, so a pool of one does not count.
    """
    squares, runs, groups = 0.0, 0, 0
    for figures in pools:
        if len(figures) < 2:
            continue
        logs = [math.log(max(figure, SHORTEST_SECONDS)) for figure in figures]
        centre = mean(logs)
        squares += math.fsum((log - centre) ** 2 for log in logs)
        runs += len(logs)
        groups += 1
    if runs < FEWEST_RUNS_OF_SPREAD:
        return None
    return Spread(math.sqrt(squares / (runs - groups)), runs - groups)


def resolution_of(*, step_seconds: float | None, seconds: float) -> float:
    """The least relative spread of a time that is read off at evaluations `step_seconds` apart.

    The standard deviation of rounding to a step is step / sqrt(12); 0 where no step is known.
    """
    return 0.0 if not step_seconds or seconds <= 0 else step_seconds / seconds / math.sqrt(12)


def interval_of(
    seconds: float, *, runs: int, spread: Spread | None, dropped: int | None = None
) -> Interval | None:
    """The 95 % interval of the mean of so many runs: seconds * exp(+- t * s * sqrt(c)).

    None where no spread is known, for one run alone, and where the bound is a factor above 10^9:
    evaluations that far apart tell no time.
    """
    share = variance_of_mean(runs, dropped=dropped)
    if spread is None or share is None:
        return None
    quantile = t_quantile((1 + CONFIDENCE) / 2, spread.degrees_of_freedom)
    log_half = quantile * spread.stdev * math.sqrt(share)
    if log_half > WIDEST_LOG:
        return None
    half = math.exp(log_half)
    return Interval(low=seconds / half, high=seconds * half)
