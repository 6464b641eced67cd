"""Inference entries on the command line: check, submit, show, leaderboard."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from conftest import Finishline, StandIn

ENTRY: dict[str, Any] = {
    "version": "v1.0", "author": "A", "authorEmail": "a@example.org", "framework": "F",
    "model": "M", "hardware": "H", "timestamp": "2018-04-20", "latency": 2.5, "cost": 0.000004,
    "top1Accuracy": 94.0,
}  # fmt: skip
RESULT = {
    "latency_ms": 2.5, "cost_usd_per_10000": 0.04, "metric": "top1Accuracy", "quality": 94.5,
    "eligible": True,
}  # fmt: skip
VIEW = {
    "id": "s1", "kind": "inference", "benchmark": "cifar10", "division": "open", "model": "M",
    "status": "claimed", "system": {"name": "H"}, "result": RESULT, "runs": [],
    "verifications": [],
}  # fmt: skip


@pytest.fixture
def entry(tmp_path: Path) -> Path:
    path = tmp_path / "entry.json"
    path.write_text(json.dumps(ENTRY))
    return path


def test_an_entry_without_a_log_is_checked_offline(finishline: "Finishline", entry: Path) -> None:
    ran = finishline("check", str(entry), "--benchmark", "cifar10")
    assert (ran.code, ran.err) == (0, "")
    words = " ".join(ran.out.split())
    assert "cifar10 open, latency 2.500 ms, 10,000 items cost $0.040000" in words
    assert "not ranked" not in words
    document = finishline("check", str(entry), "--benchmark", "cifar10", "--json").json()
    assert (document["claim"]["kind"], document["claim"]["run_files"]) == ("inference", [])
    assert (document["result"]["latency_ms"], document["result"]["eligible"]) == (2.5, True)


def test_an_entry_below_the_target_is_accepted_and_not_ranked(
    finishline: "Finishline", entry: Path
) -> None:
    entry.write_text(json.dumps(ENTRY | {"top1Accuracy": 93.9}))
    ran = finishline("check", str(entry), "--benchmark", "cifar10")
    assert ran.code == 0
    assert "not ranked: the model did not reach the target" in " ".join(ran.out.split())


def test_a_bad_latency_is_exit_code_1_and_names_line_and_field(
    finishline: "Finishline", entry: Path
) -> None:
    entry.write_text(json.dumps(ENTRY | {"latency": "2.5"}, indent=1))
    ran = finishline("check", str(entry), "--benchmark", "cifar10", "--json")
    assert ran.code == 1
    (problem,) = ran.error()["problems"]
    assert (problem["file"], problem["line"], problem["field"]) == ("entry.json", 9, "latency")


def test_an_entry_without_latency_and_log_says_what_is_missing(
    finishline: "Finishline", entry: Path
) -> None:
    entry.write_text(json.dumps({k: v for k, v in ENTRY.items() if k != "latency"}))
    ran = finishline("check", str(entry), "--benchmark", "cifar10", "--json")
    (problem,) = ran.error()["problems"]
    assert (ran.code, problem["message"]) == (1, "no run logs")
    assert "latency" in problem["expected"]


def test_submit_sends_the_entry_alone_and_tells_its_figures(
    finishline: "Finishline", standin: "StandIn", entry: Path
) -> None:
    standin.answer("POST /api/v1/submissions", VIEW, status=201)
    ran = finishline("submit", str(entry), "--benchmark", "cifar10", "--token", "fl_1")
    assert ran.code == 0
    body = standin.asked[0].body
    assert body.count(b"filename=") == 1
    assert b'name="benchmark"' in body
    words = " ".join(ran.out.split())
    assert "cifar10 open inference" in words
    assert "latency 2.500 ms, 10,000 items cost $0.040000, top1Accuracy 94.5000." in words


def test_an_inference_board_has_its_own_columns(
    finishline: "Finishline", standin: "StandIn"
) -> None:
    entries = [
        {"rank": 1, "tied": True, "latency_ms": 2.5, "cost_usd_per_10000": None, "quality": 94.5,
         "submitter": "ada", "model": "M", "system": {"name": "H"}, "submission_id": "s1"},
    ]  # fmt: skip
    board = {"kind": "inference", "entries": entries}
    standin.answer("GET /api/v1/leaderboards/cifar10", board)
    ran = finishline("leaderboard", "cifar10", "--metric", "latency")
    assert standin.asked[0].path == "/api/v1/leaderboards/cifar10?metric=latency&limit=50"
    header, row = ran.out.splitlines()[:2]
    assert header.split()[:2] == ["rank", "latency"]
    assert "TTA" not in header
    assert row.split()[:5] == ["=1", "2.500", "ms", "–", "94.5000"]
