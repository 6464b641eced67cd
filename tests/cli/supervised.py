"""A supervisor over stand-in services, as a program: python supervised.py FOLDER SERVICE...

A service is NAME or NAME:HOW. Each writes its process id to FOLDER/NAME.pid, then HOW: "stays"
(the default), "deaf" (stays and ignores SIGTERM), "polite" (ends with exit code 0 at SIGTERM),
"exits" (exit code 7 at once, after a line), "parent" (starts a child in a session of its own, which
writes FOLDER/NAME-child.pid, and one that ends as an orphan after FOLDER/NAME-ended.pid; stays),
"held" (stays; the supervisor goes on only after it has answered).
A service is ready when its file names a process of this start.
"""

import os
import sys
import time
from pathlib import Path

from finishline.cli.errors import CliError
from server.commands import supervisor as supervising
from server.commands.supervisor import Service, StopAskedError, Supervisor

BODIES = {
    "stays": "",
    "held": "",
    "deaf": "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)",
    "polite": ("import os, signal; signal.signal(signal.SIGTERM, lambda *_: os._exit(0))"),
    "exits": "print('cannot bind to the moon', flush=True); raise SystemExit(7)",
    "parent": (
        "import subprocess; subprocess.Popen([sys.executable, '-c', "
        '"import os, pathlib, sys, time\\n'
        "path = pathlib.Path(sys.argv[1])\\n"
        "fresh = path.with_suffix('.new')\\n"
        "fresh.write_text(str(os.getpid()))\\n"
        "fresh.rename(path)\\n"
        'time.sleep(120)", sys.argv[1].replace(".pid", "-child.pid")], start_new_session=True); '
        "import os; ended = sys.argv[1].replace('.pid', '-ended.pid'); "
        "os.system(f\"sh -c 'echo $$ > {ended}' &\")"
    ),
}
STANDIN = """
import os, pathlib, sys, time
{body}
path = pathlib.Path(sys.argv[1])
fresh = path.with_suffix(".new")
fresh.write_text(str(os.getpid()))
fresh.rename(path)
time.sleep(120)
"""


def _service(folder, word):
    name, _, how = word.partition(":")
    pid_file = folder / f"{name}.pid"

    def is_ready(started):
        return pid_file.exists() and pid_file.stat().st_mtime >= started - 0.01

    return Service(
        name=name,
        command=[sys.executable, "-c", STANDIN.format(body=BODIES[how or "stays"]), str(pid_file)],
        environment=dict(os.environ),
        log=folder / f"{name}.log",
        is_ready=is_ready,
        ready_limit_seconds=30.0,
        stop_limit_seconds=1.0,
    )


def _hold_up(launch):
    """A launch that returns 50 ms after the answer: longer than a clock of files is coarse."""

    def held_up(service):
        answer = Path(service.command[-1])
        answer.unlink(missing_ok=True)
        process = launch(service)
        while not answer.exists():
            time.sleep(0.01)
        time.sleep(0.05)
        return process

    return held_up


def main():
    folder = Path(sys.argv[1])
    supervising.FIRST_WAIT_SECONDS = 0.05
    supervisor = Supervisor(say=lambda line: print(line, flush=True))
    supervisor.listen_to_signals()
    if any(word.endswith(":held") for word in sys.argv[2:]):
        supervising._launch = _hold_up(supervising._launch)
    try:
        for word in sys.argv[2:]:
            supervisor.start(_service(folder, word))
        (folder / "all-ready").touch()
        supervisor.keep()
    except StopAskedError:
        return 0
    except CliError as error:
        print(f"error: {error.message}", flush=True)
        return int(error.exit_code)
    finally:
        supervisor.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
