"""Jobs: their purposes, their turn in the queue, and the runs that they streamed."""

import hashlib
from collections import Counter, namedtuple
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.verification.calibration import plan_calibration
from finishline.rules.verification.head_to_head import plan_head_to_head
from finishline.rules.verification.job import Request
from finishline.rules.verification.messages import Failure
from finishline.rules.verification.purposes import ASKED_FOR, PURPOSES
from finishline.rules.verification.replay import plan_replay
from server.verifications.pools import measured_runs
from server.verifications.queue import NO_TURNS, ORGANISERS_IN_A_ROW, Turns, fair_order, sharer_of
from tests.support.build import build_report
from tests.support.verdicts import CLAIM

ENTROPY = bytes(range(32))


def request(digits, *claims, **wishes):
    return Request(digits, ENTROPY, claims=claims, wishes=wishes)


def test_a_purpose_is_known_by_its_name_and_says_how_it_ends():
    assert all(purpose.name == name for name, purpose in PURPOSES.items())
    assert PURPOSES.keys() >= {"replay", "calibration", "head_to_head", "latency", "cross_check"}
    for purpose in PURPOSES.values():
        assert purpose.words.endings[""].format(runs="3 runs").endswith(".")
    assert set(ASKED_FOR) >= {"replay", "latency"}
    assert all(PURPOSES[name].words.about for name in ASKED_FOR)


def test_a_calibration_trains_one_batch_size_to_the_end(digits):
    planned = plan_calibration(request(digits, runs=3, taken=set(), batch_size=32))

    assert [training.settings for training in planned] == [{"batch_size": 32.0}] * 3
    assert {(training.stop_at, training.measure) for training in planned} == {("end", ("tta",))}
    # Drawn again here without the rules: SHA-256 with a counter, four bytes each.
    told = b"finishline calibration" + ENTROPY
    digests = [hashlib.sha256(told + i.to_bytes(4, "big")).digest() for i in range(3)]
    seeds = [training.seed for training in planned]
    assert seeds == [int.from_bytes(digest[:4], "big") for digest in digests]
    more = plan_calibration(request(digits, runs=3, taken={seeds[1]}, batch_size=32))
    assert [training.seed for training in more][:2] == [seeds[0], seeds[2]]


def test_packages_of_a_pair_have_equal_data(digits):
    """Drawn again here without the rules: SHA-256 with the number of the pair."""
    sides = [replace(CLAIM, division="open", package=each * 64) for each in "ab"]
    planned = plan_head_to_head(request(digits, *sides, pairs=2))
    assert [training.package[-1] for training in planned] == ["a", "b", "b", "a"]
    data = [hashlib.sha256(b"finishline data" + ENTROPY + n).hexdigest() for n in (b"0", b"1")]
    assert [training.data_nonce for training in planned] == [data[0], data[0], data[1], data[1]]


def test_sides_train_with_complete_settings(digits):
    sides = [replace(CLAIM, hyperparameters=each) for each in ({"batch_size": 32.0}, {})]
    planned = plan_head_to_head(request(digits, *sides, pairs=1))
    defaults = digits.defaults()
    assert [each.settings for each in planned] == [defaults | {"batch_size": 32.0}, defaults]


def test_replay_stops_at_the_target(digits):
    planned = plan_replay(request(digits, replace(CLAIM, hyperparameters={"batch_size": 32.0})))
    told = {(each.package, each.stop_at, each.measure) for each in planned}
    assert told == {("digits", "target", ("tta", "profile"))}
    assert all(training.settings == {"batch_size": 32.0} for training in planned)


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
ALICE, BOB, CAROL, OLIVIA = 1, 2, 3, 9


Row = namedtuple("Row", ("id", "submitter_id", "by_organiser", "asked_at"))


def waiting(name, submitter, minute, *, by_organiser=False):
    asked_at = NOON + timedelta(minutes=minute)
    return Row(id=name, submitter_id=submitter, by_organiser=by_organiser, asked_at=asked_at)


def names(order):
    return [one.id for one in order]


@st.composite
def queues(draw):
    """Up to 40 attempts of five submitters, some of the same minute, in any order."""
    ones = draw(
        st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 9)), max_size=40)
    )
    return [
        waiting(f"a{number:02d}", submitter, minute, by_organiser=by_organiser)
        for number, (submitter, by_organiser, minute) in enumerate(ones)
    ]


def at(minute):
    return NOON + timedelta(minutes=minute)


