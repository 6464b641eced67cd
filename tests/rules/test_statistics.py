"""Significance, pairs, families of tests and ties; scipy.stats is the oracle."""

import math
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import scipy.stats
from hypothesis import example, given
from hypothesis import strategies as st

from finishline.rules.statistics.aggregate import Reference, Spread, reference_of
from finishline.rules.statistics.gaps import (
    gap_to_claim,
    log_times,
    lowest_mean,
    p_value_of_mean_beyond,
    paired_gap,
    t_quantile,
    two_sided_p,
    welch,
)
from server.boards.compare import compare, count_needed, holm
from server.boards.order import Place, RunsBehind, separate, visible_gap

FIRST, SECOND = [1.02, 0.97, 1.10, 1.05], [0.81, 0.90, 0.85, 0.79, 0.88]
FIRST_TIMES, SECOND_TIMES = [102.0, 97.0, 110.0, 105.0], [121.0, 130.0, 115.0, 119.0, 128.0]
RUNS = st.lists(st.floats(1.0, 1e7), min_size=2, max_size=8)
FINE = 1e-9  # A reading so fine that rounding adds nothing.


def test_the_closed_form_of_the_limit_gives_the_worked_example_of_mlperf():
    """Source: MLPerf training_rules.adoc, RCP appendix, batch size 128.

    There the deviation is 0.433 (population, trimmed) and the degrees of freedom are those of
    both samples, 8 + 3 - 2 = 9, so the limit is 15.21. Here the degrees of freedom are those of
    the reference alone, 7; scipy's quantiles convert the one into the other.
    """
    trimmed = [16.0, 16.0, 16.0, 16.0, 15.0, 16.0, 15.0, 16.0]
    reference = Reference(float(np.mean(trimmed)), float(np.std(trimmed)), len(trimmed))

    limit = lowest_mean(reference, weight=3, alpha=0.05)

    assert reference.mean == 15.75
    t = scipy.stats.t
    as_published = 15.75 - (15.75 - limit) * t.ppf(0.95, 9) / t.ppf(0.95, 7)
    assert as_published == pytest.approx(15.21, abs=0.005)
    with_both = lowest_mean(reference, weight=3, alpha=0.05, freedom=9)
    assert with_both == pytest.approx(15.21, abs=0.005)


def test_the_reference_of_a_sample_has_the_sample_deviation():
    reference = reference_of([7.0, 8.0, 8.0, 9.0])

    assert (reference.mean, reference.count) == (8.0, 4)
    assert reference.stdev == pytest.approx(np.std([7, 8, 8, 9], ddof=1))


def test_one_more_run_below_the_limit_is_as_unlikely_as_alpha_says():
    """With a sample of one, the limit is the prediction limit of Student."""
    values = [7.0, 8.0, 7.5, 8.0, 9.0, 7.0]
    reference = reference_of(values)

    limit = lowest_mean(reference, weight=1, alpha=0.025)

    scale = np.std(values, ddof=1) * math.sqrt(1 + 1 / 6)
    oracle = scipy.stats.t.interval(0.95, 5, loc=np.mean(values), scale=scale)
    assert limit == pytest.approx(oracle[0])


def test_a_mean_one_evaluation_early_is_rounding_however_sure_the_reference():
    """Ninety of a hundred runs take 8 epochs, ten take 7: three of 7 are chance enough."""
    reference = Reference(7.9, 0.3, 1000)

    limit = lowest_mean(reference, weight=100, alpha=0.01, quantum=1.0)

    assert limit == pytest.approx(6.9)


def test_equal_references_still_scatter_by_rounding_to_their_quantum():
    reference = Reference(8.0, 0.0, 4)
    margin = scipy.stats.t.ppf(0.99, 3) / math.sqrt(12) * math.sqrt(1 + 1 / 4)

    for quantum, lowest in ((0.0, 8.0), (1.0, 8.0 - margin)):
        limit = lowest_mean(reference, weight=1, alpha=0.01, quantum=quantum)
        assert limit == pytest.approx(lowest)


def test_the_limit_is_never_negative():
    assert lowest_mean(Reference(1.0, 50.0, 2), weight=1, alpha=0.001) == 0.0


@pytest.mark.parametrize("null_ratio", [1.0, 1.2, 1.5])
def test_welch_on_log_times_is_that_of_scipy(null_ratio):
    oracle = scipy.stats.ttest_ind(
        np.log(FIRST) - math.log(null_ratio), np.log(SECOND), equal_var=False, alternative="greater"
    )

    gap = welch_of(FIRST, SECOND)

    assert gap.over(null_ratio).p_more == pytest.approx(oracle.pvalue)
    assert gap.degrees_of_freedom == pytest.approx(oracle.df)
    assert gap.ratio == pytest.approx(scipy.stats.gmean(FIRST) / scipy.stats.gmean(SECOND))


