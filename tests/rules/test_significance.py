"""scipy.stats is the oracle: its tests are computed another way than the closed forms here."""

import math

import numpy as np
import pytest
import scipy.stats

from finishline.rules.statistics.significance import (
    Reference,
    lowest_mean,
    p_value_of_mean_beyond,
    reference_of,
    slower_than_claimed,
    welch_slower,
)

FIRST = [1.02, 0.97, 1.10, 1.05]
SECOND = [0.81, 0.90, 0.85, 0.79, 0.88]


def test_the_reference_of_a_sample_has_the_sample_deviation() -> None:
    reference = reference_of([7.0, 8.0, 8.0, 9.0])

    assert (reference.mean, reference.count) == (8.0, 4)
    assert reference.stdev == pytest.approx(np.std([7, 8, 8, 9], ddof=1))


def test_the_closed_form_of_the_limit_gives_the_worked_example_of_mlperf() -> None:
    """Source: MLPerf training_rules.adoc, RCP appendix, batch size 128.

    There the deviation is 0.433 (population, trimmed) and the degrees of freedom are those of
    both samples, 8 + 3 - 2 = 9, so the limit is 15.21. Here the degrees of freedom are those of
    the reference alone, 7; scipy's quantiles convert the one into the other.
    """
    trimmed = [16.0, 14.0, 16.0, 17.0, 16.0, 16.0, 15.0, 16.0, 15.0, 16.0]
    trimmed.remove(14.0)
    trimmed.remove(17.0)
    reference = Reference(float(np.mean(trimmed)), float(np.std(trimmed)), len(trimmed))

    limit = lowest_mean(46 / 3, reference, weight=3, alpha=0.05)

    assert reference.mean == 15.75
    t = scipy.stats.t
    as_published = 15.75 - (15.75 - limit.lowest) * t.ppf(0.95, 9) / t.ppf(0.95, 7)
    assert as_published == pytest.approx(15.21, abs=0.005)


def test_one_more_run_below_the_limit_is_as_unlikely_as_alpha_says() -> None:
    """With a sample of one, the limit is the prediction limit of Student."""
    values = [7.0, 8.0, 7.5, 8.0, 9.0, 7.0]
    reference = reference_of(values)

    limit = lowest_mean(7.0, reference, weight=1, alpha=0.025)

    scale = np.std(values, ddof=1) * math.sqrt(1 + 1 / 6)
    oracle = scipy.stats.t.interval(0.95, 5, loc=np.mean(values), scale=scale)
    assert limit.lowest == pytest.approx(oracle[0])
    assert not limit.is_too_low


def test_too_low_is_below_the_limit_not_at_it() -> None:
    reference = Reference(8.0, 0.5, 40)
    limit = lowest_mean(8.0, reference, weight=2, alpha=0.01).lowest

    assert not lowest_mean(limit, reference, weight=2, alpha=0.01).is_too_low
    below = math.nextafter(limit, 0)
    assert lowest_mean(below, reference, weight=2, alpha=0.01).is_too_low


def test_a_mean_of_more_runs_may_stray_less() -> None:
    reference = Reference(8.0, 0.5, 40)

    limits = [lowest_mean(8.0, reference, weight=w, alpha=0.01).lowest for w in (1, 2, 8)]

    assert limits == sorted(limits)
    assert limits[2] - limits[0] > 0.5


def test_a_mean_one_evaluation_early_is_rounding_however_sure_the_reference() -> None:
    """Ninety of a hundred runs take 8 epochs, ten take 7: three of 7 are chance enough."""
    reference = Reference(7.9, 0.3, 1000)

    limit = lowest_mean(7.0, reference, weight=100, alpha=0.01, quantum=1.0)

    assert limit.lowest == pytest.approx(6.9)
    assert not limit.is_too_low


def test_equal_references_still_scatter_by_rounding_to_their_quantum() -> None:
    reference = Reference(8.0, 0.0, 4)

    assert lowest_mean(8.0, reference, weight=1, alpha=0.01).lowest == 8.0
    rounded = lowest_mean(8.0, reference, weight=1, alpha=0.01, quantum=1.0).lowest
    margin = scipy.stats.t.ppf(0.99, 3) / math.sqrt(12) * math.sqrt(1 + 1 / 4)
    assert rounded == pytest.approx(8.0 - margin)


def test_the_limit_is_never_negative() -> None:
    assert lowest_mean(1.0, Reference(1.0, 50.0, 2), weight=1, alpha=0.001).lowest == 0.0


