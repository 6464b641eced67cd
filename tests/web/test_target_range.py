import pytest

from web.board_table import target_range


def target(value: float, unit: str = "percent", direction: str = "higher") -> dict[str, object]:
    return {"metric": "m", "value": value, "unit": unit, "direction": direction}


def test_a_slider_ends_at_the_best_run_and_goes_four_times_as_far_the_easy_way() -> None:
    slide = target_range(target(94.0), (90.0, 96.0))
    assert (slide.low, slide.high, slide.step) == (86.0, 96.0, 0.1)
    loss = target_range(target(0.925, "nats/token", "lower"), (0.915, 0.95))
    assert (loss.low, loss.high, loss.step) == (0.915, 0.965, 0.0005)


@pytest.mark.parametrize("qualities", [None, (10.0, 20.0)])
def test_a_board_without_a_run_at_the_target_has_a_range_too(
    qualities: tuple[float, float] | None,
) -> None:
    slide = target_range(target(99.5), qualities)
    assert slide.low < 99.5 <= slide.high <= 100.0
    assert slide.step > 0


def test_a_target_of_nothing_can_be_slid() -> None:
    slide = target_range(target(0.0, "loss", "lower"), None)
    assert 0.0 <= slide.low <= slide.high
