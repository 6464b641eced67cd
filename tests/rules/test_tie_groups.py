"""The expected groups are derived from scipy's p-values and the family written out in full."""

import math
import random
from itertools import pairwise

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from rules.tie_groups import Placed, RankedRuns, tie_groups


def board(*runs: list[float]) -> list[RankedRuns]:
    return [RankedRuns(f"s{place}", place, times) for place, times in enumerate(runs, 1)]


def around(centre: float, *, spread: float = 0.02, count: int = 5) -> list[float]:
    """Times whose logs lie evenly around that of a centre."""
    return [centre * math.exp(spread * x) for x in np.linspace(-1, 1, count)]


def groups(placed: list[Placed]) -> list[tuple[int | None, int]]:
    return [(p.group, p.group_rank) for p in placed]


def welch(first: list[float], second: list[float]) -> float:
    return float(scipy.stats.ttest_ind(np.log(first), np.log(second), equal_var=False).pvalue)


def test_entries_that_cannot_be_told_from_the_first_share_its_rank() -> None:
    placed = tie_groups(board(around(100.0), around(100.5), around(120.0), around(121.0)))

    assert groups(placed) == [(1, 1), (1, 1), (2, 3), (2, 3)]
    assert [p.p_same_as_leader is None for p in placed] == [True, False, True, False]
    assert not any(p.single_run for p in placed)


def test_the_p_value_counts_all_pairs_from_the_leader_down() -> None:
    runs = [around(100.0), around(100.3), around(101.0), around(101.5)]

    placed = tie_groups(board(*runs))

    assert placed[1].p_same_as_leader == pytest.approx(min(1.0, welch(runs[0], runs[1])))
    assert placed[2].p_same_as_leader == pytest.approx(min(1.0, 3 * welch(runs[0], runs[2])))
    assert placed[3].p_same_as_leader == pytest.approx(min(1.0, 6 * welch(runs[0], runs[3])))


def test_a_pair_that_is_told_apart_alone_may_not_be_told_apart_in_a_family() -> None:
    leader, between, last = around(100.0), around(101.5), around(102.4)
    assert 0.05 / 3 < welch(leader, last) < 0.05

    assert groups(tie_groups(board(leader, last))) == [(1, 1), (2, 2)]
    assert groups(tie_groups(board(leader, between, last))) == [(1, 1), (1, 1), (1, 1)]


def test_groups_do_not_chain_because_the_leader_is_what_counts() -> None:
    """Neighbours cannot be told apart all the way down, yet the last is not with the first."""
    ladder = [around(100.0 * 1.012**step) for step in range(8)]
    for one, other in pairwise(ladder):
        assert welch(one, other) > 0.05

    found = [p.group for p in tie_groups(board(*ladder))]

    assert found[0] == 1
    assert found[-1] != 1


def test_a_single_run_is_marked_and_leads_no_group() -> None:
    placed = tie_groups(board([99.0], around(100.0), [110.0], around(120.0), [500.0]))

    assert groups(placed) == [(1, 1), (1, 1), (1, 1), (2, 4), (2, 4)]
    assert [p.single_run for p in placed] == [True, False, True, False, True]
    assert [p.p_same_as_leader for p in placed] == [None] * 5


def test_a_board_of_single_runs_has_no_groups() -> None:
    placed = tie_groups(board([10.0], [20.0]))

    assert placed == [Placed("s1", None, 1, None, True), Placed("s2", None, 2, None, True)]
    assert tie_groups([]) == []


def test_an_entry_without_runs_stands_as_one_that_is_not_tested() -> None:
    assert [p.single_run for p in tie_groups(board([], around(10.0)))] == [True, False]


def test_by_cost_one_without_runs_or_without_a_price_breaks_nothing() -> None:
    none, free = RankedRuns("none", 1, [], scale=0.5), RankedRuns("free", 2, around(9.0), scale=0.0)

    placed = tie_groups([none, free, RankedRuns("paid", 3, around(10.0), scale=2.0)])

    assert [p.single_run for p in placed] == [True, False, False]


def test_entries_are_tested_on_the_scale_they_are_ranked_on() -> None:
    """Ten times the price of the faster one: the slower one leads, and a cost may be tiny."""
    cheap = RankedRuns("cheap", 1, around(200.0), scale=1e-9)
    dear = RankedRuns("dear", 2, around(100.0), scale=1e-8)
    equal = RankedRuns("equal", 3, around(50.0), scale=2e-8)

    placed = tie_groups([cheap, dear, equal])

    assert groups(placed) == [(1, 1), (2, 2), (2, 2)]
    assert placed[2].p_same_as_leader == pytest.approx(1.0)


def test_equal_values_keep_the_rank_they_share() -> None:
    entries = [
        RankedRuns("a", 1, around(90.0)),
        RankedRuns("b", 2, around(100.0)),
        RankedRuns("c", 2, around(100.0)),
        RankedRuns("d", 4, around(130.0)),
    ]

    assert groups(tie_groups(entries)) == [(1, 1), (2, 2), (2, 2), (3, 4)]


def test_times_without_any_scatter_are_told_apart_and_equal_ones_are_not() -> None:
    same, slower = [5.0, 5.0, 5.0], [5.5, 5.5, 5.5]

    assert groups(tie_groups(board(same, same, slower))) == [(1, 1), (1, 1), (2, 3)]


def test_an_entry_with_a_lower_log_mean_than_its_leader_is_not_slower() -> None:
    """By olympic mean it ranks below; by geometric mean it is far faster."""
    placed = tie_groups(board(around(100.0, spread=0.001), around(90.0, spread=0.001)))

    assert groups(placed) == [(1, 1), (1, 1)]


@given(st.lists(st.lists(st.floats(1.0, 1e4), min_size=0, max_size=5), max_size=12))
def test_a_group_is_a_stretch_whose_members_share_the_rank_of_the_first(
    runs: list[list[float]],
) -> None:
    entries = board(*runs)
    placed = tie_groups(entries)

    assert [p.submission_id for p in placed] == [e.submission_id for e in entries]
    assert [p.single_run for p in placed] == [len(r) < 2 for r in runs]
    numbers = [p.group for p in placed]
    if all(len(r) < 2 for r in runs):
        assert set(numbers) <= {None}
        return
    assert numbers[0] == 1
    for before, after in pairwise(placed):
        assert before.group is not None
        assert after.group is not None
        assert after.group - before.group in (0, 1)
    for number in set(numbers):
        members = [place for place, g in enumerate(numbers) if g == number]
        assert {placed[place].group_rank for place in members} == {entries[members[0]].rank}


@pytest.mark.parametrize(("entries", "runs"), [(3, 3), (10, 3), (10, 5), (20, 5)])
def test_on_a_board_of_equals_anybody_is_told_from_the_first_in_one_of_twenty_at_most(
    entries: int, runs: int
) -> None:
    chance = random.Random(entries * 100 + runs)
    boards, split = 400, 0
    for _ in range(boards):
        times = [[math.exp(chance.gauss(4.0, 0.05)) for _ in range(runs)] for _ in range(entries)]
        times.sort(key=lambda t: float(np.log(t).mean()))
        split += tie_groups(board(*times))[-1].group != 1

    # 0.05 and three standard deviations of the count.
    assert split <= boards * 0.05 + 3 * math.sqrt(boards * 0.05 * 0.95)
