"""The main job on one installation: code is handed in, trained, ranked and proved."""

import re
import signal

import psutil
import pytest

from tests.e2e.conftest import run_cli
from tests.support.boards import rows_of
from tests.support.processes import wait_for

pytestmark = pytest.mark.timeout(600)
# What Celery writes about one task, and what the worker writes while the task runs.
TASK = re.compile(
    r"celery\.worker\.strategy Task worker\.replay\[(\S+)\] received\n"
    r"(.*?)celery\.app\.trace Task worker\.replay\[\1\] succeeded",
    re.DOTALL,
)


def made_by_celery(stack):
    """The attempts that the tasks of the worker's log made."""
    log = (stack.var / "logs" / "worker.log").read_text()
    written = "".join(task[2] for task in TASK.finditer(log))
    return set(re.findall(r"attempt_id=(\w+)", written))


def test_code_is_measured_by_a_celery_task(stack, boxed, tmp_path):
    folder = str(tmp_path / "mine")
    run_cli("init", folder)
    sent = run_cli("submit", folder, "--no-watch", *stack.access("demo"))
    verification = sent["verifications"][0]["id"]

    ended = stack.wait_until_ended(verification)

    assert (ended["state"], ended["outcome"]) == ("done", "verified"), ended
    attempts = {attempt["id"] for attempt in ended["attempts"]}
    assert attempts
    wait_for(lambda: attempts <= made_by_celery(stack), seconds=20, what="the end of Celery's task")
    board = rows_of(stack.get("/leaderboards/digits?division=open"))
    (row,) = [row for row in board if row["submission_id"] == sent["id"]]
    assert (row["evidence"], row["measured_runs"]) == ("measured", 5)
    assert row["rank"] is not None
    assert run_cli("proof", verification, "--url", stack.url)["passed"] is True
    for waiting in stack.get("/verifications?state=queued")["verifications"]:
        stack.cancel(waiting["id"])  # It would train the reference beside later tests.


def test_killed_worker_costs_one_attempt(stack, boxed, tmp_path):
    run_cli("init", str(tmp_path))
    program = tmp_path / "train.py"
    program.write_text(program.read_text() + "\n\nOTHER = 2\n")  # Another program, trained anew.
    sent = run_cli("submit", str(tmp_path), "--no-watch", *stack.access("demo"))
    verification = sent["verifications"][0]["id"]

    def is_training():
        """Not the comparison with the reference that the server starts when nobody waits."""
        found = stack.get(f"/verifications/{verification}")
        return found["state"] == "running" and stack.children("bwrap")

    wait_for(is_training, seconds=240, what="a training in its sandbox")
    worker = next(each for each in stack.children("-m worker") if "bwrap" not in each.name())
    children = worker.children(recursive=True)

    worker.send_signal(signal.SIGKILL)

    _gone, alive = psutil.wait_procs(children, timeout=10)
    assert alive == [], "the training outlived its worker"
    ended = stack.wait_until_ended(verification)
    # On a busy machine it is trained once more.
    ends = [(each["state"], (each["failure"] or {}).get("code")) for each in ended["attempts"]]
    assert [state for state, code in ends if code != "host_busy"] == ["lost", "done"]
    assert (ended["state"], ended["outcome"]) == ("done", "verified"), ended["reasons"]
    for waiting in stack.get("/verifications?state=queued")["verifications"]:
        stack.cancel(waiting["id"])


def test_everything_it_keeps_is_private(stack):
    assert {path for path in stack.var.rglob("*") if path.stat().st_mode & 0o077} == set()
