"""Batches, decisions, comparisons and the audit log from the command line."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

BATCH = {
    "dry_run": True,
    "replays": [{"submission_id": "s1", "verification_id": None, "runs_expected": 3.5,
                 "seconds_expected": 70.0, "accelerators": 0, "basis": "run limit"}],
    "skipped": [{"submission_id": "s2", "why": "Verification v9 is under way."}],
    "gpu_seconds_expected": 0.0, "cpu_seconds_expected": 70.0,
}  # fmt: skip
RUN = {"index": 0, "seed": 1, "status": "reached", "tta_seconds": 1.5, "epochs_to_target": 8.0,
       "best_quality": 98.0}  # fmt: skip
SIDE = {"id": "v1", "state": "done", "outcome": "verified", "published": True, "worker": "w",
        "hardware_class": "cpu", "reasons": [{"code": "reached_target"}],
        "runs": [RUN]}  # fmt: skip
COMPARISON = {
    "submission_id": "s1", "benchmark": "digits", "first": SIDE,
    "second": SIDE | {"id": "v2", "outcome": "rejected", "published": False, "runs": []},
    "same_band": False,
    "differences": [{"figure": "tta_seconds", "first_mean": 1.5, "second_mean": None,
                     "ratio": None, "p_value": None, "comparable": False}],
    "systems": [{"field": "threads", "first": "1", "second": "2"}],
}  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "body"),
    [
        (["s1", "s2"], {"submissions": ["s1", "s2"], "dry_run": False}),
        (["s1", "--dry-run"], {"submissions": ["s1"], "dry_run": True}),
        (["--benchmark", "digits", "--status", "verified"],
         {"benchmark": "digits", "status": "verified", "dry_run": False}),
        (["--benchmark", "digits", "--dry-run"],
         {"benchmark": "digits", "status": None, "dry_run": True}),
    ],
)  # fmt: skip
def test_several_submissions_are_asked_for_at_once(
    finishline: "Finishline", standin: "StandIn", arguments: list[str], body: dict[str, Any]
) -> None:
    standin.answer("POST /api/v1/verifications/batch", BATCH)
    ran = finishline("verify", *arguments, "--reason", "driver")

    assert ran.code == 0
    assert json.loads(standin.asked[0].body) == body | {"reason": "driver"}
    assert "skipped s2: Verification v9 is under way." in ran.out
    last = ran.out.splitlines()[-1]
    assert last.startswith("1 would be queued, 1 skipped; expected 0")
    assert finishline("verify", *arguments, "--reason", "driver", "--json").json() == BATCH


@pytest.mark.parametrize(
    "arguments",
    [[], ["s1", "--benchmark", "digits"], ["s1", "--status", "verified"], ["s1", "s2"],
     ["s1", "s2", "--reason", "x", "--watch"], ["--benchmark", "digits"]],
)  # fmt: skip
def test_a_batch_that_is_not_clear_is_wrong_usage(
    finishline: "Finishline", standin: "StandIn", arguments: list[str]
) -> None:
    ran = finishline("verify", *arguments)

    assert (ran.code, ran.out, standin.asked) == (2, "", [])


def test_a_decision_is_sent_with_its_reason(finishline: "Finishline", standin: "StandIn") -> None:
    view = {"id": "v1", "outcome": "rejected"}
    standin.answer("POST /api/v1/verifications/v1/decide", view)
    ran = finishline("decide", "v1", "keep", "--reason", "throttled")

    assert (ran.code, ran.out) == (0, "The verdict of v1, rejected, is kept back: throttled\n")
    assert json.loads(standin.asked[0].body) == {"decision": "keep", "reason": "throttled"}
    assert "is published" in finishline("decide", "v1", "publish", "--reason", "x").out
    for wrong in (["v1", "maybe", "--reason", "x"], ["v1", "keep"]):
        assert finishline("decide", *wrong).code == 2
    standin.refuse("POST /api/v1/verifications/v2/decide", 409, "It was decided.")
    assert finishline("decide", "v2", "keep", "--reason", "x").code == 1


def test_two_verifications_are_shown_side_by_side(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    standin.answer("GET /api/v1/verifications/compare", COMPARISON)
    ran = finishline("compare-verifications", "v1", "v2")

    assert ran.code == 0
    assert standin.asked[0].path.endswith("/compare?first=v1&second=v2")
    rows = [line.split() for line in ran.out.splitlines()]
    assert ["outcome", "verified", "rejected"] in rows
    assert ["threads:", "1", "|", "2"] in rows
    assert "published       not published" in ran.out
    assert "other hardware" in ran.out
    assert "different bands" in ran.out


def test_the_whole_log_is_kept_in_a_file_page_by_page(
    finishline: "Finishline", standin: "StandIn", tmp_path: Path
) -> None:
    record = {"id": 2, "at": "2026-01-01T00:00:00+00:00", "actor": "olivia [x]", "reason": None,
              "action": "token.create", "subject_kind": "token", "subject_id": "7"}  # fmt: skip
    standin.answer("GET /api/v1/audit", {"records": [record], "next_before": 2})
    standin.answer("GET /api/v1/audit", {"records": [record | {"id": 1}], "next_before": None})
    path = tmp_path / "log.json"
    ran = finishline("audit-log", "--out", str(path), "--token", "fl_o")

    assert ran.code == 0
    assert [item["id"] for item in json.loads(path.read_text())["records"]] == [1, 2]
    assert "before=2" in standin.asked[1].path
    shown = finishline("audit-log", "--limit", "5")
    assert "olivia [x]" in shown.out
    assert "token 7" in shown.out
    assert finishline("audit-log", "--out", str(tmp_path / "no" / "log.json")).code == 1


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", '{"records": 1}', '{"records": [1]}', '{"records": [{"id": "1"}]}']
)
def test_a_file_that_is_no_log_is_refused(
    finishline: "Finishline", tmp_path: Path, content: str
) -> None:
    path = tmp_path / "log.json"
    path.write_text(content)
    ran = finishline("check-proof", "--log", str(path))

    assert ran.code == 1
    assert "No audit log in" in ran.err


def test_audit_takes_a_proof_or_a_log(finishline: "Finishline", tmp_path: Path) -> None:
    assert finishline("check-proof").code == 2
    assert finishline("check-proof", "v1", "--log", str(tmp_path / "log.json")).code == 2
    assert finishline("check-proof", "--log", str(tmp_path / "gone.json")).code == 1
