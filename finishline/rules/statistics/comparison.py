"""Compare times: which ranked ones the runs separate, and which of two sets of runs is faster."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from finishline.rules.errors import RuleError
from finishline.rules.scoring.aggregate import Interval, mean, standard_deviation
from finishline.rules.scoring.measured_time import CONFIDENCE, Spread, variance_of_mean
from finishline.rules.statistics.significance import SHORTEST_SECONDS, t_probability, t_quantile

FEWEST_RUNS_TO_SHARE = 5
FEWEST_VALUES_TO_SHARE = 3


@dataclass(frozen=True)
class RankedTime:
    """A numbered row, its figure, and the runs behind it.

    So many of the runs are `dropped` at each end. `convergence_values` counts the distinct epochs
    (or samples) to the target of its runs.
    """

    submission_id: str
    rank: int
    figure: float
    runs: int
    dropped: int
    spread: Spread | None
    convergence_values: int


@dataclass(frozen=True)
class Separated:
    """A row's number, and the better row that these runs cannot tell it from.

    `number` is the rank, or the better row's where both share it; `shares` says that another row
    has the same. `not_separated_from` is the number of the first row of the stretch, None where the
    runs tell the two apart or nothing is known of their spread; a gap below `visible_gap_percent`
    could not have been seen.
    """

    submission_id: str
    number: int
    not_separated_from: int | None
    visible_gap_percent: float | None
    shares: bool = False


def separate(rows: Iterable[RankedTime]) -> Iterator[Separated]:
    """Compare numbered rows, given in order, with the first row of their stretch, one by one.

    Going down the board, a row that differs significantly from the first row of the stretch above
    leads the next. A number is shared only where both have five runs or more and at least three
    distinct convergence values: fewer, noisier runs must not earn the better rank. Below a row of
    the stretch that has a number of its own, no row shares the first one's.
    """
    last: Separated | None = None
    for found in _in_turn(rows):
        shares = last is not None and last.number == found.number
        if last is not None:
            yield replace(last, shares=last.shares or shares)
        last = replace(found, shares=shares)
    if last is not None:
        yield last


def _in_turn(rows: Iterable[RankedTime]) -> Iterator[Separated]:
    shares = False
    leader: RankedTime | None = None
    for row in rows:
        gap = None if leader is None else visible_gap(leader, row)
        if leader is None or gap is None or row.figure >= leader.figure * (1 + gap):
            leader, shares = row, _may_share(row)
            yield Separated(row.submission_id, row.rank, None, None)
            continue
        shares = shares and _may_share(row)
        number = leader.rank if shares else row.rank
        yield Separated(row.submission_id, number, leader.rank, gap * 100.0)


def visible_gap(first: RankedTime, second: RankedTime) -> float | None:
    """The least relative gap that the runs of two rows can show at 95 %; None without a spread."""
    one = variance_of_mean(first.runs, dropped=first.dropped)
    other = variance_of_mean(second.runs, dropped=second.dropped)
    if first.spread is None or second.spread is None or one is None or other is None:
        return None
    variance = first.spread.stdev**2 * one + second.spread.stdev**2 * other
    freedom = min(first.spread.degrees_of_freedom, second.spread.degrees_of_freedom)
    return math.expm1(t_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance))


def _may_share(row: RankedTime) -> bool:
    return row.runs >= FEWEST_RUNS_TO_SHARE and row.convergence_values >= FEWEST_VALUES_TO_SHARE


ALPHA = 0.05
POWER = 0.8
# A gap that needs more runs than this will never be measured.
MOST_RUNS_NEEDED = 1_000_000
# Logarithms beyond this have no exponential.
_LARGEST_LOG = 700.0


@dataclass(frozen=True)
class LogTimes:
    """The runs of one side, on the log scale: `variance` of one run, None below two runs."""

    count: int
    mean: float
    variance: float | None


@dataclass(frozen=True)
class LogGap:
    """Distance of two means of log seconds, with the standard error and its degrees of freedom."""

    difference: float
    error: float
    degrees_of_freedom: float

    @property
    def p_first_slower(self) -> float:
        """One-sided: how likely is a first side this slow if it were not slower?"""
        return t_probability(-self.difference / self.error, self.degrees_of_freedom)

    @property
    def p_first_faster(self) -> float:
        """One-sided: how likely is a first side this fast if it were not faster?"""
        return t_probability(self.difference / self.error, self.degrees_of_freedom)

    @property
    def p_value(self) -> float:
        """Two-sided: how likely is a gap this wide if there were none?"""
        return 2 * t_probability(-abs(self.difference) / self.error, self.degrees_of_freedom)


@dataclass(frozen=True)
class Comparison:
    """The first side against the second, from the seconds of their runs.

    `ratio` is the geometric mean of the first over that of the second, below 1 where the first is
    faster, and `ratio_interval` the confidence interval of the true ratio. `p_value` is two-sided.
    `p_faster` is the confidence with which the data say that the first is faster on average: the
    level of the one-sided interval of the ratio that ends at 1. It is 1 less the one-sided p-value
    and no probability over beliefs held before. `p_one_run_faster` is the share of pairs, one run
    of each side, in which the first is faster, ties counting half. `runs_needed` is how many runs
    on each side separate a true gap as wide as this one with a power of 0.8 at p = 0.05, None where
    there is no gap. All but the ratio and the share of pairs are None where a side has fewer than
    two runs, and those two where a side has none.
    """

    first_runs: int
    second_runs: int
    ratio: float | None
    ratio_interval: Interval | None
    p_value: float | None
    p_faster: float | None
    p_one_run_faster: float | None
    runs_needed: int | None


def compare(
    first: Sequence[float], second: Sequence[float], *, confidence: float = 0.95
) -> Comparison:
    """Hold the seconds of two sets of runs against each other.

    Welch's t-test on the logarithms of the runs that reached the target: a run that did not has no
    time, and the mean that is ranked has already counted it as slowest. Raises RuleError for a
    confidence that is no probability between 0 and 1.
    Source: Welch (1947); Mann and Whitney (1947) for the share of pairs.
    """
    if not 0.0 < confidence < 1.0:
        raise RuleError(f"{confidence}", field="confidence", expected="a number between 0 and 1")
    one, other = log_times(first), log_times(second)
    if one is None or other is None:
        return Comparison(len(first), len(second), None, None, None, None, None, None)
    gap = log_gap(one, other)
    return Comparison(
        first_runs=len(first),
        second_runs=len(second),
        ratio=math.exp(one.mean - other.mean),
        ratio_interval=None if gap is None else _ratio_interval(gap, confidence),
        p_value=None if gap is None else gap.p_value,
        p_faster=None if gap is None else gap.p_first_slower,
        p_one_run_faster=share_of_pairs(first, second),
        runs_needed=runs_needed(one, other),
    )


def log_times(seconds: Sequence[float]) -> LogTimes | None:
    """The runs on the log scale, None if there are none.

    Logs are stamped in milliseconds: no run counts as shorter than that, and no two scatter less
    than rounding to it makes them, so that equal times are close and not infinitely sure.
    """
    if not seconds:
        return None
    logs = [math.log(max(s, SHORTEST_SECONDS)) for s in seconds]
    centre = mean(logs)
    if len(logs) < 2:
        return LogTimes(1, centre, None)
    rounding = SHORTEST_SECONDS / math.exp(centre) / math.sqrt(12)
    return LogTimes(len(logs), centre, max(standard_deviation(logs, ddof=1), rounding) ** 2)


def log_gap(first: LogTimes, second: LogTimes) -> LogGap | None:
    """Welch's statistic of two sides; None where one has fewer than two runs."""
    if first.variance is None or second.variance is None:
        return None
    one, other = first.variance / first.count, second.variance / second.count
    total = one + other
    freedom = total**2 / (one**2 / (first.count - 1) + other**2 / (second.count - 1))
    return LogGap(first.mean - second.mean, math.sqrt(total), freedom)


