"""Figures as the command writes them."""

import pytest

from finishline.cli.tables import cost_text, number_text, quality_text, seconds_text


def test_a_cost_keeps_digits_that_tell_something() -> None:
    assert [cost_text(usd) for usd in (None, 0.0, 2.0, 0.25, 0.000012)] == [
        "–", "$0.000000", "$2.00", "$0.250000", "$0.000012",
    ]  # fmt: skip
    assert cost_text(1e-9) == "$1e-09"


@pytest.mark.parametrize("figure", [1.5e15, 1e300, -1e308])
def test_no_figure_fills_a_terminal_with_digits(figure: float) -> None:
    assert number_text(figure, unit=" %") == f"{figure:.3g} %"
    assert quality_text(figure, "percent") == f"{figure:.3g} %"
    assert quality_text(figure, "loss", target=figure * 2) == f"{figure:.3g}"
    assert seconds_text(abs(figure)) == f"{abs(figure):.3g} s"
    assert cost_text(abs(figure)) == f"${abs(figure):.3g}"
