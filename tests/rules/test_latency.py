"""Percentiles, drift and cost of items timed one after the other."""

import random

import numpy as np
import pytest
from scipy.stats import binom

from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.scoring.latency import (
    latency_cost_usd_per_10000,
    latency_figures,
    latency_result,
    median_lower_bound,
    why_absent,
)

TARGET = QualityTarget(metric="top1Accuracy", value=97.5, unit="percent", direction="higher")


def some_times(count: int) -> list[float]:
    drawn = random.Random(7)
    return [drawn.lognormvariate(0.0, 0.3) for _ in range(count)]


@pytest.mark.parametrize("count", [662, 1000, 1001])
def test_percentiles_are_numpys_inverted_distribution_function(count: int) -> None:
    times = some_times(count)
    found = latency_figures(times, warmup_items=0)

    expected = np.percentile(times, [50, 90, 99], method="inverted_cdf")
    assert [found.p50_ms, found.p90_ms, found.p99_ms] == pytest.approx(list(expected), rel=1e-12)
    assert found.mean_ms == pytest.approx(np.mean(times))


@pytest.mark.parametrize(
    ("count", "has_p90", "has_p99"),
    [(63, False, False), (64, True, False), (661, True, False), (662, True, True)],
)
def test_a_percentile_needs_its_samples(count: int, has_p90: bool, has_p99: bool) -> None:
    found = latency_figures([1.0] * count, warmup_items=0)

    assert (found.p90_ms is not None, found.p99_ms is not None) == (has_p90, has_p99)
    assert (why_absent(count, 90) is None, why_absent(count, 99) is None) == (has_p90, has_p99)


def test_an_absent_percentile_says_how_many_samples_there_are() -> None:
    assert why_absent(599, 99) == "not enough samples: 599 of 662"


def test_the_warm_up_is_dropped() -> None:
    found = latency_figures([900.0, 800.0, 2.0, 2.0, 4.0], warmup_items=2)

    assert (found.samples, found.mean_ms, found.p50_ms) == (3, pytest.approx(8 / 3), 2.0)
    assert found.items_per_second == pytest.approx(375.0)  # 3 items in 8 ms


def test_drift_is_the_second_half_against_the_first() -> None:
    assert latency_figures([99.0, 2.0, 2.0, 3.0, 3.0], warmup_items=1).drift_percent == (
        pytest.approx(50.0)
    )
    assert latency_figures([4.0, 4.0, 3.0, 3.0], warmup_items=0).drift_percent == (
        pytest.approx(-25.0)
    )
    assert latency_figures([1.0, 2.0, 3.0, 4.0], warmup_items=0).drift_percent == (
        pytest.approx(200.0)  # the lower middle of either half: 1 and 3
    )
    assert latency_figures([4.0, 5.0], warmup_items=0).drift_percent == pytest.approx(25.0)
    assert latency_figures([4.0], warmup_items=0).drift_percent is None


def test_cost_is_that_of_ten_thousand_items_one_at_a_time() -> None:
    # 3.6 ms x 10,000 = 36 s, a hundredth of an hour.
    assert latency_cost_usd_per_10000(3.6, 2.0) == pytest.approx(0.02)
    assert latency_cost_usd_per_10000(3.6, None) is None


@pytest.mark.parametrize(("quality", "eligible"), [(97.5, True), (97.4, False)])
def test_only_a_model_at_the_target_is_eligible(quality: float, eligible: bool) -> None:
    found = latency_result(
        [3.6] * 3, warmup_items=1, quality=quality, target=TARGET, price_usd_per_hour=2.0
    )

    assert (found.eligible, found.quality, found.figures.samples) == (eligible, quality, 2)
    assert found.cost_usd_per_10000 == pytest.approx(0.02)


@pytest.mark.parametrize("times", [[1.0, 1.0], [1.0, 1.0, 0.0], [1.0, 1.0, float("nan")]])
def test_no_item_after_the_warm_up_or_one_without_a_time_is_refused(times: list[float]) -> None:
    with pytest.raises(RuleError, match="warm-up"):
        latency_figures(times, warmup_items=2)


@pytest.mark.parametrize("count", [10, 64, 599, 1100])
def test_the_bound_of_the_median_is_the_binomial_one(count: int) -> None:
    times = some_times(count)
    # Of the ranks k with P(fewer than k of n coins show heads) <= alpha the largest.
    rank = max(k for k in range(count + 1) if binom.cdf(k - 1, count, 0.5) <= 0.01)

    assert median_lower_bound(times, alpha=0.01) == sorted(times)[rank - 1]


def test_the_median_of_few_values_has_no_bound() -> None:
    assert median_lower_bound([1.0] * 6, alpha=0.01) is None  # 2 ** -6 is more than 0.01
    assert median_lower_bound([1.0] * 7, alpha=0.01) == 1.0
