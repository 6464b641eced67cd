"""`make test`: lanes side by side, their outcome, and nothing left when it is stopped."""

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from tests.support import lanes
from tests.support.processes import wait_for

TESTS = """
import subprocess, sys, time
from pathlib import Path
FOLDER = Path(__file__).parent

def test_passes():
    pass

def test_fails():
    assert 1 == 2

def test_waits_with_a_server_in_another_session():
    code = "import time; time.sleep(600)"
    left = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    (FOLDER / "started").write_text(str(left.pid))
    time.sleep(600)
"""


@pytest.fixture
def suite(tmp_path):
    """A file of tests of which one passes, one fails and one never ends."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    path = tmp_path / "test_three.py"
    path.write_text(TESTS)
    return path


def started(suite, **tests):
    """Lanes of their own process, each with the tests of a name."""
    chosen = {name: (str(suite), "-k", word) for name, word in tests.items()}
    code = f"import sys; from tests.support.lanes import main; sys.exit(main({chosen!r}))"
    return subprocess.Popen(
        [sys.executable, "-c", code],
        cwd=Path(__file__).parents[1],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_failure_in_one_lane_fails_and_every_output_is_shown(suite):
    running = started(suite, first="passes", second="fails")
    out, err = running.communicate(timeout=120)

    assert running.returncode == 1
    assert err == "failed: second\n"
    for words in ("== first", "1 passed", "== second", "assert 1 == 2"):
        assert words in out


@pytest.mark.processes
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopped_it_leaves_no_process(suite, number):
    running = started(suite, first="waits", second="passes")
    note = suite.with_name("started")
    wait_for(
        lambda: note.exists() and note.read_text(), seconds=60, what="the test that never ends"
    )
    running.send_signal(number)
    out, _ = running.communicate(timeout=120)

    assert running.returncode == lanes.STOPPED
    assert not psutil.pid_exists(int(note.read_text()))
    assert "KeyboardInterrupt" in out
