"""scipy.stats is the oracle: its tests are computed another way than the closed forms here."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.errors import RuleError
from finishline.rules.statistics.comparison import compare

FIRST = [102.0, 97.0, 110.0, 105.0]
SECOND = [121.0, 130.0, 115.0, 119.0, 128.0]
RUNS = st.lists(st.floats(1.0, 1e7), min_size=2, max_size=8)


def test_a_comparison_is_welchs_test_on_log_seconds_as_scipy_does_it() -> None:
    oracle = scipy.stats.ttest_ind(np.log(FIRST), np.log(SECOND), equal_var=False)
    one_sided = scipy.stats.ttest_ind(
        np.log(FIRST), np.log(SECOND), equal_var=False, alternative="less"
    )
    interval = oracle.confidence_interval(0.95)

    found = compare(FIRST, SECOND)

    assert (found.first_runs, found.second_runs) == (4, 5)
    assert found.ratio == pytest.approx(scipy.stats.gmean(FIRST) / scipy.stats.gmean(SECOND))
    assert found.p_value == pytest.approx(oracle.pvalue)
    assert found.p_faster == pytest.approx(1 - one_sided.pvalue)
    assert found.ratio_interval is not None
    assert found.ratio_interval.low == pytest.approx(math.exp(interval.low))
    assert found.ratio_interval.high == pytest.approx(math.exp(interval.high))


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_the_interval_has_the_confidence_that_is_asked_for(confidence: float) -> None:
    oracle = scipy.stats.ttest_ind(np.log(FIRST), np.log(SECOND), equal_var=False)

    found = compare(FIRST, SECOND, confidence=confidence).ratio_interval

    assert found is not None
    assert math.log(found.low) == pytest.approx(oracle.confidence_interval(confidence).low)


@pytest.mark.parametrize("confidence", [0.0, 1.0, 1.5, math.nan])
def test_a_confidence_that_is_no_probability_is_refused(confidence: float) -> None:
    with pytest.raises(RuleError) as raised:
        compare(FIRST, SECOND, confidence=confidence)
    assert raised.value.field == "confidence"
    assert raised.value.expected == "a number between 0 and 1"


def test_the_share_of_pairs_is_mann_whitneys_u_over_the_pairs() -> None:
    first, second = [3.0, 5.0, 5.0, 9.0], [4.0, 5.0, 11.0]
    # scipy counts the pairs in which its first argument is larger, ties half.
    u = scipy.stats.mannwhitneyu(second, first, method="asymptotic").statistic

    assert compare(first, second).p_one_run_faster == pytest.approx(u / 12)
    assert compare([1.0], [2.0]).p_one_run_faster == 1.0
    assert compare([2.0], [2.0]).p_one_run_faster == 0.5


@pytest.mark.parametrize(("first", "second"), [([100.0], SECOND), (FIRST, [100.0]), ([1.0], [2.0])])
def test_a_single_run_has_a_ratio_and_proves_nothing(
    first: list[float], second: list[float]
) -> None:
    found = compare(first, second)

    assert found.ratio == pytest.approx(scipy.stats.gmean(first) / scipy.stats.gmean(second))
    assert found.p_one_run_faster is not None
    proof = (found.ratio_interval, found.p_value, found.p_faster, found.runs_needed)
    assert proof == (None, None, None, None)


def test_a_side_without_a_run_that_reached_has_nothing_to_compare() -> None:
    found = compare([], SECOND)

    assert (found.first_runs, found.second_runs) == (0, 5)
    assert (found.ratio, found.p_value, found.p_one_run_faster) == (None, None, None)


def test_equal_runs_without_scatter_are_as_likely_the_one_as_the_other() -> None:
    found = compare([50.0, 50.0, 50.0], [50.0, 50.0])

    assert (found.ratio, found.p_value, found.p_faster) == (1.0, 1.0, 0.5)
    assert found.runs_needed is None


def test_runs_that_do_not_scatter_are_told_apart_beyond_the_milliseconds_of_a_log_alone() -> None:
    """Welch's statistic is undefined there; rounding to 1 ms has a deviation of 1 ms / sqrt(12)."""
    far = compare([50.0, 50.0, 50.0], [51.0, 51.0, 51.0])
    near = compare([50.0, 50.0], [50.0004, 50.0004])

    assert far.p_value is not None
    assert near.p_value is not None
    assert 0.0 < far.p_value < 1e-6
    # t = 0.4 ms / (1 ms / sqrt(12)) with 2 degrees of freedom.
    assert near.p_value == pytest.approx(2 * scipy.stats.t.sf(0.4 * math.sqrt(12), 2), rel=1e-4)


