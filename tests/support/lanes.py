"""Runs all tests in lanes side by side: `make test`.

Tests that start real processes wait most of the time, so the lanes share the processors. The output
of each is shown whole when it has ended. Ctrl-C and SIGTERM interrupt every lane, which takes down
what its tests set up; processes that are left after that are killed.
"""

import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import psutil

INSTALLATIONS = ("tests/chaos", "tests/deploy", "tests/e2e")
BROWSER = "tests/server/browser"
FIREFOX = f"{BROWSER}/test_firefox.py"  # `make test-firefox`, every night.
TRAINING = ("tests/examples", "tests/reference_models", "tests/worker")
# The longest first; each of the others takes the place of one that has ended, so that the last ones
# end together. A lane imports every test it may choose from; tests/conftest.py leaves some out.
LANES: Mapping[str, Sequence[str]] = {
    "installations": ("-m", "processes", *INSTALLATIONS),
    "server": ("-m", "not processes", "tests/server", f"--ignore={BROWSER}"),
    "processes": ("-m", "processes", "tests", *(f"--ignore={each}" for each in INSTALLATIONS)),
    "the rest": (
        *("-m", "not processes", "tests", "--ignore=tests/server"),
        *(f"--ignore={each}" for each in TRAINING),
    ),
    "training": ("-m", "not processes", *TRAINING),
    "browser": ("-m", "not processes", BROWSER, f"--ignore={FIREFOX}"),
}
AT_ONCE = (os.cpu_count() or 2) + 1
OPTIONS = ("--durations=10",)
# Threads of torch wait for each other in circles where lanes share the processors.
ONE_THREAD = {"OMP_NUM_THREADS": "1"}
PERCENT = re.compile(rb"\[ *(\d+)%\]")
# A folder in memory: a test commits a dozen times, and each waits for a disk.
MEMORY = Path("/dev/shm")  # noqa: S108
MEMORY_BYTES = 4 * 2**30
TEARDOWN_SECONDS = 60.0
STOPPED = 130  # As a shell says it of a command that was interrupted.
PR_SET_CHILD_SUBREAPER = 36


@dataclass
class Lane:
    """One pytest, whose output goes to a file."""

    name: str
    output: Path
    process: "subprocess.Popen[bytes]"

    @property
    def percent(self):
        """How far it is, as it last said."""
        found = PERCENT.findall(self.output.read_bytes())
        return f"{self.name} {found[-1].decode() if found else 0} %"


def main(lanes=LANES):
    """Run the lanes; the exit code is 0 if all pass."""
    began, stopped = time.monotonic(), threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stopped.set())
    adopt_orphans()
    print(f"{len(lanes)} lanes, {AT_ONCE} at once; each is shown when it has ended.", flush=True)
    with tempfile.TemporaryDirectory(prefix="finishline-lanes-", dir=roomy_memory()) as folder:
        started = run(lanes, Path(folder), stopped)
        end(started)
    failed = [lane.name for lane in started if lane.process.returncode]
    if failed and not stopped.is_set():
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    print(f"{time.monotonic() - began:.0f} s", flush=True)
    return STOPPED if stopped.is_set() else int(bool(failed))


def adopt_orphans():
    """Become the parent of processes whose parent ends, where the kernel (Linux) does that."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def roomy_memory():
    """The folder in memory where it has room for the files of all tests; None elsewhere."""
    with contextlib.suppress(OSError):
        return MEMORY if shutil.disk_usage(MEMORY).free >= MEMORY_BYTES else None
    return None


def start(name, arguments, folder):
    """Start a lane in a session of its own: Ctrl-C in a terminal interrupts this process alone."""
    output = folder / name
    if "not processes" in arguments:  # A process may be hurt where it lies: a disk is a disk.
        arguments = [*arguments, f"--basetemp={folder / name.replace(' ', '-')}-files"]
    with output.open("wb") as opened:
        process = subprocess.Popen(
            [sys.executable, "-m", "pytest", *OPTIONS, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=opened,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | ONE_THREAD,
        )
    return Lane(name, output, process)


def run(lanes, folder, stopped):
    """Start and show each lane, a few at once, until all have ended or somebody stops them."""
    waiting, started, running = list(lanes), list[Lane](), list[Lane]()
    while (waiting or running) and not stopped.wait(0.5 if running else 0):
        while waiting and len(running) < AT_ONCE:
            name = waiting.pop(0)
            started.append(start(name, lanes[name], folder))
            running.append(started[-1])
        for lane in [each for each in running if each.process.poll() is not None]:
            running.remove(lane)
            show(lane)
        if running and sys.stderr.isatty():
            told = ", ".join(each.percent for each in running)
            print(f"\r{told}", end="  ", file=sys.stderr, flush=True)
    for lane in running:
        lane.process.send_signal(signal.SIGINT)
    for lane in running:
        with contextlib.suppress(subprocess.TimeoutExpired):
            lane.process.wait(TEARDOWN_SECONDS)
        show(lane)
    return started


def show(lane):
    """Print the whole output of a lane."""
    print(f"\n== {lane.name}", flush=True)
    sys.stdout.buffer.write(lane.output.read_bytes())
    sys.stdout.flush()


def end(lanes):
    """Kill every process that the lanes have left behind."""
    left = psutil.Process().children(recursive=True)
    for process in left:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    psutil.wait_procs(left, timeout=10)
    for lane in lanes:
        lane.process.wait()


if __name__ == "__main__":
    sys.exit(main())
