"""Compare two programs trained in turn, pair by pair, by a schedule of tests."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from finishline.rules.statistics.gaps import TIME, Gap, Score

Which = Literal["a", "b"]

FEWEST_PAIRS, MOST_PAIRS = 3, 50  # Beyond fifty the levels below would find too many differences.
FIRST_TEST = 4
# Two equal programs are called different in at most 2 % of all comparisons: perf/statistics.py.
BOUNDARY, BOUNDARY_POWER = 2.55, 0.4
MOST_MISSING = 1000


@dataclass(frozen=True)
class Schedule:
    """The numbers of pairs with a test, each with its level of p.

    With `may_fall_behind` a side that isn't ahead at a test has lost.
    """

    levels: Mapping[int, float]
    may_fall_behind: bool = False

    @property
    def most_pairs(self) -> int:
        return max(self.levels)

    def faster(self, gap: Gap, pairs: int) -> Which | None:
        """Return the side that `gap` shows to be faster, if a test gives an answer."""
        at = min(pairs, self.most_pairs)
        if at not in self.levels:
            return None
        if gap.log_ratio < 0:
            return "a" if gap.p_less < self.levels[at] else None
        return "b" if self.may_fall_behind or gap.p_more < self.levels[at] else None


def most_missed(pairs: int) -> int:
    """Return how many runs a side may miss within so many pairs: 1 of 10, 2 of 20, 3 of 30."""
    return 1 if pairs <= 10 else 2 if pairs <= 20 else 3


def gap_of_pairs(
    pairs: Sequence[tuple[float | None, float | None]], score: Score = TIME
) -> Gap | None:
    """Return the gap of two sides' figures: a run that missed the target gets the worst figure."""
    figures = score.without_misses([figure for pair in pairs for figure in pair])
    return score.gap(list(zip(figures[::2], figures[1::2], strict=True)))


def compare_schedule(most_pairs: int) -> Schedule:
    """Plan a test after each pair from the fourth on, which either side may pass.

    The level after k of K pairs is 1 - Phi(C (K / k)^0.4).
    """
    tests = range(min(FIRST_TEST, most_pairs), most_pairs + 1)
    return Schedule({k: _level(most_pairs / k) for k in tests})


def _level(left: float) -> float:
    """Return the upper tail of the normal distribution at the boundary."""
    return math.erfc(BOUNDARY * left**BOUNDARY_POWER / math.sqrt(2)) / 2


@dataclass(frozen=True)
class Comparison:
    """The pairs of A and B so far: `gap` is of B over A, `missed` counts runs of each."""

    pairs: int
    missed: tuple[int, int]
    gap: Gap | None
    faster: Which | None
    is_over: bool

    @property
    def p(self) -> float | None:
        """How likely is a difference like this, in its direction, of two equal programs?"""
        return None if self.gap is None else min(self.gap.p_less, self.gap.p_more)

    @property
    def pairs_missing(self) -> int | None:
        """Return how many more pairs would tell the two apart, at most a thousand."""
        if self.gap is None or self.faster is not None:
            return None
        spread = self.gap.error * math.sqrt(self.pairs)
        for more in range(1, MOST_MISSING):
            count = self.pairs + more
            later = Gap(-abs(self.gap.log_ratio), spread / math.sqrt(count), count - 1)
            if later.p_less < _level(1.0):
                return more
        return None


def compare_pairs(
    pairs: Sequence[tuple[float | None, float | None]], schedule: Schedule, score: Score = TIME
) -> Comparison:
    """Compare the seconds or qualities of A and B, None for a run that missed the target.

    A side with two misses within ten pairs, three within twenty or four later is slower, without a
    ratio. If both sides miss so often, the comparison is open.
    """
    count = len(pairs)
    missed = tuple(sum(pair[side] is None for pair in pairs) for side in (0, 1))
    late = [each > most_missed(count) and count >= FEWEST_PAIRS for each in missed]
    gap = gap_of_pairs([(b, a) for a, b in pairs], score)
    faster: Which | None = None
    if any(late):
        gap, faster = None, None if all(late) else "b" if late[0] else "a"
    elif gap is not None:
        # The gap is of B, its first side.
        found = schedule.faster(gap, count)
        faster = None if found is None else "b" if found == "a" else "a"
    is_over = any(late) or faster is not None or count >= schedule.most_pairs
    return Comparison(count, (missed[0], missed[1]), gap, faster, is_over)
