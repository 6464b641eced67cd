"""Comparisons of two programs that were trained in turn."""

import pytest

from finishline.rules.statistics.paired import compare_pairs, compare_schedule
from perf.first_places import compare_programs

# 1 - Phi(2.55 (10 / k)^0.4) after the fourth to the tenth pair.
LEVELS = (0.00012, 0.00038, 0.00088, 0.0016, 0.0027, 0.0039, 0.0054)


def test_levels_of_ten_pairs():
    schedule = compare_schedule(10)
    assert list(schedule.levels) == [4, 5, 6, 7, 8, 9, 10]
    assert tuple(schedule.levels.values()) == pytest.approx(LEVELS, rel=0.05)
    assert list(compare_schedule(3).levels) == [3]


def pairs(ratios, *, seconds=10.0):
    return [(seconds, seconds * ratio) for ratio in ratios]


@pytest.mark.parametrize(
    ("ratios", "faster", "is_over"),
    [
        ([0.8, 0.801, 0.799], None, False),  # The first test is after four pairs.
        ([0.8, 0.801, 0.799, 0.8], "b", True),
        ([1.25, 1.251, 1.249, 1.25], "a", True),
        ([0.8, 1.2, 0.9, 1.1], None, False),
        ([0.9, 1.1] * 5, None, True),
    ],
)
def test_who_is_faster(ratios, faster, is_over):
    found = compare_pairs(pairs(ratios), compare_schedule(10))
    assert (found.faster, found.is_over) == (faster, is_over)


@pytest.mark.parametrize(
    ("times", "faster", "is_over", "missed"),
    [
        ([(None, 1.0)], None, False, (1, 0)),
        ([(None, 1.0), (1.0, 1.0), (None, 1.0)], "b", True, (2, 0)),
        ([(1.0, None)] * 3, "a", True, (0, 3)),
        ([(None, None)] * 3, None, True, (3, 3)),
        ([(None, 1.0), (1.0, None), (1.0, 1.1)], None, False, (1, 1)),
    ],
)
def test_runs_that_miss_the_target(times, faster, is_over, missed):
    found = compare_pairs(times, compare_schedule(10))
    assert (found.faster, found.is_over, found.missed) == (faster, is_over, missed)
    assert is_over is (found.gap is None) or len(times) == 1


def test_pairs_that_are_missing_would_tell_them_apart():
    found = compare_pairs(pairs([0.93, 1.01] * 5), compare_schedule(10))
    assert found.faster is None
    whole = 10 + found.pairs_missing
    assert 10 < whole < 25
    again = compare_pairs(pairs(([0.93, 1.01] * 20)[:whole]), compare_schedule(whole))
    assert again.faster == "b"
    assert compare_pairs(pairs([0.8] * 4), compare_schedule(10)).pairs_missing is None


def test_equal_programs_are_seldom_different():
    found = compare_programs(0.0, trials=1000)
    assert 5 <= sum(each.faster is not None for each in found) <= 30  # 18 are expected.
    found = compare_programs(0.1, trials=200)
    assert sum(each.faster == "b" for each in found) >= 165  # 182 are expected.