GREEDY = [waiting(f"greedy-{number}", ALICE, number) for number in range(5)]
OWN = [waiting("alice", ALICE, -60), waiting("bob", BOB, -59)]
RERUNS = [waiting(f"rerun-{number}", OLIVIA, number, by_organiser=True) for number in range(7)]
AFTER_THREE = Turns(organisers_in_a_row=ORGANISERS_IN_A_ROW)


@pytest.mark.parametrize(
    ("ones", "turns", "order"),
    [
        # A greedy submitter and two others take turns.
        ([*GREEDY, waiting("bob", BOB, 60), waiting("carol-1", CAROL, 61),
          waiting("carol-2", CAROL, 62)], NO_TURNS,
         "greedy-0 bob carol-1 greedy-1 carol-2 greedy-2 greedy-3 greedy-4"),
        # Who had a turn waits for who had none.
        ([*OWN, waiting("carol", CAROL, 2)],
         Turns({(False, ALICE): at(7), (False, BOB): at(6)}), "carol bob alice"),
        # Organisers go first, three in a row at most.
        ([*OWN, *RERUNS], NO_TURNS,
         "rerun-0 rerun-1 rerun-2 alice rerun-3 rerun-4 rerun-5 bob rerun-6"),
        ([*OWN, *RERUNS[:1]], AFTER_THREE, "alice rerun-0 bob"),
        # A rerun costs its submitter no turn.
        ([waiting("rerun", ALICE, 5, by_organiser=True), *OWN], NO_TURNS, "rerun alice bob"),
    ],
)  # fmt: skip
def test_submitters_take_turns_and_organisers_go_first(ones, turns, order):
    assert names(fair_order(ones, turns)) == order.split()


def test_a_newcomer_is_next_however_much_waits():
    greedy = [waiting(f"a-{number}", ALICE, number) for number in range(1000)]
    turns = NO_TURNS.after(greedy[0], NOON)
    newcomer = waiting("bob", BOB, 5000)
    assert fair_order([*greedy[1:], newcomer], turns)[0] == newcomer


@given(queues(), st.randoms(use_true_random=False))
def test_everything_starts_once_and_the_oldest_of_each_first(ones, random):
    order = fair_order(ones)
    assert fair_order(random.sample(ones, len(ones))) == order
    assert sorted(names(order)) == sorted(names(ones))
    for sharer in map(sharer_of, ones):
        ages = [(one.asked_at, one.id) for one in order if sharer_of(one) == sharer]
        assert ages == sorted(ages)


@given(queues())
def test_between_two_turns_of_one_nobody_else_has_two(ones):
    for lane in (True, False):
        order = [one.submitter_id for one in fair_order(ones) if one.by_organiser == lane]
        for start, submitter in enumerate(order):
            left = Counter(order[start + 1 :])
            until = order.index(submitter, start + 1) if left[submitter] else start + 1
            between = Counter(order[start + 1 : until])
            assert all(count == 1 for count in between.values())


@given(queues())
def test_while_a_submitter_waits_organisers_have_at_most_three_in_a_row(ones):
    lanes = [one.by_organiser for one in fair_order(ones)]
    span = ORGANISERS_IN_A_ROW + 1
    for start in range(len(lanes) - span + 1):
        others_wait = False in lanes[start:]
        assert not (others_wait and all(lanes[start : start + span]))
        if True in lanes[start:] and lanes[start : start + 2] == [False, False]:
            raise AssertionError("two of submitters' own while an organiser's waits")


@given(queues())
def test_taking_one_after_another_from_the_turns_is_the_same_order(ones):
    left, turns, order = list(ones), NO_TURNS, []
    while left:
        order.append(fair_order(left, turns)[0])
        left.remove(order[-1])
        turns = turns.after(order[-1], at(len(order)))
    assert order == fair_order(ones)


@pytest.mark.parametrize(
    ("kind", "code", "counted"),
    [("time_limit", "run_time_limit", 1), ("infrastructure", "child_died", 0)],
)
def test_run_past_its_limit_counts(kind, code, counted, digits):
    report = build_report([11])
    failure = Failure(kind, code, "it ended", "look")
    ended = replace(report.runs[0], status="failed", tta_seconds=None, failure=failure)
    short = replace(ended, evaluations=ended.evaluations[:3])

    found = measured_runs(digits, replace(report, runs=[short]))
    assert [run.seconds for run in found] == [None] * counted
