"""Whose turn it is: worked examples, and what must hold whatever waits."""

from collections import Counter
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.verification.fair_queue import (
    ORGANISERS_IN_A_ROW,
    FairQueue,
    Turns,
    Waiting,
    fair_order,
)

NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ALICE, BOB, CAROL, OLIVIA = 1, 2, 3, 9


def waiting(name: str, submitter: int, minute: int, *, by_organiser: bool = False) -> Waiting:
    return Waiting(name, submitter, by_organiser, NOON + timedelta(minutes=minute))


def names(order: list[Waiting]) -> list[str]:
    return [one.attempt_id for one in order]


@st.composite
def queues(draw: st.DrawFn) -> list[Waiting]:
    """Up to 40 attempts of five submitters, some of the same minute, in any order."""
    ones = draw(
        st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 9)), max_size=40)
    )
    return [
        waiting(f"a{number:02d}", submitter, minute, by_organiser=by_organiser)
        for number, (submitter, by_organiser, minute) in enumerate(ones)
    ]


def test_a_greedy_submitter_and_two_others_take_turns() -> None:
    greedy = [waiting(f"greedy-{number}", ALICE, number) for number in range(5)]
    others = [waiting("bob", BOB, 60), waiting("carol-1", CAROL, 61), waiting("carol-2", CAROL, 62)]
    assert names(fair_order([*greedy, *others])) == [
        *("greedy-0", "bob", "carol-1"),
        *("greedy-1", "carol-2", "greedy-2", "greedy-3", "greedy-4"),
    ]


def test_who_had_a_turn_waits_for_who_had_none() -> None:
    turns = Turns(last={(False, ALICE): 7, (False, BOB): 6}, count=7)
    ones = [waiting("alice", ALICE, 0), waiting("bob", BOB, 1), waiting("carol", CAROL, 2)]
    assert names(fair_order(ones, turns)) == ["carol", "bob", "alice"]


def test_organisers_go_first_three_in_a_row_at_most() -> None:
    asked = [waiting(f"rerun-{number}", OLIVIA, number, by_organiser=True) for number in range(7)]
    own = [waiting("alice", ALICE, -60), waiting("bob", BOB, -59)]
    assert names(fair_order([*own, *asked])) == [
        *("rerun-0", "rerun-1", "rerun-2", "alice"),
        *("rerun-3", "rerun-4", "rerun-5", "bob", "rerun-6"),
    ]
    after_three = Turns(organisers_in_a_row=ORGANISERS_IN_A_ROW)
    assert names(fair_order([*own, *asked], after_three))[:2] == ["alice", "rerun-0"]


def test_a_rerun_costs_its_submitter_no_turn() -> None:
    ones = [
        waiting("rerun", ALICE, 5, by_organiser=True),
        waiting("alice", ALICE, 0),
        waiting("bob", BOB, 1),
    ]
    assert names(fair_order(ones)) == ["rerun", "alice", "bob"]


def test_a_newcomer_is_next_however_much_waits() -> None:
    queue = FairQueue(waiting(f"a-{number}", ALICE, number) for number in range(1000))
    assert queue.take() == waiting("a-0", ALICE, 0)
    queue.add(waiting("bob", BOB, 5000))
    assert queue.take() == waiting("bob", BOB, 5000)


def test_another_attempt_of_the_same_age_waits_for_the_others_turn() -> None:
    """One place in the queue stands for all that a submitter asked for at once."""
    queue = FairQueue([waiting("alice", ALICE, 0), waiting("bob", BOB, 1)])
    assert queue.take() == waiting("alice", ALICE, 0)
    queue.add(waiting("alice", ALICE, 0))
    assert queue.take() == waiting("bob", BOB, 1)
    assert queue.take() == waiting("alice", ALICE, 0)


def test_what_is_dropped_does_not_start_and_takes_no_turn() -> None:
    own = [waiting(f"alice-{number}", ALICE, number) for number in range(3)]
    queue = FairQueue([*own, waiting("bob", BOB, 5), waiting("carol", CAROL, 6)])
    queue.drop(own[0])
    queue.drop(own[2])
    queue.drop(waiting("carol", CAROL, 6))
    queue.drop(waiting("olivia", OLIVIA, 0))  # Who waits for nothing here.
    assert [queue.take() for _ in range(3)] == [own[1], waiting("bob", BOB, 5), None]


@given(queues())
def test_everything_starts_once_and_the_oldest_of_each_first(ones: list[Waiting]) -> None:
    order = fair_order(ones)
    assert sorted(names(order)) == sorted(names(ones))
    for sharer in {one.sharer for one in ones}:
        ages = [one.age for one in order if one.sharer == sharer]
        assert ages == sorted(ages)


@given(queues(), st.randoms(use_true_random=False))
def test_the_order_does_not_depend_on_how_it_is_read(ones: list[Waiting], random: object) -> None:
    shuffled = list(ones)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert fair_order(ones) == fair_order(shuffled)


@given(queues())
def test_between_two_turns_of_one_nobody_else_has_two(ones: list[Waiting]) -> None:
    for lane in (True, False):
        order = [one.submitter for one in fair_order(ones) if one.by_organiser == lane]
        for start, submitter in enumerate(order):
            left = Counter(order[start + 1 :])
            until = order.index(submitter, start + 1) if left[submitter] else start + 1
            between = Counter(order[start + 1 : until])
            assert all(count == 1 for count in between.values())


@given(queues())
def test_while_a_submitter_waits_organisers_have_at_most_three_in_a_row(
    ones: list[Waiting],
) -> None:
    lanes = [one.by_organiser for one in fair_order(ones)]
    span = ORGANISERS_IN_A_ROW + 1
    for start in range(len(lanes) - span + 1):
        others_wait = False in lanes[start:]
        assert not (others_wait and all(lanes[start : start + span]))
        if True in lanes[start:] and lanes[start : start + 2] == [False, False]:
            raise AssertionError("two of submitters' own while an organiser's waits")


@given(queues(), st.integers(0, 40))
def test_stopping_and_going_on_from_the_turns_is_the_same_order(
    ones: list[Waiting], cut: int
) -> None:
    whole = fair_order(ones)
    queue = FairQueue(ones)
    first = [one for one in (queue.take() for _ in range(cut)) if one is not None]
    rest = [one for one in ones if one not in first]
    assert first + fair_order(rest, queue.turns()) == whole
