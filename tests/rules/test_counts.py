"""So many of something."""

import pytest

from finishline.rules.text import count_text


@pytest.mark.parametrize(
    ("number", "shown"), [(0, "0 runs"), (1, "1 run"), (2, "2 runs"), (1688, "1,688 runs")]
)
def test_one_of_something_is_told_apart_from_several(number: int, shown: str) -> None:
    assert count_text(number, "run") == shown


def test_a_word_may_take_more_than_an_s() -> None:
    assert [count_text(number, "was", "were") for number in (1, 2)] == ["1 was", "2 were"]
