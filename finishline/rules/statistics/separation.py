"""Separation: which ranked times these runs can tell apart. Not being able to tell is no tie."""

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from finishline.rules.scoring.measured_time import CONFIDENCE, Spread, variance_of_mean
from finishline.rules.statistics.t import t_quantile

FEWEST_RUNS_TO_SHARE = 5
FEWEST_VALUES_TO_SHARE = 3


@dataclass(frozen=True)
class RankedTime:
    """A numbered row, its figure, and the runs behind it.

    `convergence_values` counts the distinct epochs (or samples) to the target of its runs.
    """

    submission_id: str
    rank: int
    figure: float
    runs: int
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
    one, other = variance_of_mean(first.runs), variance_of_mean(second.runs)
    if first.spread is None or second.spread is None or one is None or other is None:
        return None
    variance = first.spread.stdev**2 * one + second.spread.stdev**2 * other
    freedom = min(first.spread.degrees_of_freedom, second.spread.degrees_of_freedom)
    return math.expm1(t_quantile((1 + CONFIDENCE) / 2, freedom) * math.sqrt(variance))


def _may_share(row: RankedTime) -> bool:
    return row.runs >= FEWEST_RUNS_TO_SHARE and row.convergence_values >= FEWEST_VALUES_TO_SHARE