def welch_of(first, second):
    return welch(*(log_times(each, quantum=0.0) for each in (first, second)))


def gap_to_a_second(replayed):
    return gap_to_claim(replayed, 1.0, claimed_runs=[1.0], weight=1)


def test_nothing_is_tested_with_a_single_value():
    assert welch_of([1.0], SECOND) is None
    assert two_sided_p(FIRST, [1.0]) is None
    assert gap_to_a_second([0.8]) is None
    assert p_value_of_mean_beyond([99.0], 94.0, direction="higher") is None
    assert paired_gap([(1.0, 2.0)], quantum=FINE) is None
    assert paired_gap([], quantum=FINE) is None


def test_values_without_scatter_are_certain():
    assert welch_of([2.0, 2.0], [1.0, 1.0]).over(1.5).p_more == 0.0
    assert welch_of([1.0, 1.0], [1.0, 1.0]).p_more == 1.0
    assert gap_to_a_second([1.6, 1.6]).over(1.5).p_more == 0.0
    assert gap_to_a_second([1.4, 1.4]).over(1.5).p_more == 1.0
    assert p_value_of_mean_beyond([94.5, 94.5], 94.0, direction="higher") == 0.0
    assert p_value_of_mean_beyond([94.0, 94.0], 94.0, direction="higher") == 1.0


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_mean_beyond_the_limit_is_tested_as_scipy_does(direction):
    values = [94.05, 94.11, 93.98, 94.20, 94.07]
    alternative = "greater" if direction == "higher" else "less"
    oracle = scipy.stats.ttest_1samp(values, 94.0, alternative=alternative)

    p_value = p_value_of_mean_beyond(values, 94.0, direction=direction)

    assert p_value == pytest.approx(oracle.pvalue)


def test_replays_against_a_claim_of_like_scatter_are_a_pooled_t_test():
    """Claimed 1.0 s as mean of two runs whose scatter on the log scale is that of the replays."""
    replayed = [1.9, 2.1]
    claimed = [2.0 / 2.1, 2.0 / 1.9]  # the same logarithms but for the sign and a shift
    claimed_seconds = scipy.stats.gmean(claimed)
    oracle = scipy.stats.ttest_ind(
        np.log(replayed) - math.log(1.5), np.log(claimed), alternative="greater"
    )

    test = gap_to_claim(replayed, claimed_seconds, claimed_runs=claimed, weight=2)

    assert test.over(1.5).p_more == pytest.approx(oracle.pvalue)
    assert test.degrees_of_freedom == 2
    assert test.ratio == pytest.approx(scipy.stats.gmean(replayed) / claimed_seconds)


def test_one_absurd_run_in_a_claim_does_not_widen_the_test():
    def p_value(claimed_runs):
        gap = gap_to_claim([0.85, 0.80, 0.91], 0.2, claimed_runs=claimed_runs, weight=1)
        return gap.over(1.5).p_more

    assert p_value([0.2, 0.2, 900.0]) == pytest.approx(p_value([0.15, 0.2, 0.27]))
    assert p_value([0.2, 0.2, 900.0]) < 0.0025


def test_no_time_at_all_counts_as_the_shortest_a_log_can_tell():
    test = gap_to_claim([0.8, 0.9], 0.0, claimed_runs=[0.0, 0.0], weight=2)

    assert test.ratio == pytest.approx(math.sqrt(0.8 * 0.9) / 0.001)
    assert compare([0.0, 0.0], [0.001, 0.001]).ratio == 1.0
    assert paired_gap([(0.0, 1.0)] * 2, quantum=0.001).ratio == pytest.approx(0.001)


def test_the_share_of_pairs_is_mann_whitneys_u_over_the_pairs():
    first, second = [3.0, 5.0, 5.0, 9.0], [4.0, 5.0, 11.0]
    # scipy counts the pairs in which its first argument is larger, ties half.
    u = scipy.stats.mannwhitneyu(second, first, method="asymptotic").statistic

    assert compare(first, second).p_one_run_faster == pytest.approx(u / 12)
    assert compare([1.0], [2.0]).p_one_run_faster == 1.0
    assert compare([2.0], [2.0]).p_one_run_faster == 0.5


@pytest.mark.parametrize(
    ("first", "second"),
    [([100.0], SECOND_TIMES), (FIRST_TIMES, [100.0]), ([1.0], [2.0]), ([], SECOND_TIMES)],
)
def test_a_single_run_has_a_ratio_and_proves_nothing(first, second):
    found = compare(first, second)
    ratio = scipy.stats.gmean(first) / scipy.stats.gmean(second) if first else None

    assert found.ratio == (ratio and pytest.approx(ratio))
    assert (found.p_one_run_faster is None) == (not first)
    proof = (found.ratio_low, found.p_value, found.p_faster, found.runs_needed)
    assert proof == (None, None, None, None)


