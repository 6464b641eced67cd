"""`finishline duel` against a server that gives canned answers."""

import json
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

RUN = {"run": 0, "seed": 7, "ending": "reached", "seconds": 0.832, "epochs": 8.0}
DUEL = {
    "challenger": "s1", "holder": "s2", "order": ["challenger", "holder", "holder", "challenger"],
    "pairs": [], "time": None,
}  # fmt: skip
QUEUED = {
    "id": "d1", "kind": "duel", "state": "queued", "runs_planned": 4, "duel": DUEL,
    "target": {"metric": "top1Accuracy", "value": 97.5, "unit": "percent", "direction": "higher"},
    "control_points": [], "waiting_for": None,
}  # fmt: skip
PAIRS = [
    {"number": 1, "challenger": RUN, "holder": RUN | {"seconds": 1.632}, "ratio": 0.5098,
     "winner": "challenger"},
    {"number": 2, "challenger": RUN, "holder": RUN | {"seconds": None, "ending": "missed"},
     "ratio": None, "winner": "challenger"},
]  # fmt: skip
ENDED = QUEUED | {
    "state": "done", "outcome": "challenger_faster", "duel": DUEL | {"pairs": PAIRS},
    "reasons": [{"code": "duel_time", "message": "the challenger is faster", "numbers": {}}],
}  # fmt: skip
EVALUATION = {
    "attempt": 1, "sequence": 0, "run": 1, "kind": "evaluation", "epoch": 1.0, "seconds": 0.1,
    "quality": 15.2,
}  # fmt: skip


def stream(*events: tuple[str, Any]) -> bytes:
    return "".join(f"event: {name}\ndata: {json.dumps(each)}\n\n" for name, each in events).encode()


def test_a_duel_is_asked_for_with_both_sides_pairs_and_reason(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("POST /api/v1/duels", QUEUED, status=201)
    ran = finishline("duel", "s1", "s2", "--pairs", "6", "--reason", "record", "--token", "fl_o")

    assert ran.code == 0
    assert f"Duel d1 is queued: {standin.url}/verifications/d1" in ran.out
    assert json.loads(standin.asked[0].body) == {
        "challenger": "s1", "holder": "s2", "pairs": 6, "reason": "record",
    }  # fmt: skip
    assert finishline("duel", "s1", "s2", "--json").json() == QUEUED
    assert json.loads(standin.asked[1].body)["pairs"] == 4


def test_watching_names_the_sides_and_ends_with_the_pairs_and_the_verdict(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("POST /api/v1/duels", QUEUED, status=201)
    events = stream(("state", QUEUED), ("replay", EVALUATION), ("end", ENDED))
    standin.answer("GET /api/v1/verifications/d1/events", events)
    ran = finishline("duel", "s1", "s2", "--watch")

    assert ran.code == 0
    assert "run 2 holder  epoch 1      15.20 %" in ran.out
    lines = [line.split() for line in ran.out.splitlines()]
    assert ["1", "0.832", "s", "1.632", "s", "0.510", "challenger"] in lines
    assert ["2", "0.832", "s", "missed", "–", "challenger"] in lines
    assert ran.out.splitlines()[-2:] == [
        "Verdict: challenger faster",
        "  duel_time: the challenger is faster",
    ]


@pytest.mark.parametrize(
    ("outcome", "code"),
    [
        ("challenger_faster", 0),
        ("holder_faster", 0),
        ("not_separable", 0),
        ("inconclusive", 3),
        (None, 3),
    ],
)
def test_a_duel_that_says_nothing_ends_with_code_3(
    finishline: "Finishline", standin: "StandIn", outcome: str | None, code: int
) -> None:
    standin.answer("POST /api/v1/duels", QUEUED, status=201)
    end = ENDED | {"outcome": outcome, "duel": DUEL}
    standin.answer("GET /api/v1/verifications/d1/events", stream(("end", end)))
    ran = finishline("duel", "s1", "s2", "--watch", "--json")

    assert ran.code == code
    assert ran.json() == end


@pytest.mark.parametrize("pairs", ["1", "21", "x"])
def test_pairs_outside_what_is_allowed_are_wrong_usage(
    finishline: "Finishline", standin: "StandIn", pairs: str
) -> None:
    assert finishline("duel", "s1", "s2", "--pairs", pairs).code == 2
    assert standin.asked == []
