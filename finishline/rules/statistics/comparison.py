"""Compare times: which ranked ones the runs separate, and which of two sets of runs is faster."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import Interval
from finishline.rules.statistics.gaps import log_times, runs_needed, welch
from finishline.rules.statistics.significance import t_quantile
from finishline.rules.statistics.spread import CONFIDENCE, Spread, variance_of_mean

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
    gap = welch(one, other)
    wins = sum((a < b) + 0.5 * (a == b) for a in first for b in second)
    return Comparison(
        first_runs=len(first),
        second_runs=len(second),
        ratio=math.exp(one.mean - other.mean),
        ratio_interval=None if gap is None else gap.interval(confidence),
        p_value=None if gap is None else gap.p_value,
        p_faster=None if gap is None else gap.p_more,
        p_one_run_faster=wins / (len(first) * len(second)),
        runs_needed=runs_needed(one, other),
    )
