"""Differences within pairs: against SciPy's tests and published sample sizes."""

import math
import random

import pytest
from scipy import stats

from finishline.rules.statistics.pairs import (
    PairedGap,
    p_of_so_many_wins,
    paired_gap,
    pairs_to_separate,
)

FINE = 1e-9  # A reading so fine that rounding adds nothing.


def gap_with(*, effect: float, stdev: float = 0.04) -> PairedGap:
    """A gap whose log mean is `effect` standard deviations from none."""
    return PairedGap(10, 1.0, 0.9, 1.1, 0.5, 0.5, log_mean=effect * stdev, log_stdev=stdev)


def test_a_gap_of_three_pairs_worked_by_hand() -> None:
    """Log ratios 0.1, 0.2, 0.3: mean 0.2, s 0.1, t = 0.2 / (0.1 / sqrt 3) = 3.4641, 2 df."""
    gap = paired_gap([(math.exp(x), 1.0) for x in (0.1, 0.2, 0.3)], quantum=FINE)

    assert gap is not None
    assert gap.ratio == pytest.approx(1.221403, abs=1e-6)
    assert math.log(gap.low) == pytest.approx(0.2 - 4.302653 * 0.1 / math.sqrt(3), abs=1e-6)
    assert math.log(gap.high) == pytest.approx(0.2 + 4.302653 * 0.1 / math.sqrt(3), abs=1e-6)
    # With 2 degrees of freedom P(T > t) = (1 - t / sqrt(t^2 + 2)) / 2.
    assert gap.p_more == pytest.approx((1 - 3.4641016 / math.sqrt(14)) / 2, abs=1e-6)
    assert gap.p_value == pytest.approx(2 * gap.p_more)


def test_a_gap_agrees_with_an_independent_paired_test() -> None:
    draw = random.Random(4)
    pairs = [(draw.lognormvariate(0.05, 0.1), draw.lognormvariate(0.0, 0.1)) for _ in range(9)]
    logs = [[math.log(side) for side in sides] for sides in zip(*pairs, strict=True)]
    expected = stats.ttest_rel(*logs)
    interval = expected.confidence_interval(0.95)
    gap = paired_gap(pairs, quantum=FINE)

    assert gap is not None
    assert gap.p_value == pytest.approx(expected.pvalue)
    assert (gap.low, gap.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))


def test_exchanging_the_sides_turns_the_gap_over() -> None:
    pairs = [(1.0, 1.3), (1.1, 1.2), (0.9, 1.25)]
    gap = paired_gap(pairs, quantum=FINE)
    turned = paired_gap([(second, first) for first, second in pairs], quantum=FINE)

    assert gap is not None
    assert turned is not None
    assert turned.ratio == pytest.approx(1 / gap.ratio)
    assert (turned.low, turned.high) == pytest.approx((1 / gap.high, 1 / gap.low))
    assert turned.p_more == pytest.approx(gap.p_less)


def test_one_pair_has_no_spread() -> None:
    assert paired_gap([(1.0, 2.0)], quantum=FINE) is None
    assert paired_gap([], quantum=FINE) is None


def test_equal_readings_are_no_certainty() -> None:
    """Eight epochs against nine, every time, in steps of one epoch: both are rounded figures."""
    gap = paired_gap([(8.0, 9.0)] * 2, quantum=1.0)

    assert gap is not None
    assert gap.log_stdev == pytest.approx(math.sqrt((1 / 64 + 1 / 81) / 12))
    assert gap.p_value > 0.05


def test_a_wild_spread_has_a_finite_interval() -> None:
    gap = paired_gap([(1e-3, 1e300), (1e300, 1e-3)], quantum=FINE)

    assert gap is not None
    assert math.isfinite(gap.high)
    assert gap.low >= 0.0


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_pairs_needed_are_those_of_the_published_tables(effect: float, pairs: int) -> None:
    """Small, medium and large effects at p = 0.05 and power 0.8 (G*Power, matched pairs)."""
    assert pairs_to_separate(gap_with(effect=effect), alpha=0.05) == pairs
    assert pairs_to_separate(gap_with(effect=-effect), alpha=0.05) == pairs


@pytest.mark.parametrize("effect", [0.3, 0.6, 1.0, 1.4])
def test_as_many_pairs_as_needed_have_the_power_asked_for(effect: float) -> None:
    needed = pairs_to_separate(gap_with(effect=effect), alpha=0.05)
    assert needed is not None

    def power(pairs: int) -> float:
        limit = stats.t.ppf(0.975, pairs - 1)
        return float(stats.nct.sf(limit, pairs - 1, effect * math.sqrt(pairs)))

    assert power(needed + 1) >= 0.8
    assert power(needed - 1) < 0.8


@pytest.mark.parametrize("effect", [0.0, 1e-9, 5e-324])
def test_no_count_of_pairs_is_named_for_no_difference(effect: float) -> None:
    assert pairs_to_separate(gap_with(effect=effect), alpha=0.05) is None


@pytest.mark.parametrize(("won", "of"), [(6, 6), (5, 6), (9, 10), (0, 3), (0, 0)])
def test_wins_are_counted_as_by_an_independent_test(won: int, of: int) -> None:
    expected = stats.binomtest(won, of, alternative="greater").pvalue if of else 1.0
    assert p_of_so_many_wins(won, of=of) == pytest.approx(expected)
