"""Ranks and records, of claims and of measured configurations."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from server.boards.order import Row, order_of, why_unranked
from server.boards.records import Contender, record_history


def row(submission_id, tta_seconds=1.0, **others):
    settings = {
        "status": "claimed",
        "submitted_at": "2026-11-21T08:00:00Z",
        "cost_usd": None,
        "latency_ms": None,
        "eligible": True,
    }
    return Row(submission_id=submission_id, tta_seconds=tta_seconds, **(settings | others))


def rank(board, metric):
    return list(order_of(board, metric=metric).places)


LATE = {"submitted_at": "2026-11-21T09:00:00Z"}


@pytest.mark.parametrize(
    ("board", "metric", "places"),
    [
        # In a tie the earlier submission stands first, and so it does among the unranked.
        ([row("a", 5.0, **LATE), row("b", 5.0)], "tta", [("b", 1, True), ("a", 1, True)]),
        (
            [row("a", None, **LATE), row("c", 1e9), row("b", None)],
            "tta",
            [("c", 1, False), ("b", None, False), ("a", None, False)],
        ),
        # A cost of nothing is a value.
        (
            [row("paid", cost_usd=2.0), row("unknown"), row("free", cost_usd=0.0)],
            "cost",
            [("free", 1, False), ("paid", 2, False), ("unknown", None, False)],
        ),
    ],
)
def test_order_of_ties_and_of_the_unranked(board, metric, places):
    found = rank(board, metric=metric)
    assert [(place.submission_id, place.rank, place.tied) for place in found] == places


@pytest.mark.parametrize(
    ("changes", "metric", "reason"),
    [
        ({"status": "rejected"}, "tta", "contradicted by its verification"),
        ({"status": "rejected", "tta_seconds": None}, "tta", "contradicted by its verification"),
        ({"eligible": False, "broken": "no seed"}, "tta", "breaks a rule: no seed"),
        ({"tta_seconds": None}, "tta", "did not reach the target"),
        ({"tta_seconds": None}, "cost", "did not reach the target"),
        ({}, "cost", "states no price"),
        ({}, "latency", "no latency was measured"),
        ({"status": "inconclusive"}, "tta", None),
        ({"status": "verifying"}, "tta", None),
        ({"cost_usd": 1.0}, "cost", None),
        ({"cost_usd": 2.7e21}, "cost", None),  # A million of the dearest for 30,000 years.
        ({"cost_usd": 2.8e21}, "cost", "impossible cost"),
        ({"cost_usd": -1e-9}, "cost", "impossible cost"),
        ({"cost_usd": -1e-9}, "tta", None),
        ({"cost_usd": -1.0, "tta_seconds": 1e13}, "cost", "impossible time"),
        ({"latency_ms": 1.0, "tta_seconds": None}, "latency", None),
        ({"latency_ms": 1.0, "eligible": False}, "latency", "did not reach the target"),
        ({"latency_ms": 1.0}, "inference_cost", "states no cost"),
        ({"cost_usd_per_10000": 0.0, "evidence": "published"}, "inference_cost", None),
    ],
)
def test_an_unranked_submission_is_told_why(changes, metric, reason):
    assert why_unranked(row("a", **changes), metric=metric) == reason
    (place,) = rank([row("a", **changes)], metric=metric)
    assert (place.rank is None, place.unranked_reason) == (reason is not None, reason)


FIGURES = st.none() | st.sampled_from([0.0, 0.5, 1.0, 2.0, 3.5]) | st.floats(0, 1e6)


@st.composite
def boards(draw):
    count = draw(st.integers(0, 12))
    return [
        Row(
            submission_id=f"s{index}",
            status=draw(
                st.sampled_from(["claimed", "verifying", "verified", "rejected", "inconclusive"])
            ),
            submitted_at=f"2026-11-{draw(st.integers(10, 12))}T00:00:00Z",
            tta_seconds=draw(FIGURES),
            cost_usd=draw(FIGURES),
            latency_ms=draw(FIGURES),
            eligible=draw(st.booleans()),
            cost_usd_per_10000=draw(FIGURES),
        )
        for index in range(count)
    ]


METRICS = st.sampled_from(["tta", "cost", "latency", "inference_cost"])


@given(boards(), METRICS, st.randoms(use_true_random=False))
def test_the_order_given_does_not_matter(board, metric, random):
    shuffled = list(board)
    random.shuffle(shuffled)

    assert rank(shuffled, metric=metric) == rank(board, metric=metric)


@given(boards(), METRICS)
def test_a_rank_is_one_more_than_the_number_of_better_ones_and_the_unranked_are_last(board, metric):
    found = rank(board, metric=metric)
    rejected = {each.submission_id for each in board if each.status == "rejected"}
    values = [place.value for place in found if place.rank is not None]

    assert sorted(place.submission_id for place in found) == sorted(s.submission_id for s in board)
    assert None not in [place.rank for place in found[: len(values)]]
    for place in found:
        assert (place.rank is None) == (place.unranked_reason is not None)
        if place.rank is None:
            continue
        assert place.submission_id not in rejected
        assert place.rank == 1 + sum(value < place.value for value in values)
        assert place.tied == (values.count(place.value) > 1)


def test_claims_follow_the_numbered():
    """A claim of 1 second has no number."""
    forged = row("forged", tta_seconds=1.0, evidence="claimed", check="none")
    slow = row("slow", tta_seconds=30.0, evidence="claimed", check="epochs_agree")
    board = [
        row("ours", tta_seconds=10.0),
        forged,
        row("theirs", tta_seconds=20.0, evidence="published"),
        slow,
        row("liar", tta_seconds=0.5, evidence="claimed", check="contradicted"),
    ]
    found = [(r.submission_id, r.rank) for r in rank(board, metric="tta")]
    assert found == [("ours", 1), ("theirs", 2), ("forged", None), ("slow", None), ("liar", None)]


def test_the_holder_is_first_and_each_submitter_has_one_number():
    here = {"hardware_class": "a"}
    board = [
        row("holder", 5.0, submitter=1, **here),
        row("faster", 4.0, submitter=2, **here),
        row("second", 4.5, submitter=2, **here),
        row("slower", 6.0, submitter=3, **here),
        row("elsewhere", 1.0, submitter=4, hardware_class="b"),
        row("claim", 0.1, evidence="claimed", check="none"),
    ]
    order = order_of(board, metric="tta", hardware_class="a", holder="holder")
    found = [(r.submission_id, r.rank) for r in order.places]
    numbered, rest = found[:3], found[3:]
    assert numbered == [("holder", 1), ("faster", 2), ("slower", 3)]
    assert rest == [("elsewhere", None), ("second", None), ("claim", None)]
    assert [r.unranked_reason for r in order.places[3:5]] == [
        "ranked on the board of b",
        "another row of its submitter ranks",
    ]
    assert (order.numbered, order.listed, order.position("second")) == (3, 6, 4)


UNDECIDED = {"evidence": "claimed", "check": "undecided"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"evidence": "published", "held_back": "not checked"}, "not checked"),
        (UNDECIDED | {"status": "inconclusive"}, "claimed: its verification could not decide"),
        (UNDECIDED | {"status": "verified"},
         "claimed, undecided: not calibrated at its batch size"),
    ],
)  # fmt: skip
def test_a_row_without_a_number_says_what_is_lacking(changes, why):
    (found,) = rank([row("a", **changes)], metric="tta")
    assert (found.rank, found.unranked_reason) == (None, why)


DAYS = [f"2026-11-{day:02d}" for day in range(1, 20)]


def runs_of(seconds, *, count=5, spread=0.02):
    """Runs around a time; the middle one is at it."""
    return [seconds * math.exp(spread * x) for x in np.linspace(-1, 1, count)]


def contender(name, day, seconds, *, count=5):
    runs = [seconds] if count == 1 else runs_of(seconds, count=count)
    return Contender(name, DAYS[day], seconds, runs)


def p_below(faster, slower):
    """Welch's test on log seconds, one-sided."""
    logs = (np.log(faster.runs), np.log(slower.runs))
    return scipy.stats.ttest_ind(*logs, equal_var=False, alternative="less").pvalue


