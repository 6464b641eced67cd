"""Child processes that end with their parent, and the events that they write."""

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import IO, Any

from finishline.cli.errors import CliError, ExitCode

PR_SET_PDEATHSIG = 1
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


# Programs of a worker's box, and the meanings of their exit codes.
TRAIN, TRY_TASK = "worker.box.local", "worker.box.trial"
FAILED = {2: ExitCode.REFUSED, 3: ExitCode.NOT_VERIFIED, 4: ExitCode.SERVER}


def box_events(program: str, arguments: list[str]) -> Iterator[dict[str, Any]]:
    """Events of a box's program, the last of kind `exit`. Raises CliError if it could not begin."""
    for event in child_events(python_module(program, *arguments)):
        if event.get("kind") == "exit" and (code := event["code"]) not in (0, 3):
            why = event["said"] or f"exit code {code}"
            raise CliError(why, exit_code=FAILED.get(code, ExitCode.SERVER))
        if "kind" in event:
            yield event
