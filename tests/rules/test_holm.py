"""Holm's procedure is the closure of Bonferroni's: that, by brute force, is the oracle."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.statistics.t import holm

P_VALUES = st.lists(st.floats(0.0, 1.0), max_size=6)


def by_closed_testing(p_values: list[float]) -> list[float]:
    """The adjusted p-value is the largest Bonferroni p-value of any set that holds the test."""
    places = range(len(p_values))
    sets = [c for size in range(1, len(p_values) + 1) for c in combinations(places, size)]
    return [
        max(min(1.0, len(s) * min(p_values[i] for i in s)) for s in sets if place in s)
        for place in places
    ]


def test_the_example_of_four_tests_rejects_the_first_two() -> None:
    """0.005 <= 0.05 / 4 and 0.01 <= 0.05 / 3 are rejected; 0.03 > 0.05 / 2 stops the procedure."""
    adjusted = holm([0.01, 0.04, 0.03, 0.005])

    assert adjusted == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert [p <= 0.05 for p in adjusted] == [True, False, False, True]


def test_one_test_alone_is_not_adjusted_and_none_are_none() -> None:
    assert holm([0.04]) == [0.04]
    assert holm([]) == []


@given(P_VALUES)
def test_it_is_the_closure_of_bonferronis_test(p_values: list[float]) -> None:
    assert holm(p_values) == pytest.approx(by_closed_testing(p_values))
