import pytest

from web.target_label import LabelPlace, label_place

UNDER_RIGHT, OVER_RIGHT = LabelPlace("end", 14), LabelPlace("end", -5)
UNDER_LEFT, OVER_LEFT = LabelPlace("start", 14), LabelPlace("start", -5)
RISING = [(0.0, 90.0), (50.0, 60.0), (95.0, 5.0)]


@pytest.mark.parametrize(
    ("target_at", "curves", "ticks", "place"),
    [
        (50, [], [], UNDER_RIGHT),
        (10, [RISING], [], UNDER_LEFT),
        (10, [RISING], [15], OVER_LEFT),
        (10, [[(0, 14), (100, 14)]], [], OVER_RIGHT),
        (10, [[(90, 12)]], [], OVER_RIGHT),
        (2, [[(90, 12)]], [], UNDER_RIGHT),
        (97, [], [], OVER_RIGHT),
    ],
)
def test_words_of_a_target_stand_where_no_curve_is(target_at, curves, ticks, place):
    assert label_place(target_at, curves, ticks) == place


def test_a_long_line_counts_where_it_passes_the_words():
    steep, flat = [(0, 100), (100, 0)], [(0, 14), (100, 15)]
    assert label_place(10, [steep], []) == UNDER_LEFT
    assert label_place(10, [flat, steep], []) == OVER_LEFT
