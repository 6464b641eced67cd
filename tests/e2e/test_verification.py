"""Submit, replay, rank, with real processes and real training on digits."""

import json
import re
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.support.processes import wait_for

pytestmark = [pytest.mark.processes, pytest.mark.timeout(600)]


def claim_fewer_epochs(folder: Path, *, share: float) -> None:
    """Edit run logs as a cheater would: keep `share` of the time and of the epochs.

    The evaluations in between are dropped and the rest renumbered, so that each log is well formed
    and reaches the target.
    """
    for log in folder.glob("*.log"):
        lines = log.read_text().splitlines()
        start = _time_of(next(line for line in lines if '"run_start"' in line))
        epochs = max(_epoch_of(line) for line in lines if _epoch_of(line))
        skipped = epochs - round(epochs * share)
        edited = []
        for line in lines:
            epoch = _epoch_of(line)
            if epoch is not None and 1 < epoch <= skipped + 1:
                continue
            if epoch is not None and epoch > 1:
                line = _renumber(line, epoch - skipped)
            edited.append(_hurry(line, start, share))
        log.write_text("\n".join(edited) + "\n")


def _fields(line: str) -> dict[str, Any]:
    parsed: dict[str, Any] = json.loads(line[line.index("{") :])
    return parsed


def _time_of(line: str) -> float:
    return float(_fields(line)["time_ms"])


def _epoch_of(line: str) -> int | None:
    if '"eval_' not in line:
        return None
    return round(_fields(line)["metadata"]["epoch_num"])


def _renumber(line: str, epoch: int) -> str:
    samples = 1152 * epoch
    line = re.sub(r'"epoch_num": ?[\d.]+', f'"epoch_num": {epoch}', line)
    return re.sub(r'"samples_count": ?\d+', f'"samples_count": {samples}', line)


def _hurry(line: str, start: float, share: float) -> str:
    if ":::MLLOG" not in line or _time_of(line) <= start:
        return line
    hurried = start + (_time_of(line) - start) * share
    return re.sub(r'"time_ms": ?[\d.]+', f'"time_ms": {hurried:.3f}', line)


def require_honest_verdict(verification: dict[str, Any]) -> None:
    """Verified; or left open by a replay above the band, as chance has it once in a while."""
    open_for = {r["code"] for r in verification["reasons"] if r["weight"] == "leaves_open"}
    expected = "inconclusive" if open_for == {"above_band"} else "verified"
    assert verification["outcome"] == expected, verification["reasons"]


def test_an_honest_submission_is_verified_and_ranked(
    stack: Any, trained: Path, submit: Callable[[Path], Any]
) -> None:
    submission = submit(trained)

    verification = stack.wait_until_ended(stack.verify(submission["id"]))

    assert verification["outcome"] == "verified", verification["reasons"]
    # Seeds are drawn anew: once in a while a run starts below the band, which one run may.
    statuses = [run["status"] for run in verification["report"]["runs"]]
    assert set(statuses) <= {"reached", "below_band"}
    assert statuses.count("below_band") <= 1
    board = stack.get("/leaderboards/digits")
    entry = next(e for e in board["entries"] if e["submission_id"] == submission["id"])
    noisy = "noisy_host" in {reason["code"] for reason in verification["reasons"]}
    # A replay whose processor others had compares epochs alone: it gives no time to rank by.
    evidence, check = ("claimed", "epochs_agree") if noisy else ("measured", None)
    assert (entry["evidence"], entry["check"]) == (evidence, check)
    assert (entry["status"], entry["rank"] is None) == ("verified", noisy)
    assert (entry["measured_seconds"] is None) == noisy


def test_logs_edited_to_forty_per_cent_fewer_epochs_are_not_numbered(
    stack: Any, trained: Path, submit: Callable[[Path], Any], tmp_path: Path
) -> None:
    folder = tmp_path / "tampered"
    shutil.copytree(trained, folder)
    claim_fewer_epochs(folder, share=0.6)
    honest = submit(trained)
    submission = submit(folder)
    assert submission["result"]["tta_seconds"] < 0.7 * honest["result"]["tta_seconds"]

    verification = stack.wait_until_ended(stack.verify(submission["id"]))

    # One owner's workers reject nobody: where no other owner has a worker, it is left undecided.
    assert verification["outcome"] == "inconclusive", verification["reasons"]
    assert "own_seed_not_confirmed" in {r["code"] for r in verification["reasons"]}
    board = stack.get("/leaderboards/digits")
    entry = next(e for e in board["entries"] if e["submission_id"] == submission["id"])
    assert (entry["evidence"], entry["check"]) == ("claimed", "undecided")
    assert entry["rank"] is None


def test_a_killed_training_and_a_killed_worker_cost_an_attempt_each_and_no_result(
    stack: Any, trained: Path, submit: Callable[[Path], Any]
) -> None:
    verification_id = stack.verify(submit(trained)["id"])
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
    require_honest_verdict(verification)
    assert [a["state"] for a in verification["attempts"]] == ["failed", "lost", "done"]
    codes = [a["failure"]["code"] for a in verification["attempts"][:2]]
    assert codes == ["child_died", "worker_lost"]
    assert len(verification["report"]["runs"]) == verification["runs_planned"]


def started(stack: Any) -> list[psutil.Process]:
    """The training processes, once there is one."""
    found: list[psutil.Process] = wait_for(
        lambda: stack.children("worker.child"), seconds=60, what="a training to start"
    )
    return found
