"""Quotas from the command line."""

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

USES = [
    {"measure": "submissions_per_day", "allowed": 200, "used": 200.0, "reserved": 0.0,
     "room_at": "2030-01-01T10:00:00Z"},
    {"measure": "gpu_seconds_per_month", "allowed": None, "used": 5400.0, "reserved": 1800.0,
     "room_at": None},
]  # fmt: skip
ALICE = {"subject_kind": "user", "subject": "al [x]", "quotas": USES}


def test_ones_own_quota_is_shown_in_hours(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer("GET /api/v1/me/quota", ALICE | {"benchmarks": []})
    ran = finishline("quota", "--token", "fl_a")

    assert ran.code == 0
    assert standin.asked[0].headers["Authorization"] == "Bearer fl_a"
    for shown in ("user al [x]", "200", "2030-01-01 10:00Z", "1.50", "0.50", "no limit"):
        assert shown in ran.out
    assert json.loads(finishline("quota", "--json").out)["quotas"] == USES
    standin.answers["GET /api/v1/me/quota"] = [(401, {"detail": "Who?"})]
    assert finishline("quota").code == 5


def test_an_organiser_sets_shows_and_lists(finishline: "Finishline", standin: "StandIn") -> None:
    standin.answer("PUT /api/v1/quotas/user/al%20x", ALICE)
    given = ["quota", "set", "user", "al x"]
    ran = finishline(
        *given, "--reason", "course", "--submissions-per-day", "5", "--gpu-hours-per-month", "1.5"
    )
    assert ran.code == 0, ran.err
    assert json.loads(standin.asked[0].body) == {
        "reason": "course", "submissions_per_day": 5, "gpu_seconds_per_month": 5400,
    }  # fmt: skip
    finishline(*given, "--reason", "r", "--submissions-per-day", "default")
    assert json.loads(standin.asked[1].body) == {"reason": "r", "submissions_per_day": "default"}

    standin.answer("GET /api/v1/quotas/benchmark/digits", ALICE)
    assert "no limit" in finishline("quota", "show", "benchmark", "digits").out
    row = {"subject_kind": "user", "subject": "bob", "measure": "submissions_per_day",
           "amount": 7, "reason": "a course"}  # fmt: skip
    listed = {"defaults": {"gpu_seconds_per_month": 360000}, "quotas": [row]}
    standin.answer("GET /api/v1/quotas", listed)
    out = finishline("quota", "list").out
    assert "100.00" in out
    assert "a course" in out


@pytest.mark.parametrize(
    "options", [[], ["--submissions-per-day", "x"], ["--gpu-hours-per-month", "-1"]]
)
def test_what_is_no_amount_is_told_before_anything_is_sent(
    options: list[str], finishline: "Finishline", standin: "StandIn"
) -> None:
    ran = finishline("quota", "set", "user", "bob", "--reason", "r", *options)

    assert ran.code == 2
    assert standin.asked == []