def test_a_record_must_beat_its_holder_beyond_chance():
    first, close, fast = contender("a", 0, 100.0), contender("b", 1, 99.5), contender("c", 2, 90.0)

    history = record_history([fast, close, first, contender("slower", 3, 300.0)])

    opening, record = history.records
    assert (opening.submission_id, record.submission_id) == ("a", "c")
    assert (opening.beaten, opening.margin_percent, opening.p_value) == (None, None, None)
    assert (record.beaten, record.date, record.single_run) == ("a", DAYS[2], False)
    assert record.margin_percent == pytest.approx(10.0)
    assert record.p_value == pytest.approx(p_below(fast, first))
    (missed,) = history.not_records
    oracle = p_below(close, first)
    assert missed.p_value == pytest.approx(oracle)
    assert (missed.submission_id, missed.holder, missed.tta_seconds) == ("b", "a", 99.5)
    assert f"p = {oracle:.2g}, must be below 0.05" in missed.reason


@pytest.mark.parametrize(
    ("contenders", "records"),
    [
        # The holder is challenged: against "a" the last would win, against "b" it is chance.
        ([contender("a", 0, 100.0), contender("b", 1, 90.0), contender("c", 2, 89.8)], "ab"),
        # Two runs are enough to hold a record against chance.
        ([contender("a", 0, 100.0, count=2), contender("b", 1, 99.9)], "a"),
        ([], ""),
        # An equal or slower time is nothing to tell of.
        ([contender("a", 0, 100.0), contender("b", 1, 100.0), contender("c", 2, 300.0)], "a"),
        # A round is published at once: the lowest time of a day comes first, then the smaller id.
        ([contender("b", 0, 90.0), contender("a", 0, 100.0), contender("c", 0, 95.0)], "b"),
        ([contender("b", 0, 90.0), contender("a", 0, 90.0)], "a"),
        # A lower mean is asked for even where the logs are lower.
        ([contender("a", 0, 100.0), Contender("b", DAYS[1], 101.0, runs_of(50.0))], "a"),
    ],
)  # fmt: skip
def test_who_holds_a_record(contenders, records):
    found = record_history(contenders).records
    assert "".join(record.submission_id for record in found) == records


@pytest.mark.parametrize("count", [0, 1])
def test_a_single_run_takes_no_record_from_a_holder_of_several(count):
    history = record_history([contender("a", 0, 100.0), contender("b", 1, 1.0, count=count)])

    assert [r.submission_id for r in history.records] == ["a"]
    (missed,) = history.not_records
    assert missed.p_value is None
    assert missed.reason == "a single run is too few to compare with the holder's runs"


def test_a_single_run_holds_until_anybody_is_faster():
    opening, record, last = record_history(
        [
            contender("a", 0, 100.0, count=1),
            contender("b", 1, 99.9, count=1),
            contender("c", 2, 99.8, count=5),
            contender("d", 3, 99.7, count=5),
        ]
    ).records

    assert (opening.submission_id, opening.single_run) == ("a", True)
    assert (record.submission_id, record.single_run, record.p_value) == ("b", True, None)
    assert (last.submission_id, last.single_run) == ("c", False)
