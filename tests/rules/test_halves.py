"""Two halves: the second half of the test items confirms a set of runs, or does not."""

import numpy as np
import pytest
from scipy import stats

from finishline.rules.statistics.gaps import judge_halves
from perf.statistics import measured_share

# The examples of the rule's docstring: second halves, outcome, points missing, p-value by scipy.
EXAMPLES = [
    ((96.9, 96.4, 97.0, 96.6, 96.6), "confirmed", 0.0),
    ((96.3, 96.5, 96.4, 96.6, 96.2), "short", 0.1),
    ((95.8, 96.0, 95.9, 96.1, 95.7), "disagrees", 0.6),
]


@pytest.mark.parametrize(("values", "outcome", "missing"), EXAMPLES)
def test_the_mean_of_the_second_halves_is_held_against_the_target(values, outcome, missing):
    found = judge_halves(values, target=96.5, direction="higher")

    assert (found.outcome, found.missing) == (outcome, pytest.approx(missing))
    assert found.mean == pytest.approx(sum(values) / 5)
    if outcome == "confirmed":
        assert found.p_value is None
    else:
        expected = stats.ttest_1samp(values, 96.5, alternative="less").pvalue
        assert found.p_value == pytest.approx(expected)


@pytest.mark.parametrize(("values", "outcome", "missing"), EXAMPLES)
def test_a_loss_is_judged_as_its_mirror_image(values, outcome, missing):
    losses = [100 - value for value in values]

    found = judge_halves(losses, target=3.5, direction="lower")

    assert (found.outcome, found.missing) == (outcome, pytest.approx(missing))


def test_a_mean_exactly_at_the_target_confirms():
    assert judge_halves([96.0, 97.0], target=96.5, direction="higher").outcome == "confirmed"
    assert judge_halves([0.5, 0.75], target=0.625, direction="lower").outcome == "confirmed"


def test_one_run_below_the_target_is_short_without_a_test():
    found = judge_halves([10.0], target=96.5, direction="higher")

    assert (found.outcome, found.missing, found.p_value) == ("short", 86.5, None)


def test_equal_runs_below_the_target_disagree():
    assert judge_halves([96.0] * 5, target=96.5, direction="higher").outcome == "disagrees"


def test_relabelling_below_the_target_is_measured_at_most_once_in_a_hundred():
    below = np.full((1, 20), 96.3)
    assert measured_share(below, trials=1000) <= 0.01
    # With fewer items a half, luck passes more often.
    assert measured_share(below, trials=1000, items=2_000) > 0.02


def test_an_entry_above_the_target_is_measured_in_nine_of_ten():
    assert measured_share(np.full((1, 1), 96.9), trials=1000) >= 0.9


def test_runs_like_the_references_are_measured():
    """Means of the reference at 80, 90 and 100 percent of its steps, scattered as its draws are."""
    scatter = np.random.default_rng(1).normal(0, 0.3, (40, 1))
    curves = np.array([[93.7, 95.6, 97.5]]) + scatter
    assert measured_share(curves, trials=1000) >= 0.99


def test_two_missed_runs_of_five_are_never_measured():
    half_miss = np.array([[50.0], [99.0]])
    share = measured_share(half_miss, trials=1000)
    assert share == pytest.approx(6 / 32, abs=0.05)  # At most one of five misses.
