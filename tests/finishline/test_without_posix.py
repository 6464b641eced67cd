"""The participants' commands and modules where a system has nothing of POSIX, as Windows."""

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.test_convert import EVENTS

pytestmark = pytest.mark.nightly
ROOT = Path(__file__).parents[2]
MODULES = ("fcntl", "resource", "pwd", "grp", "termios", "pty", "tty", "server", "worker")
OF_OS = ("sysconf", "sched_getaffinity", "killpg", "getuid", "geteuid", "getpgid", "setsid")
OF_SIGNAL = ("SIGKILL", "SIGHUP", "SIGUSR1", "SIGALRM", "alarm", "setitimer")
WITHOUT = (
    f"import os, signal, sys; sys.modules.update(dict.fromkeys({MODULES!r}))\n"
    f"for name in {OF_OS!r}: delattr(os, name)\n"
    f"for name in {OF_SIGNAL!r}: delattr(signal, name)\n"
)
# One command after the other in one process, as each would import anew.
COMMANDS = f"""{WITHOUT}
import json
from finishline.cli.main import main
for command in json.loads(sys.argv[1]):
    if code := main(command):
        sys.exit(code)
    print(end="\\0")
"""
TRAIN = """
import os, time
import finishline.log
seed = int(os.environ.get("FINISHLINE_SEED", "9"))
with finishline.log.run("digits", seed=seed, out=os.environ.get("FINISHLINE_OUT", "mine")) as run:
    run.start()
    for epoch in (1, 2, 3):
        time.sleep(0.002)
        run.evaluation(epoch=epoch, quality=95.6 + epoch + seed % 10 / 10)
"""


@pytest.fixture
def run(tmp_path):
    def run_python(program, *arguments, typed=""):
        kept = {name: at for name, at in os.environ.items() if not name.startswith("FINISHLINE_")}
        settings = {"PYTHONPATH": str(ROOT), "XDG_CONFIG_HOME": str(tmp_path / "home")}
        done = subprocess.run(
            [sys.executable, "-P", "-c", program, *map(str, arguments)],
            cwd=tmp_path,
            env=kept | settings,
            input=typed,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run_python


def test_a_participant_needs_nothing_of_posix(run, site, alice, tmp_path):
    def commands(*lines, typed=""):
        told = json.dumps([shlex.split(line) for line in lines])
        return run(COMMANDS, told, typed=typed).split("\0")

    (tmp_path / "train.py").write_text(WITHOUT + TRAIN)
    mine = f"run digits --seed 3 --out mine -- {shlex.quote(sys.executable)} train.py"
    commands(f"login {site}", mine, typed=alice.secret)
    run(WITHOUT + TRAIN)
    (tmp_path / "events").write_bytes(EVENTS)
    checked, sent, board, account, *_ = commands(
        "check mine",
        "submit mine --json",
        "board digits --json",
        "account",
        "convert --from tfevents events --benchmark digits --out converted --quality val/acc",
        "logout",
    )
    assert "Accepted by the rules" in checked
    assert json.loads(sent)["submitter"] == alice.name
    assert json.loads(sent)["id"] in board
    assert alice.name in account
    assert (tmp_path / "converted" / "run_0.log").is_file()
    assert alice.secret not in (tmp_path / "home/finishline/profiles.json").read_text()


def test_the_python_client_needs_nothing_of_posix(run, site):
    program = (
        f"from finishline import Client\nwith Client({site!r}) as client:\n"
        "    print(client.board('digits').total)\n"
    )
    assert run(WITHOUT + program) == "0\n"


def test_a_worker_asks_for_posix_where_it_opens_a_box_alone(run):
    without = "import sys; sys.modules.update(dict.fromkeys(('fcntl', 'pwd', 'grp', 'termios')))\n"
    assert run(without + "import worker.entries, worker.local; print('imported')") == "imported\n"
