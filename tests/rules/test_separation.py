"""Rows that these runs cannot tell apart say so; few share a number."""

import math
from dataclasses import replace

import pytest

from finishline.rules.scoring.measured_time import Spread
from finishline.rules.statistics.separation import RankedTime, separate, visible_gap

SPREAD = Spread(0.05, 20)
ROW = RankedTime("a", 1, 10.0, runs=3, spread=SPREAD, convergence_values=3)


def row(name: str, rank: int, figure: float, **other: object) -> RankedTime:
    return replace(ROW, submission_id=name, rank=rank, figure=figure, **other)  # type: ignore[arg-type]


def test_visible_gap_is_that_of_both_means() -> None:
    """Worked by hand: t(0.975, 20) = 2.085963, both means of three runs at 5 %."""
    gap = visible_gap(ROW, ROW)
    assert gap == pytest.approx(math.expm1(2.085963 * 0.05 * math.sqrt(2 * 0.449)), rel=1e-6)


def test_a_close_row_keeps_its_number_and_says_what_could_not_be_seen() -> None:
    first, second = separate([ROW, row("b", 2, 10.3)])
    assert (first.number, first.not_separated_from) == (1, None)
    assert (second.number, second.not_separated_from) == (2, 1)
    assert second.visible_gap_percent == pytest.approx(10.39, abs=0.01)


def test_a_row_beyond_the_gap_leads_the_next_stretch() -> None:
    found = list(separate([ROW, row("b", 2, 12.0), row("c", 3, 12.1)]))
    assert [each.not_separated_from for each in found] == [None, None, 2]


def test_five_runs_and_three_values_on_both_sides_share_a_number() -> None:
    many = {"runs": 5}
    rows = [row("a", 1, 10.0, **many), row("b", 2, 10.1, **many)]
    assert [(each.number, each.shares) for each in separate(rows)] == [(1, True), (1, True)]


def test_nobody_shares_a_number_past_a_row_that_may_not() -> None:
    """Else the third row, slower than the second, would have the better number."""
    rows = [row("a", 1, 10.0, runs=5), row("b", 2, 10.1, runs=3), row("c", 3, 10.2, runs=5)]
    found = list(separate(rows))
    assert [each.number for each in found] == [1, 2, 3]
    assert not any(each.shares for each in found)


@pytest.mark.parametrize("fewer", [{"runs": 4}, {"runs": 5, "convergence_values": 2}])
def test_fewer_runs_or_values_do_not_earn_the_better_number(fewer: dict[str, object]) -> None:
    rows = [row("a", 1, 10.0, runs=5), row("b", 2, 10.1, **fewer)]
    assert [each.number for each in separate(rows)] == [1, 2]


def test_nothing_is_said_where_no_spread_is_known() -> None:
    found = list(separate([row("a", 1, 10.0, spread=None), row("b", 2, 10.0, spread=None)]))
    assert [each.not_separated_from for each in found] == [None, None]


def test_single_runs_are_not_compared() -> None:
    found = list(separate([row("a", 1, 10.0, runs=1), row("b", 2, 10.0, runs=1)]))
    assert [each.not_separated_from for each in found] == [None, None]