def test_a_run_of_no_time_at_all_counts_as_the_shortest_a_log_can_tell() -> None:
    assert compare([0.0, 0.0], [0.001, 0.001]).ratio == 1.0


def exact_power(count: int, gap: float, deviation: float) -> float:
    """Of a two-sided t-test of two equal samples: by the noncentral t distribution."""
    freedom = 2 * (count - 1)
    limit = scipy.stats.t.ppf(0.975, freedom)
    noncentral = scipy.stats.nct(freedom, gap / deviation * math.sqrt(count / 2))
    return float(noncentral.sf(limit) + noncentral.cdf(-limit))


@pytest.mark.parametrize("effect", [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0])
def test_the_runs_needed_are_within_one_of_those_with_the_exact_power(effect: float) -> None:
    """Two logs at a distance of 2 d / sqrt(2) have the deviation d."""
    deviation = 0.01
    half = deviation / math.sqrt(2)
    first = [math.exp(4.0 - half), math.exp(4.0 + half)]
    second = [s * math.exp(effect * deviation) for s in first]
    oracle = next(n for n in range(2, 1000) if exact_power(n, effect * deviation, deviation) >= 0.8)

    needed = compare(first, second).runs_needed

    assert needed is not None
    assert abs(needed - oracle) <= 1
    if effect <= 1.0:
        assert needed == oracle


def test_the_runs_needed_of_a_hopeless_gap_are_not_told() -> None:
    assert compare([1.0, 1000.0], [1.0, 1001.0]).runs_needed is None


def test_with_unequal_scatter_more_runs_are_needed_than_the_equal_formula_says() -> None:
    """One side without scatter: the freedom is that of the other alone, so it is a z^2 / 2."""
    logs = [4.0 - 0.01 / math.sqrt(2), 4.0 + 0.01 / math.sqrt(2)]
    first = [math.exp(x) for x in logs]
    second = [math.exp(4.01)] * 2
    z = scipy.stats.norm.ppf([0.975, 0.8])

    by_hand = z.sum() ** 2 * 0.01**2 / 0.01**2 + z[0] ** 2 / 2

    assert compare(first, second).runs_needed == math.ceil(by_hand) == 10


@given(RUNS, RUNS)
def test_the_two_ways_round_say_the_same(first: list[float], second: list[float]) -> None:
    one, other = compare(first, second), compare(second, first)

    assert one.ratio is not None
    assert other.ratio is not None
    assert one.ratio * other.ratio == pytest.approx(1.0)
    assert one.p_value == pytest.approx(other.p_value)
    assert one.p_faster is not None
    assert other.p_faster is not None
    assert one.p_faster + other.p_faster == pytest.approx(1.0)
    assert one.p_one_run_faster == pytest.approx(1 - (other.p_one_run_faster or 0.0))
    assert one.runs_needed == other.runs_needed


@given(RUNS, RUNS, st.floats(0.1, 10.0))
def test_another_unit_of_time_changes_nothing(
    first: list[float], second: list[float], factor: float
) -> None:
    """As long as neither side is at the resolution of a log."""
    if any(np.log(runs).std() < 0.005 for runs in (first, second)):
        return
    before = compare(first, second)
    after = compare([s * factor for s in first], [s * factor for s in second])

    assert after.ratio == pytest.approx(before.ratio)
    assert after.p_value == pytest.approx(before.p_value, rel=1e-4, abs=1e-9)


@given(RUNS, RUNS)
def test_the_interval_leaves_out_1_just_when_the_p_value_is_below_its_level(
    first: list[float], second: list[float]
) -> None:
    found = compare(first, second, confidence=0.95)

    assert found.ratio_interval is not None
    assert found.p_value is not None
    low, high = found.ratio_interval.low, found.ratio_interval.high
    assert low <= (found.ratio or 0.0) * (1 + 1e-9)
    assert high >= (found.ratio or 0.0) * (1 - 1e-9)
    if abs(found.p_value - 0.05) > 1e-6:
        assert (low > 1.0 or high < 1.0) == (found.p_value < 0.05)


def test_nobody_is_told_to_make_fewer_than_two_runs() -> None:
    assert compare(FIRST, [s * 100 for s in FIRST]).runs_needed == 2


def test_an_interval_too_wide_for_a_number_ends_at_a_large_one() -> None:
    found = compare([1.0, 1e9], [1.0, 1e9], confidence=0.9999999).ratio_interval

    assert found is not None
    assert math.isfinite(found.high)
    assert found.high > 1e300
