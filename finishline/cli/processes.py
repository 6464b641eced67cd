"""Child processes that end with their parent, and Ctrl-C."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from types import FrameType
from typing import IO, Any

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
    """Become the parent of orphaned descendants, so that they can be ended."""
    if _PRCTL is not None:
        _PRCTL(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(own: Container[int]) -> None:
    """Forget the adopted orphans that have ended; the `own` processes are their starter's to reap.

    Each box leaves one, and a process that has ended keeps its number until it is reaped.
    """
    if _PRCTL is None:
        return
    with contextlib.suppress(ChildProcessError):
        while ended := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            if ended.si_pid in own:
                return
            os.waitpid(ended.si_pid, 0)


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


def child_events(
    command: Sequence[str],
    *,
    environment: Mapping[str, str] | None = None,
    say: Callable[[str], None] | None = None,
) -> Iterator[dict[str, Any]]:
    """Yield the events of a child process, which writes each as a line with a JSON object.

    The last is of kind `exit`, with the `code` and the last line that the child `said`. Other lines
    are skipped. With `say`, standard error comes in turn with the events, and `say` takes each line
    that is no event. The child ends when the caller stops asking.
    """
    said = ""
    with tempfile.TemporaryFile() as errors:
        stderr = errors if say is None else subprocess.STDOUT
        child = spawn(command, environment=environment, stdout=subprocess.PIPE, stderr=stderr)
        try:
            assert child.stdout is not None  # noqa: S101  (it was asked for just above)
            for line in child.stdout:
                event = _event(line)
                if event is not None:
                    yield event
                elif say is not None:
                    said = line.decode(errors="replace").rstrip()
                    say(said)
            code = child.wait()
        finally:
            end(child)
            if child.stdout is not None:
                child.stdout.close()
        errors.seek(0)
        for line in errors:
            said = line.decode(errors="replace").strip() or said
    yield {"kind": "exit", "code": code, "said": said.removeprefix("error: ")}


def _event(line: bytes) -> dict[str, Any] | None:
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None


SENTENCE = b"Stopping: waiting for what is on its way; press Ctrl-C again to leave it.\n"


class Interrupts:
    """Count of Ctrl-C presses. `stopping` is an event, so that threads can wait for it."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self.leaving = False

    def take(self, _number: int, _frame: FrameType | None) -> None:
        """Note one. From the third on it is a KeyboardInterrupt like any other."""
        if self.leaving:
            raise KeyboardInterrupt
        if self.stopping.is_set():
            self.leaving = True
            return
        self.stopping.set()
        # A buffered write is not allowed here: one may have been interrupted.
        with contextlib.suppress(OSError, ValueError):
            os.write(sys.stderr.fileno(), SENTENCE)


@contextlib.contextmanager
def noted_interrupts() -> Iterator[Interrupts]:
    """Note Ctrl-C within the block instead of raising KeyboardInterrupt (main thread only)."""
    interrupts = Interrupts()
    previous = signal.signal(signal.SIGINT, interrupts.take)
    try:
        yield interrupts
    finally:
        signal.signal(signal.SIGINT, previous)
