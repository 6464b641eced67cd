import pytest

from finishline.rules.benchmarks.prices import (
    inference_cost_usd_per_10000,
    system_price_usd_per_hour,
    training_cost_usd,
)


def test_cost_is_hours_to_the_target_times_the_price_per_hour() -> None:
    # dawn-bench-entries, CIFAR10/train/BAIDU-USA-GAIT_BaiduNet9P_8GV100: 0.01234526 h at
    # 8.5058 USD/h is shown as 0.11 USD.
    cost = training_cost_usd(44.442936, 8.5058)

    assert cost == pytest.approx(0.10500631, abs=1e-8)


@pytest.mark.parametrize(("seconds", "price"), [(None, 3.06), (44.0, None), (None, None)])
def test_without_a_time_or_a_price_there_is_no_cost(
    seconds: float | None, price: float | None
) -> None:
    assert training_cost_usd(seconds, price) is None


def test_a_free_system_costs_nothing_which_is_not_the_same_as_unknown() -> None:
    assert training_cost_usd(44.0, 0.0) == 0.0


def test_inference_is_priced_by_ten_thousand_items() -> None:
    assert inference_cost_usd_per_10000(1.5e-6) == pytest.approx(0.015)
    assert inference_cost_usd_per_10000(None) is None


def test_a_system_costs_as_much_as_its_accelerators_and_without_any_as_one() -> None:
    assert system_price_usd_per_hour(2.5, 8) == 20.0
    assert system_price_usd_per_hour(2.5, 0) == 2.5