def test_runs_that_do_not_scatter_are_told_apart_beyond_the_milliseconds_of_a_log_alone():
    """Welch's statistic is undefined there; rounding to 1 ms has a deviation of 1 ms / sqrt(12)."""
    equal = compare([50.0, 50.0, 50.0], [50.0, 50.0])
    far = compare([50.0, 50.0, 50.0], [51.0, 51.0, 51.0])
    near = compare([50.0, 50.0], [50.0004, 50.0004])

    assert (equal.ratio, equal.p_value, equal.p_faster) == (1.0, 1.0, 0.5)
    assert 0.0 < far.p_value < 1e-6
    # t = 0.4 ms / (1 ms / sqrt(12)) with 2 degrees of freedom.
    assert near.p_value == pytest.approx(2 * scipy.stats.t.sf(0.4 * math.sqrt(12), 2), rel=1e-4)


def exact_power(count, gap, deviation):
    """Of a two-sided t-test of two equal samples: by the noncentral t distribution."""
    freedom = 2 * (count - 1)
    limit = scipy.stats.t.ppf(0.975, freedom)
    noncentral = scipy.stats.nct(freedom, gap / deviation * math.sqrt(count / 2))
    return float(noncentral.sf(limit) + noncentral.cdf(-limit))


@pytest.mark.parametrize("effect", [0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 3.0])
def test_the_runs_needed_are_within_one_of_those_with_the_exact_power(effect):
    """Two logs at a distance of 2 d / sqrt(2) have the deviation d."""
    deviation = 0.01
    half = deviation / math.sqrt(2)
    first = [math.exp(4.0 - half), math.exp(4.0 + half)]
    second = [s * math.exp(effect * deviation) for s in first]
    oracle = next(n for n in range(2, 1000) if exact_power(n, effect * deviation, deviation) >= 0.8)

    needed = compare(first, second).runs_needed

    assert abs(needed - oracle) <= 1
    if effect <= 1.0:
        assert needed == oracle


def test_the_runs_needed_are_two_at_least_and_absent_for_a_hopeless_gap():
    assert compare([1.0, 1000.0], [1.0, 1001.0]).runs_needed is None
    assert compare([50.0] * 3, [50.0] * 2).runs_needed is None
    assert compare(FIRST_TIMES, [s * 100 for s in FIRST_TIMES]).runs_needed == 2


def test_with_unequal_scatter_more_runs_are_needed_than_the_equal_formula_says():
    """One side without scatter: the freedom is that of the other alone, so it is a z^2 / 2."""
    logs = [4.0 - 0.01 / math.sqrt(2), 4.0 + 0.01 / math.sqrt(2)]
    first = [math.exp(x) for x in logs]
    second = [math.exp(4.01)] * 2
    z = scipy.stats.norm.ppf([0.975, 0.8])

    by_hand = z.sum() ** 2 * 0.01**2 / 0.01**2 + z[0] ** 2 / 2

    assert compare(first, second).runs_needed == math.ceil(by_hand) == 10


@given(RUNS, RUNS)
def test_comparisons_are_scipys_and_symmetric(first, second):
    one, other = compare(first, second), compare(second, first)
    assert one.ratio * other.ratio == pytest.approx(1.0)
    assert one.p_faster + other.p_faster == pytest.approx(1.0)
    assert one.p_one_run_faster == pytest.approx(1 - other.p_one_run_faster)
    assert one.runs_needed == other.runs_needed
    if min(np.log(runs).std() for runs in (first, second)) < 0.005:
        return  # At the resolution of a log Welch's test needs another spread.
    oracle = scipy.stats.ttest_ind(np.log(first), np.log(second), equal_var=False)
    interval = oracle.confidence_interval(0.95)
    assert one.p_value == pytest.approx(oracle.pvalue, rel=1e-4, abs=1e-9)
    assert one.ratio == pytest.approx(scipy.stats.gmean(first) / scipy.stats.gmean(second))
    sided = oracle.pvalue / 2 if oracle.statistic < 0 else 1 - oracle.pvalue / 2
    assert one.p_faster == pytest.approx(1 - sided, rel=1e-4, abs=1e-9)
    ends = math.log(one.ratio_low), math.log(one.ratio_high)
    assert ends == pytest.approx((interval.low, interval.high), rel=1e-4, abs=1e-4)


