"""Speed-up of a package over another, in pairs of equal seed and data."""

import pytest

from finishline.rules.trainings.speed_up import speed_up

PACKAGE = [1.0, 1.1, 0.9, 1.0]
REFERENCE = [2.0, 2.1, 1.9, 2.3]


def test_the_ratio_has_the_interval_of_the_paired_t_test_on_log_seconds():
    found = speed_up(PACKAGE, REFERENCE)

    # scipy 1.17.1: exp of ttest_1samp(log(REFERENCE) - log(PACKAGE), 0) and its interval
    assert found.ratio == pytest.approx(2.075027626484739, rel=1e-6)
    assert (found.low, found.high) == pytest.approx((1.8270280016451, 2.356690563471331), rel=1e-6)
    assert found.p_value == pytest.approx(0.000358848265449786, rel=1e-6)
    assert found.pairs == 4


def test_the_other_way_round_it_is_the_inverse():
    found, inverse = speed_up(PACKAGE, REFERENCE), speed_up(REFERENCE, PACKAGE)
    assert inverse.ratio == pytest.approx(1 / found.ratio)
    assert inverse.low == pytest.approx(1 / found.high)


def test_a_miss_on_either_side_leaves_no_ratio_and_neither_does_one_pair():
    assert speed_up([*PACKAGE, None], [*REFERENCE, 2.0]) is None
    assert speed_up([*PACKAGE, 1.0], [*REFERENCE, None]) is None
    assert speed_up([1.0], [2.0]) is None
