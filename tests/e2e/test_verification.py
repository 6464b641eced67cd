"""Submit, replay, rank, calibrate, race and time, with real processes and training on digits."""

import json
import signal
import tomllib

import psutil
import pytest

from tests.e2e.conftest import finishline, run_cli
from tests.support.boards import rows_of
from tests.support.processes import asking, wait_for
from tests.support.run_logs import SECONDS_PER_EPOCH, build_log

pytestmark = [pytest.mark.nightly, pytest.mark.timeout(600)]


def claim_batches(size, trained, folder, digits):
    """Write a claim of another batch size; nothing is trained for it."""
    claim = json.loads((trained / "submission.json").read_text())
    claim["hyperparameters"] |= {"batch_size": size}
    folder.mkdir()
    (folder / "submission.json").write_text(json.dumps(claim))
    for seed, name in enumerate(claim["runs"]):
        log = build_log(
            digits,
            seed,
            name=name,
            batch_size=size,
            division=claim["division"],
            seconds_per_epoch=SECONDS_PER_EPOCH * (1 + seed / 100),
        )
        (folder / name).write_bytes(log)


def claim_fewer_epochs(folder, *, share):
    """Edit run logs as a cheater would: keep `share` of the time and of the epochs.

    The evaluations in between are dropped and the rest renumbered, so that each log is well formed
    and reaches the target.
    """
    for log in folder.glob("*.log"):
        lines = [
            json.loads(line.removeprefix(":::MLLOG ")) for line in log.read_text().splitlines()
        ]
        start = next(line["time_ms"] for line in lines if line["key"] == "run_start")
        evaluations = [line["metadata"] for line in lines if line["key"].startswith("eval_")]
        epochs = max(each["epoch_num"] for each in evaluations)
        skipped = epochs - round(epochs * share)
        dropped = [each for each in evaluations if 1 < each["epoch_num"] <= skipped + 1]
        for each in evaluations:
            if each["epoch_num"] > skipped + 1:
                each["epoch_num"] -= skipped
                each["samples_count"] = 1152 * each["epoch_num"]
        for line in lines:
            line["time_ms"] = start + (line["time_ms"] - start) * (
                share if line["time_ms"] > start else 1
            )
        kept = [line for line in lines if not any(line["metadata"] is each for each in dropped)]
        log.write_text("".join(f":::MLLOG {json.dumps(line)}\n" for line in kept))


def test_demo_is_verified_and_ranked(stack, demo, trained, submit):
    assert "Verdict: verified" in demo
    assert "7. The leaderboards, of code and of logs" in demo
    assert "4. Measure the reference: it holds first place" in demo
    assert {path.name for path in stack.var.parent.iterdir()} == {"var"}
    submission = submit(trained)  # The files that the demo has sent: they are one submission.

    verification = stack.get(f"/verifications/{stack.replay_of(submission['id'])}")

    assert verification["outcome"] == "verified", verification["reasons"]
    # Seeds are drawn anew: once in a while a run starts below the band, which one run may.
    statuses = [run["status"] for run in verification["report"]["runs"]]
    assert set(statuses) <= {"reached", "below_band"}
    assert statuses.count("below_band") <= 1
    board = stack.get("/leaderboards/digits?division=closed")
    entry = next(e for e in rows_of(board) if e["submission_id"] == submission["id"])
    codes = {reason["code"] for reason in verification["reasons"]}
    # A replay on a drifting worker compares epochs alone, and two runs give no time.
    untimed = "worker_drifted" in codes or "below_band" in statuses
    evidence, check = ("claimed", "epochs_agree") if untimed else ("measured", None)
    assert (entry["evidence"], entry["check"]) == (evidence, check)
    assert (entry["status"], entry["rank"] is None) == ("verified", untimed)
    assert (entry["measured_seconds"] is None) == untimed
    assert entry["busy"] == ("noisy_host" in codes and not untimed)


def test_edited_logs_are_not_numbered_and_what_dies_costs_an_attempt_and_no_result(
    stack, submit, trained, digits, tmp_path
):
    """Logs of forty per cent fewer epochs; a training and a worker are killed meanwhile."""
    folder = tmp_path / "tampered"  # A batch size of its own: the demo's would be a duplicate.
    claim_batches(128, trained, folder, digits)
    claim_fewer_epochs(folder, share=0.6)
    submission = submit(folder)

    verification_id = stack.verify(submission["id"])
    started(stack)[0].send_signal(signal.SIGKILL)
    view = f"/verifications/{verification_id}"
    wait_for(
        lambda: [a["state"] for a in stack.get(view)["attempts"]] == ["failed", "running"],
        seconds=60,
        what="the second attempt",
    )
    started(stack)
    worker = next(p for p in stack.children("-m worker") if "worker.child" not in p.cmdline())
    children = worker.children(recursive=True)

    worker.send_signal(signal.SIGKILL)

    _gone, alive = psutil.wait_procs(children, timeout=10)
    assert alive == [], "the training outlived its worker"
    verification = stack.wait_until_ended(verification_id)
    assert [a["state"] for a in verification["attempts"]] == ["failed", "lost", "done"]
    failed = [a["failure"]["code"] for a in verification["attempts"][:2]]
    assert failed == ["child_died", "worker_lost"]
    assert len(verification["report"]["runs"]) == verification["runs_planned"]
    codes = {reason["code"] for reason in verification["reasons"]}
    assert "converges_faster_than_replay" in codes
    assert verification["outcome"] == "rejected", verification["reasons"]
    board = stack.get("/leaderboards/digits")
    entry = next(e for e in rows_of(board) if e["submission_id"] == submission["id"])
    assert (entry["evidence"], entry["check"]) == ("claimed", "contradicted")
    assert entry["rank"] is None


