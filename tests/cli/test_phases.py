"""Phases, withdrawals and the question of the phase, from the command line."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cli.test_check import write_submission

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

PATH = "/api/v1/benchmarks/digits/phases"
DATES = {
    "opens_at": "2026-12-01T09:00:00Z",
    "freezes_at": None,
    "closes_at": "2027-01-15T00:00:00Z",
    "embargo_until": None,
    "frozen_sha256": None,
}
FOUND: dict[str, Any] = {
    "benchmark": "digits",
    "phases": DATES
    | {"phase": "announced", "sentence": "Not open yet.", "takes_submissions": False},
    "history": [
        DATES
        | {"reason": "the [winter] round", "set_by": "olivia", "set_at": "2026-11-21T18:00:00Z"}
    ],
}


def test_phases_are_shown_with_their_history(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer(f"GET {PATH}", FOUND)
    ran = finishline("benchmark", "phases", "digits")
    assert ran.code == 0
    for word in ("Not open yet.", "2026-12-01 09:00Z", "the [winter] round", "olivia"):
        assert word in ran.out
    assert [asked.method for asked in standin.asked] == ["GET"]


def test_a_date_that_is_not_given_stays_and_none_takes_it_away(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer(f"GET {PATH}", FOUND)
    standin.answer(f"POST {PATH}", FOUND["phases"], status=201)
    command = (
        "benchmark",
        "phases",
        "digits",
        "--closes",
        "none",
        "--freezes",
        "2026-12-02T00:00Z",
    )
    assert finishline(*command).code == 2  # No reason.
    ran = finishline(*command, "--reason", "open end", "--token", "fl_o")
    assert ran.code == 0
    [posted] = [asked for asked in standin.asked if asked.method == "POST"]
    assert json.loads(posted.body) == {
        "opens_at": "2026-12-01T09:00:00Z",
        "freezes_at": "2026-12-02T00:00Z",
        "closes_at": None,
        "embargo_until": None,
        "reason": "open end",
        "unfreeze": False,
    }
    assert posted.headers["Authorization"] == "Bearer fl_o"


@pytest.mark.parametrize(
    ("more", "end", "told"),
    [
        ((), "withdrawal", "is withdrawn; its page stays"),
        (("--undo",), "reinstatement", "ranks again"),
    ],
)
def test_a_submission_is_withdrawn_with_a_reason_and_comes_back_by_an_organiser(
    more: tuple[str, ...], end: str, told: str, finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer(f"POST /api/v1/submissions/abc/{end}", {"id": "abc"})
    ran = finishline("withdraw", "abc", "--reason", "wrong clock", *more, "--token", "fl_a")
    assert ran.code == 0
    assert told in ran.out
    assert json.loads(standin.asked[0].body) == {"reason": "wrong clock"}
    assert finishline("withdraw", "abc", *more).code == 2


def test_check_tells_the_phase_of_a_server_that_is_asked(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    path = str(write_submission(tmp_path / "digits"))
    standin.answer("GET /api/v1/benchmarks/digits", {"sha256": "0" * 64, "phases": FOUND["phases"]})
    ran = finishline("check", path, "--url", standin.url)
    assert ran.code == 0
    assert "Not open yet." in ran.out
    assert "another definition, 000000000000" in ran.out
    document = json.loads(finishline("check", path, "--url", standin.url, "--json").out)
    assert document["server"]["phases"]["phase"] == "announced"
    asked = len(standin.asked)
    assert "server" not in json.loads(finishline("check", path, "--json").out)
    assert len(standin.asked) == asked
    standin.answers.clear()
    away = finishline("check", path, "--url", standin.url)
    assert away.code == 0
    assert "The phase of digits is not known" in away.out