def test_an_interval_too_wide_for_a_number_ends_at_a_large_one():
    found = welch_of([1.0, 1e99], [1.0, 1e99]).interval()
    gap = paired_gap([(1e-3, 1e300), (1e300, 1e-3)], quantum=FINE)

    assert 1e300 < found.high < math.inf
    assert math.isfinite(gap.high)
    assert gap.low >= 0.0


P_VALUES = st.lists(st.floats(0.0, 1.0), max_size=6)


def by_closed_testing(p_values):
    """The adjusted p-value is the largest Bonferroni p-value of any set that holds the test."""
    places = range(len(p_values))
    sets = [c for size in range(1, len(p_values) + 1) for c in combinations(places, size)]
    return [
        max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets if place in s)
        for place in places
    ]


@given(P_VALUES)
@example([])
@example([0.04])
def test_it_is_the_closure_of_bonferronis_test(p_values):
    assert holm(p_values) == pytest.approx(by_closed_testing(p_values))


def test_exchanging_the_sides_turns_the_gap_over():
    pairs = [(1.0, 1.3), (1.1, 1.2), (0.9, 1.25)]
    turned = paired_gap([(second, first) for first, second in pairs], quantum=FINE)
    gap = paired_gap(pairs, quantum=FINE).turned()

    assert (gap.ratio, gap.low, gap.high, gap.p_less, gap.pairs) == pytest.approx(
        (turned.ratio, turned.low, turned.high, turned.p_less, turned.pairs)
    )


@pytest.mark.parametrize(("effect", "pairs"), [(0.2, 199), (0.5, 34), (0.8, 15)])
def test_counts_needed_are_those_of_the_published_tables(effect, pairs):
    """Small, medium and large effects at p = 0.05 and power 0.8 (G*Power, matched pairs)."""
    assert count_needed(1 / effect, sides=1.0, alpha=0.05) == pairs


SPREAD = Spread(0.05, 20)
BEHIND = RunsBehind(3, 1, SPREAD, convergence_values=3)


def row(name, rank, figure, **other):
    return Place(name, rank, False, figure, None), replace(BEHIND, **other)


ROW = row("a", 1, 10.0)


def test_visible_gap_is_that_of_both_means():
    """Worked by hand: t(0.975, 20) = 2.085963, both means of three runs at 5 %."""
    gap = visible_gap(BEHIND, BEHIND)
    assert gap == pytest.approx(math.expm1(2.085963 * 0.05 * math.sqrt(2 * 0.449)), rel=1e-6)


def numbers_of(*rows):
    return [(each.rank, each.not_separated_from) for each in separate(rows)]


def test_a_close_row_keeps_its_number_and_says_what_could_not_be_seen():
    assert numbers_of(ROW, row("b", 2, 10.3)) == [(1, None), (2, 1)]
    _, second = separate([ROW, row("b", 2, 10.3)])
    assert second.visible_gap_percent == pytest.approx(10.39, abs=0.01)


def test_a_row_beyond_the_gap_leads_the_next_stretch():
    found = numbers_of(ROW, row("b", 2, 12.0), row("c", 3, 12.1))
    assert found == [(1, None), (2, None), (3, 2)]


@pytest.mark.parametrize(
    ("fewer", "number"), [({}, 1), ({"runs": 4}, 2), ({"convergence_values": 2}, 2)]
)
def test_five_runs_and_three_values_on_both_sides_share_a_number(fewer, number):
    second = {"runs": 5} | fewer
    found = list(separate([row("a", 1, 10.0, runs=5), row("b", 2, 10.1, **second)]))
    assert [each.rank for each in found] == [1, number]
    assert [each.tied for each in found] == [number == 1] * 2


def test_nobody_shares_a_number_past_a_row_that_may_not():
    """Else the third row, slower than the second, would have the better number."""
    rows = [row("a", 1, 10.0, runs=5), row("b", 2, 10.1, runs=3), row("c", 3, 10.2, runs=5)]
    found = list(separate(rows))
    assert [each.rank for each in found] == [1, 2, 3]
    assert not any(each.tied for each in found)


@pytest.mark.parametrize("changes", [{"spread": None}, {"runs": 1}])
def test_rows_without_a_spread_or_of_single_runs_are_not_compared(changes):
    found = numbers_of(row("a", 1, 10.0, **changes), row("b", 2, 10.0, **changes))
    assert found == [(1, None), (2, None)]


@pytest.mark.parametrize("probability", [0.6, 0.975, 0.9999, 1 - 2.5e-5, 0.025])
def test_quantiles_of_student_t_are_those_of_scipy(probability):
    for freedom in (1, 2, 3, 4, 9, 40, 199, 200, 201, 2.5):
        expected = scipy.stats.t.ppf(probability, freedom)
        assert t_quantile(probability, freedom) == pytest.approx(expected, rel=1e-9)
