"""Measure a latency with real processes: training, torch.compile and ONNX Runtime on digits."""

import json
import subprocess
import sys
from typing import Any

import pytest

from tests.support.processes import asking

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def enter(stack: Any, latency_ms: float) -> str:
    """An inference entry for the worker's own machine, handed in by the demo submitter; its id."""
    (worker,) = stack.get("/workers")["workers"]
    entry = {
        "version": "v1.0",
        "author": "Ada",
        "authorEmail": "ada@example.org",
        "framework": "torch",
        "model": "digits reference",
        "hardware": worker["hardware_class"],
        "timestamp": "2026-11-21",
        "latency": latency_ms,
        "top1Accuracy": 98.0,
        "costPerHour": 3.6,
    }
    answer = asking.post(
        f"{stack.url}/api/v1/submissions",
        files=[("submission", ("entry.json", json.dumps(entry).encode()))],
        data={"benchmark": "digits", "division": "closed"},
        headers={"Authorization": f"Bearer {stack.token('demo')}"},
        timeout=10.0,
    )
    assert answer.status_code == 201, answer.text
    return str(answer.json()["id"])


def verify(stack: Any, submission: str) -> Any:
    """What `finishline verify` ends in when the organiser runs it."""
    asked = (submission, "--kind", "latency", "--watch", "--json")
    access = ("--url", stack.url, "--token", stack.token("organiser"))
    done = subprocess.run(
        [sys.executable, "-m", "finishline.cli.main", "verify", *asked, *access],
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout
    return json.loads(done.stdout)


def test_a_trained_model_is_timed_and_an_honest_claim_verified(
    stack: Any,
) -> None:
    submission = enter(stack, 50.0)  # A hundred times what a busy host takes.
    ended = verify(stack, submission)

    assert (ended["state"], ended["outcome"]) == ("done", "verified"), ended["reasons"]
    eager, compiled, onnx = ended["backends"]
    assert [eager["backend"], compiled["backend"], onnx["backend"]] == [
        "eager",
        "compiled",
        "onnxruntime",
    ]
    for backend in (eager, onnx):
        assert backend["why_absent"] is None, backend
        assert (backend["samples"], backend["passes"], backend["eligible"]) == (1198, 2.0, True)
        assert 0 < backend["p50_ms"] <= backend["p90_ms"] < 50
        assert backend["p90_ms"] <= backend["p99_ms"]
    # A host without a compiler says so; one that has one agrees on the outputs.
    assert compiled["absence"] in (None, "compile_failed", "not_supported")
    assert onnx["largest_difference"] < 1e-4
    # 10,000 items of a millisecond take 10 s, and a second costs 0.001 USD.
    assert onnx["cost_usd_per_10000"] == pytest.approx(onnx["mean_ms"] * 0.01)
    (run,) = ended["report"]["runs"]
    assert run["status"] == "reached"
    assert run["evaluations"][-1]["quality"] >= 97.5
    assert run["ledger"]["idle"] > 0
    board = stack.get("/leaderboards/digits?metric=latency")["entries"]
    (entry,) = [entry for entry in board if entry["submission_id"] == submission]
    fastest = min(b["p50_ms"] for b in ended["backends"] if b["p50_ms"] is not None)
    assert (entry["status"], entry["measured_latency_ms"]) == ("verified", fastest)
    assert stack.children("worker.child") == []