@pytest.mark.parametrize("null_ratio", [1.0, 1.2, 1.5])
def test_welch_on_log_times_is_that_of_scipy(null_ratio: float) -> None:
    oracle = scipy.stats.ttest_ind(
        np.log(FIRST) - math.log(null_ratio), np.log(SECOND), equal_var=False, alternative="greater"
    )

    test = welch_slower(FIRST, SECOND, null_ratio=null_ratio)

    assert test is not None
    assert test.p_slower == pytest.approx(oracle.pvalue)
    assert test.degrees_of_freedom == pytest.approx(oracle.df)
    assert test.ratio == pytest.approx(scipy.stats.gmean(FIRST) / scipy.stats.gmean(SECOND))


def test_welch_takes_two_values_each() -> None:
    assert welch_slower([1.0], SECOND) is None
    assert welch_slower(FIRST, [1.0]) is None


def test_welch_without_any_scatter_is_certain() -> None:
    slower = welch_slower([2.0, 2.0], [1.0, 1.0], null_ratio=1.5)
    equal = welch_slower([1.0, 1.0], [1.0, 1.0])

    assert slower is not None
    assert equal is not None
    assert (slower.p_slower, equal.p_slower) == (0.0, 1.0)


@pytest.mark.parametrize("direction", ["higher", "lower"])
def test_a_mean_beyond_the_limit_is_tested_as_scipy_does(direction: str) -> None:
    values = [94.05, 94.11, 93.98, 94.20, 94.07]
    alternative = "greater" if direction == "higher" else "less"
    oracle = scipy.stats.ttest_1samp(values, 94.0, alternative=alternative)

    p_value = p_value_of_mean_beyond(values, 94.0, direction=direction)  # type: ignore[arg-type]

    assert p_value == pytest.approx(oracle.pvalue)


def test_a_single_value_proves_no_mean_and_equal_values_are_certain() -> None:
    assert p_value_of_mean_beyond([99.0], 94.0, direction="higher") is None
    assert p_value_of_mean_beyond([94.5, 94.5], 94.0, direction="higher") == 0.0
    assert p_value_of_mean_beyond([94.0, 94.0], 94.0, direction="higher") == 1.0


def test_replays_against_a_claim_of_like_scatter_are_a_pooled_t_test() -> None:
    """Claimed 1.0 s as mean of two runs whose scatter on the log scale is that of the replays."""
    replayed = [1.9, 2.1]
    claimed = [2.0 / 2.1, 2.0 / 1.9]  # the same logarithms but for the sign and a shift
    claimed_seconds = scipy.stats.gmean(claimed)
    oracle = scipy.stats.ttest_ind(
        np.log(replayed) - math.log(1.5), np.log(claimed), alternative="greater"
    )

    test = slower_than_claimed(
        replayed, claimed_seconds, claimed_runs=claimed, weight=2, tolerated_ratio=1.5
    )

    assert test is not None
    assert test.p_slower == pytest.approx(oracle.pvalue)
    assert test.degrees_of_freedom == 2
    assert test.ratio == pytest.approx(scipy.stats.gmean(replayed) / claimed_seconds)


def test_one_absurd_run_in_a_claim_does_not_widen_the_test() -> None:
    replayed = [0.85, 0.80, 0.91]

    def p_value(claimed_runs: list[float]) -> float:
        test = slower_than_claimed(
            replayed, 0.2, claimed_runs=claimed_runs, weight=1, tolerated_ratio=1.5
        )
        assert test is not None
        return test.p_slower

    assert p_value([0.2, 0.2, 900.0]) == pytest.approx(p_value([0.15, 0.2, 0.27]))
    assert p_value([0.2, 0.2, 900.0]) < 0.0025


def test_a_claim_of_no_time_at_all_is_compared_at_the_shortest_time_a_log_can_tell() -> None:
    test = slower_than_claimed(
        [0.8, 0.9], 0.0, claimed_runs=[0.0, 0.0], weight=2, tolerated_ratio=1.5
    )

    assert test is not None
    assert test.ratio == pytest.approx(math.sqrt(0.8 * 0.9) / 0.001)


def test_a_single_replay_is_not_compared() -> None:
    assert (
        slower_than_claimed([0.8], 0.8, claimed_runs=[0.8, 0.8], weight=2, tolerated_ratio=1.5)
        is None
    )


def test_replays_without_scatter_are_slower_only_beyond_the_tolerance() -> None:
    def p_value(replayed: float) -> float:
        test = slower_than_claimed(
            [replayed, replayed], 1.0, claimed_runs=[1.0], weight=1, tolerated_ratio=1.5
        )
        assert test is not None
        return test.p_slower

    assert (p_value(1.4), p_value(1.6)) == (1.0, 0.0)
