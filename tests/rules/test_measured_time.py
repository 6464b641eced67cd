"""The olympic mean of sealed runs, and the interval of that very figure."""

import math

import pytest

from finishline.rules.scoring.measured_time import (
    Spread,
    dropped_at_each_end,
    interval_of,
    measured_seconds,
    pooled_spread,
    resolution_of,
    variance_of_mean,
)


@pytest.mark.parametrize(
    ("runs", "dropped"), [(3, 1), (4, 1), (10, 1), (14, 1), (15, 2), (20, 2), (25, 3), (30, 3)]
)
def test_a_tenth_is_dropped_at_each_end_and_at_least_one(runs: int, dropped: int) -> None:
    assert dropped_at_each_end(runs) == dropped


def test_three_runs_are_measured_by_the_middle_one() -> None:
    assert measured_seconds([4.0, 2.0, 9.0]) == 4.0


def test_two_runs_are_no_measurement() -> None:
    assert measured_seconds([4.0, 2.0]) is None


def test_a_miss_counts_as_the_slowest_and_two_of_three_leave_no_time() -> None:
    assert measured_seconds([4.0, None, 2.0]) == 4.0
    assert measured_seconds([4.0, None, None]) is None


def test_ten_runs_drop_one_at_each_end() -> None:
    assert measured_seconds([1.0, *[5.0] * 8, 100.0]) == 5.0


@pytest.mark.parametrize(("runs", "c"), [(3, 0.449), (4, 0.298), (5, 0.227), (10, 0.105)])
def test_variance_of_the_olympic_mean_is_that_of_trimmed_means(runs: int, c: float) -> None:
    assert variance_of_mean(runs) == c


def test_variance_between_the_known_numbers_is_one_over_runs_less_one() -> None:
    assert variance_of_mean(6) == 1 / 5
    assert variance_of_mean(1) is None


def test_interval_is_symmetric_on_the_log_scale() -> None:
    """Worked by hand: t(0.975, 9) = 2.262157, s = 5 %, c = 0.449 at three runs."""
    interval = interval_of(10.0, runs=3, spread=Spread(0.05, 9))
    assert interval is not None
    half = math.exp(2.262157 * 0.05 * math.sqrt(0.449))
    assert interval.high == pytest.approx(10.0 * half, rel=1e-6)
    assert interval.low == pytest.approx(10.0 / half, rel=1e-6)


def test_no_interval_without_a_spread() -> None:
    assert interval_of(10.0, runs=3, spread=None) is None
    assert interval_of(10.0, runs=1, spread=Spread(0.05, 9)) is None


def test_spread_is_within_pools_and_needs_ten_runs() -> None:
    """Two pools far apart scatter no more for it: each holds x and x * e^0.2 five times."""
    pool = [1.0, math.exp(0.2)] * 3
    spread = pooled_spread([pool, [100 * seconds for seconds in pool]])
    assert spread is not None
    assert spread.degrees_of_freedom == 10
    assert spread.stdev == pytest.approx(math.sqrt(12 * 0.01 / 10))
    assert pooled_spread([pool, pool[:3]]) is None
    assert pooled_spread([[1.0]] * 10) is None


def test_spread_is_never_below_the_resolution() -> None:
    """Equal times of ten seconds read off a step of one second: 0.1 / sqrt(12)."""
    resolution = resolution_of(step_seconds=1.0, seconds=10.0)
    assert resolution == pytest.approx(0.0288675, rel=1e-5)
    assert Spread(0.0, 9).at_least(resolution).stdev == resolution
    assert Spread(0.5, 9).at_least(resolution).stdev == 0.5
    assert resolution_of(step_seconds=None, seconds=10.0) == 0.0