def started(stack):
    """The training processes, once there is one."""
    return wait_for(lambda: stack.children("worker.child"), seconds=60, what="a training to start")


def test_code_that_crashes_says_so_to_its_submitter(stack, boxed, tmp_path):
    run_cli("init", str(tmp_path))
    (tmp_path / "train.py").write_text("def prepare(task): ...\ndef train(*_): 1 / 0\n")
    sent = run_cli("submit", str(tmp_path), "--no-watch", *stack.access("demo"))
    ended = stack.wait_until_ended(sent["verifications"][0]["id"])
    assert [each["failure"]["code"] for each in ended["attempts"]] == ["entry_died"]
    theirs = stack.get(f"/verifications/{ended['id']}", by="demo")
    assert "ZeroDivisionError" in theirs["attempts"][0]["log_tail"]
    assert ended["attempts"][0]["log_tail"] is None  # Its source is not public.
    wait_for(lambda: stack.children("bwrap") == [], seconds=60, what="the last box to end")


def test_two_runs_of_the_reference_are_measured_to_their_end(stack):
    options = ("--runs", "2", "--batch-sizes", "64", "--watch", *stack.access("organiser"))
    out = finishline("benchmark", "calibrate", "digits", *options)

    assert "2 of 2 runs trained" in out
    (listed,) = stack.get("/calibrations")["calibrations"]
    assert (listed["state"], listed["runs_finished"]) == ("done", 2)
    runs = stack.get(f"/calibrations/{listed['id']}/runs")["runs"]
    # Every epoch, although digits is at its target after seven or eight of them.
    assert [len(run["quality"]) for run in runs] == [20, 20]
    assert all(run["quality"][-1] > 97.5 for run in runs)
    assert runs[0]["quality"] != runs[1]["quality"]
    assert all("torch" in run["system"]["software"] for run in runs)
    (size,) = stack.get(f"/calibrations/{listed['id']}")["sizes"]
    assert all(3 <= epochs <= 20 for epochs in size["epochs"])
    at = ("--url", stack.url)
    tables = tomllib.loads(
        finishline("benchmark", "calibrate", "show", listed["id"], "--toml", *at)
    )
    shipped = tables["reference_runs"]
    assert [(run["batch_size"], len(run["quality"])) for run in shipped] == [(64, 20)] * 2
    finishline("benchmark", "calibrate", "compare", listed["id"], *at)


def test_two_batch_sizes_are_trained_in_turn(stack, trained, submit, digits, tmp_path):
    large = tmp_path / "large"
    claim_batches(96, trained, large, digits)
    before = [submit(trained), submit(large)]
    challenger, holder = (submission["id"] for submission in before)

    access = stack.access("organiser")
    finishline("verify", "--head-to-head", challenger, holder, *access)
    listed = stack.get("/verifications")["verifications"]
    (verification,) = [each for each in listed if each["against_id"] == holder]
    printed = finishline("verify", verification["id"], "--watch", *access, codes=(0, 3))

    view = stack.get(f"/verifications/{verification['id']}")
    assert (view["kind"], view["state"]) == ("head_to_head", "done")
    runs = view["report"]["runs"]
    assert {run["status"] for run in runs} == {"reached"}
    sizes = [table["batch_size"] for table in view["hyperparameters"]]
    assert sizes == [32, 96, 96, 32, 32, 96, 96, 32, 32, 96]
    # Of 1,198 images an epoch trains on as many as fill its batches: 37 of 32, or 12 of 96.
    samples = [run["evaluations"][0]["samples"] for run in runs]
    assert samples[:4] == [37 * 32, 12 * 96, 12 * 96, 37 * 32]
    for pair in view["head_to_head"]["pairs"]:
        a, b = (runs[pair[side]["run"]]["tta_seconds"] for side in ("challenger", "holder"))
        # A pair that other programs disturbed is void.
        assert pair["ratio"] in (None, pytest.approx(a / b))
    assert view["outcome"] in ("not_proven", "continues")
    if view["head_to_head"]["continued_by"] is not None:
        stack.cancel(view["head_to_head"]["continued_by"])
    assert "run 2 holder" in printed
    assert view["reasons"][0]["message"] in " ".join(printed.split())
    for submission in before:
        after = stack.get(f"/submissions/{submission['id']}")
        assert after["status"] == submission["status"]


def enter(stack, latency_ms):
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


def test_a_trained_model_is_timed_and_an_honest_claim_verified(stack):
    submission = enter(stack, 50.0)  # A hundred times what a busy host takes.
    asked = ("--kind", "latency", "--watch", *stack.access("organiser"))
    ended = run_cli("verify", submission, *asked)

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
    board = rows_of(stack.get("/leaderboards/digits?metric=latency"))
    (entry,) = [entry for entry in board if entry["submission_id"] == submission]
    fastest = min(b["p50_ms"] for b in ended["backends"] if b["p50_ms"] is not None)
    assert (entry["status"], entry["measured_latency_ms"]) == ("verified", fastest)
    assert stack.children("worker.child") == []