def share_of_pairs(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of pairs of runs in which the first is faster, ties counting half."""
    wins = sum((a < b) + 0.5 * (a == b) for a in first for b in second)
    return wins / (len(first) * len(second))


def runs_needed(first: LogTimes, second: LogTimes) -> int | None:
    """Runs on each side that separate a true gap as wide as the one between two means.

    n = (v1 + v2) (z(0.975) + z(0.8))^2 / gap^2 + z(0.975)^2 / (2 k), the normal formula with a
    correction for Student's t with k (n - 1) degrees of freedom, k = (v1 + v2)^2 / (v1^2 + v2^2).
    At least two; within one run of the exact power. None where no run can tell or a million would
    not.
    Source: Guenther (1981), "Sample size formulas for normal theory t tests".
    """
    gap = abs(first.mean - second.mean)
    if first.variance is None or second.variance is None or gap == 0.0:
        return None
    total = first.variance + second.variance
    freedom_factor = total**2 / (first.variance**2 + second.variance**2)
    certain, powerful = NormalDist().inv_cdf(1 - ALPHA / 2), NormalDist().inv_cdf(POWER)
    wanted = total * ((certain + powerful) / gap) ** 2 + certain**2 / (2 * freedom_factor)
    return max(2, math.ceil(wanted)) if wanted <= MOST_RUNS_NEEDED else None


def _ratio_interval(gap: LogGap, confidence: float) -> Interval:
    half = t_quantile((1 + confidence) / 2, gap.degrees_of_freedom) * gap.error
    ends = (gap.difference - half, gap.difference + half)
    low, high = (math.exp(min(end, _LARGEST_LOG)) for end in ends)
    return Interval(low=low, high=high)
