"""Child processes that end with their parent and can be ended with all of their own."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import IO

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# Looked up before any fork: a child between fork and exec must not load libraries.
_PRCTL = ctypes.CDLL(None).prctl if sys.platform == "linux" else None

Stream = int | IO[bytes]


def python_module(module: str, *arguments: str) -> list[str]:
    """The command that runs an installed module; -P keeps the current folder from shadowing it."""
    return [sys.executable, "-P", "-m", module, *arguments]


def spawn(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    stdout: Stream | None = None,
    stderr: Stream | None = None,
    death_signal: signal.Signals = signal.SIGTERM,
) -> "subprocess.Popen[bytes]":
    """Start a process in a session of its own, with nothing on its standard input.

    On Linux it gets `death_signal` when the thread that started it ends, however it ends; so
    start it from the main thread.
    """
    return subprocess.Popen(
        list(command),
        env=None if environment is None else dict(environment),
        stdin=subprocess.DEVNULL,
        stdout=stdout,
        stderr=stderr,
        start_new_session=True,
        preexec_fn=_die_with_parent(os.getpid(), death_signal) if _PRCTL else None,
    )


def _die_with_parent(parent_pid: int, death_signal: signal.Signals) -> Callable[[], None]:
    def before_exec() -> None:
        if _PRCTL is not None:
            _PRCTL(PR_SET_PDEATHSIG, int(death_signal), 0, 0, 0)
        # The parent may have gone before the line above.
        if os.getppid() != parent_pid:
            os._exit(1)

    return before_exec


def adopt_orphans() -> None:
    """Become the parent of descendants whose own parent dies, so that they can be ended."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def signal_group(pid: int, number: signal.Signals) -> None:
    """Signal every process in the group that `pid` leads; gone is as good."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def end(process: "subprocess.Popen[bytes]", *, limit_seconds: float = 5.0) -> None:
    """Ask a process to end, wait up to a limit, then kill its group."""
    if process.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(limit_seconds)
    signal_group(process.pid, signal.SIGKILL)
    process.wait()
