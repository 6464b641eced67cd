"""The supervisor of `finishline up` over real processes."""

import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from tests.support import processes

pytestmark = pytest.mark.nightly

LIMIT_SECONDS = 60.0


def wait_for(condition, what):
    return processes.wait_for(condition, seconds=LIMIT_SECONDS, what=what, pause=0.02)


def is_alive(pid):
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


PROGRAM = Path(__file__).with_name("supervised.py")


@dataclass
class Supervised:
    process: "subprocess.Popen[str]"
    folder: Path

    def pid(self, name):
        file = self.folder / f"{name}.pid"
        wait_for(lambda: file.exists() and file.read_text(), f"the process id of {name}")
        return int(file.read_text())

    def wait_ready(self):
        wait_for((self.folder / "all-ready").exists, "all services to be ready")

    def end(self, number):
        self.process.send_signal(number)
        return self.outcome()

    def outcome(self):
        output, _ = self.process.communicate(timeout=LIMIT_SECONDS)
        return self.process.returncode, output


@pytest.fixture
def supervise(tmp_path):
    started = []

    def start(*services):
        process = subprocess.Popen(
            [sys.executable, str(PROGRAM), str(tmp_path), *services],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(Supervised(process, tmp_path))
        return started[-1]

    yield start
    for supervised in started:
        if supervised.process.poll() is None:
            supervised.end(signal.SIGTERM)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGHUP])
def test_a_signal_stops_all_services(supervise, number):
    up = supervise("first", "second")
    up.wait_ready()
    pids = [up.pid("first"), up.pid("second")]
    assert up.end(number)[0] == 0
    assert not any(is_alive(pid) for pid in pids)


def test_a_service_that_was_told_to_end_is_started_again(supervise):
    up = supervise("first", "second:polite")
    up.wait_ready()
    before, other = up.pid("second"), up.pid("first")
    os.kill(before, signal.SIGTERM)
    wait_for(lambda: up.pid("second") != before, "a second process")
    assert (is_alive(up.pid("second")), up.pid("first")) == (True, other)
    code, output = up.end(signal.SIGTERM)
    assert (code, "died" in output) == (0, False)


def test_a_service_that_keeps_dying_is_given_up_and_the_rest_is_stopped(supervise):
    up = supervise("first", "second")
    up.wait_ready()
    first = up.pid("first")
    for _ in range(5):
        pid = up.pid("second")
        os.kill(pid, signal.SIGKILL)
        wait_for(lambda: up.process.poll() is not None or up.pid("second") != pid, "a restart")  # noqa: B023
    code, output = up.outcome()
    assert code == 4
    assert "error: second died 5 times in 30 s (SIGKILL)" in output
    assert not is_alive(first)


def test_a_service_that_cannot_start_says_why_and_is_not_tried_again(supervise):
    up = supervise("first", "second:exits")
    code, output = up.outcome()
    assert code == 4
    assert "second could not start (exit code 7: cannot bind to the moon)" in output
    assert "starting it again" not in output
    assert not is_alive(up.pid("first"))


def test_a_service_deaf_to_sigterm_is_killed_after_its_limit(supervise):
    up = supervise("first:deaf")
    up.wait_ready()
    pid = up.pid("first")
    code, output = up.end(signal.SIGTERM)
    assert code == 0
    assert "first did not stop within 1 s and is killed" in output
    assert not is_alive(pid)


def test_a_service_that_answers_before_its_supervisor_goes_on_is_ready(supervise):
    up = supervise("quick:held")
    up.wait_ready()
    os.kill(up.pid("quick"), signal.SIGKILL)
    assert any("quick is ready again" in line for line in up.process.stdout)
    assert up.end(signal.SIGTERM)[0] == 0


def test_what_a_killed_service_leaves_in_another_session_is_ended_too(supervise):
    up = supervise("first:parent")
    up.wait_ready()
    before, child = up.pid("first"), up.pid("first-child")
    assert is_alive(child)
    ended = up.pid("first-ended")
    wait_for(lambda: not psutil.pid_exists(ended), "an orphan that ended by itself to be reaped")
    os.kill(before, signal.SIGKILL)
    wait_for(lambda: not is_alive(child), "the orphan to end")
    wait_for(lambda: up.pid("first-child") != child, "the restarted service's child")
    second_child = up.pid("first-child")
    assert up.end(signal.SIGTERM)[0] == 0
    assert not is_alive(second_child)
