"""The parent's side of a process that trains or measures: start it, stamp its events, kill it.

The worker itself stays free of torch. A measuring module is started as `python -m MODULE`.
"""

import contextlib
import json
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from finishline.rules.verification.messages import ReplayJob
from worker.events import Answer
from worker.group import GroupChannel, Meeting, launch_options
from worker.machine.sensors import Sensors
from worker.sandbox.order import Backend

LOG_TAIL_BYTES = 4_000
LINE_LIMIT_BYTES = 16 << 20
CHUNK_BYTES = 64_000
POLL_SECONDS = 0.05
EXIT_SECONDS = 5.0
Measure = Callable[[str, Mapping[str, Any], float], Answer | None]
"""Measures: a module, its orders, the seconds it may take."""

log = logging.getLogger(__name__)

CHILD_COMMAND = (sys.executable, "-m", "worker.child")


@dataclass(frozen=True)
class Host:
    """Host of a training. `command` starts one of its `processes`, `sensors` observe it.

    At the `meeting` other hosts train along, each with as many processes. `box` names the kind of
    sandbox, and `has_compiler` lets code compile in it.
    """

    device: str
    data_dir: Path
    threads: int = 1
    processes: int = 1
    command: Sequence[str] = CHILD_COMMAND
    sensors: Sensors | None = None
    meeting: Meeting | None = None
    box: Backend = "bwrap"
    has_compiler: bool = False


@dataclass(frozen=True)
class Line:
    """One line of the child, or its end (`text` None), stamped on arrival."""

    at: float
    text: bytes | None


class ChildError(Exception):
    """A process ended before its first event. The message says why."""


class ChildProcess:
    """A process in its own session, so that the worker can kill its whole tree.

    Start it from a thread that lives as long as the worker. The kernel kills the child when the
    thread that started it ends.
    """

    def __init__(self, orders: Mapping[str, Any], *, host: Host, niceness: int = 0) -> None:
        orders = dict(orders) | {"parent_pid": os.getpid()}
        self.started_at = time.perf_counter()
        is_group = host.processes > 1 or host.meeting is not None
        self._group = GroupChannel(orders) if is_group else None
        if self._group is None:
            self._process = _start(host.command, host, stderr=subprocess.PIPE)
            events, log = _stream(self._process.stdout), _stream(self._process.stderr)
        else:
            self._process = _start_group(self._group, host)
            events, log = open(self._group.reader, "rb"), _stream(self._process.stdout)  # noqa: PTH123, SIM115
        if niceness:
            os.setpriority(os.PRIO_PROCESS, self._process.pid, niceness)
        self._lines: queue.SimpleQueue[Line] = queue.SimpleQueue()
        self._tail = b""
        self._threads = [
            threading.Thread(target=self._read_events, args=(events,), name="events", daemon=True),
            threading.Thread(target=self._read_log, args=(log,), name="log", daemon=True),
        ]
        for thread in self._threads:
            thread.start()
        if self._group is None:
            stdin = _stream(self._process.stdin)
            with contextlib.suppress(BrokenPipeError):  # Its death shows at the end of the events.
                stdin.write(json.dumps(orders).encode())
            with contextlib.suppress(BrokenPipeError):
                stdin.close()

    def next_line(self, *, wait_seconds: float) -> Line | None:
        """Return the next line, or None after `wait_seconds`."""
        try:
            return self._lines.get(timeout=wait_seconds)
        except queue.Empty:
            return None

    def first_event(
        self, *, limit_seconds: float, stop: Callable[[], object] = lambda: False
    ) -> dict[str, Any]:
        """Return the first event. Raises ChildError if it ended, was too slow or had to stop."""
        give_up_at = time.monotonic() + limit_seconds
        while time.monotonic() < give_up_at and not stop():
            line = self.next_line(wait_seconds=POLL_SECONDS)
            if line is not None and line.text is not None:
                event: dict[str, Any] = json.loads(line.text)
                return event
            if line is not None:
                exit_code = self.exit_code(wait_seconds=EXIT_SECONDS)
                self._threads[1].join(EXIT_SECONDS)
                last = (self.log_tail().strip().splitlines() or ["nothing on standard error"])[-1]
                raise ChildError(f"ended with exit code {exit_code}: {last}")
        raise ChildError(f"took longer than {limit_seconds:g} s and was stopped")

    def exit_code(self, *, wait_seconds: float) -> int | None:
        """Return the exit code (negative: the signal), None if it still runs after waiting."""
        try:
            return self._process.wait(timeout=wait_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End the process and everything it started, at once. Harmless if it is gone."""
        if self._process.returncode is None:  # Reaped: its number may belong to another process.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5)
        if self._group is not None:
            self._group.remove()

    def log_tail(self) -> str:
        """Return the end of the process's standard error."""
        return self._tail.decode(errors="replace")

    def _read_events(self, events: IO[bytes]) -> None:
        with events as stream:
            while text := stream.readline(LINE_LIMIT_BYTES):
                self._lines.put(Line(at=time.perf_counter(), text=text))
        self._lines.put(Line(at=time.perf_counter(), text=None))

    def _read_log(self, log: IO[bytes]) -> None:
        with log as stream:
            while chunk := os.read(stream.fileno(), CHUNK_BYTES):
                self._tail = (self._tail + chunk)[-LOG_TAIL_BYTES:]


def _start_group(group: GroupChannel, host: Host) -> subprocess.Popen[bytes]:
    """Start the launcher of several processes. Both its outputs are log."""
    python, *command = host.command
    options = launch_options(host.processes, host.meeting)
    launcher = (python, "-m", "worker.group", str(os.getpid()), str(group.folder), *options)
    try:
        return _start(
            (*launcher, *command),
            host,
            stdin=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            pass_fds=(group.writer,),
        )
    finally:
        os.close(group.writer)  # It is the launcher's and its processes'.


def _start(
    command: Sequence[str],
    host: Host,
    *,
    stderr: int,
    stdin: int = subprocess.PIPE,
    pass_fds: Sequence[int] = (),
) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=stdin,
        stdout=subprocess.PIPE,
        stderr=stderr,
        env=child_environment(host.threads),
        start_new_session=True,
        pass_fds=pass_fds,
    )


def _stream(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - every stream of the child is a pipe
    return stream


def child_environment(threads: int) -> dict[str, str]:
    """Copy the worker's environment, minus its secrets, with the thread count set everywhere."""
    inherited = {k: v for k, v in os.environ.items() if not k.startswith("FINISHLINE_")}
    pools = ("OMP", "MKL", "OPENBLAS", "NUMEXPR")
    return (
        inherited
        | {f"{pool}_NUM_THREADS": str(threads) for pool in pools}
        | {"PYTHONUNBUFFERED": "1"}
    )


def answer_of(
    module: str,
    orders: Mapping[str, Any],
    limit_seconds: float,
    *,
    stop: Callable[[], object] = lambda: False,
    niceness: int = 0,
    processes: int = 1,
) -> Answer:
    """Run a measuring module in this many processes. Raises ChildError if it fails to answer.

    It gets the orders' threads, or one. `stop` ends it at once. With a `niceness` it leaves the
    processor to others.
    """
    host = Host(
        device=str(orders.get("device", "cpu")),
        data_dir=Path(),
        threads=int(orders.get("threads", 1)),
        processes=processes,
        command=(sys.executable, "-m", module),
    )
    child = ChildProcess(orders, host=host, niceness=niceness)
    try:
        event = child.first_event(limit_seconds=limit_seconds, stop=stop)
        answer: Answer = event["answer"]
        return answer
    except (ValueError, TypeError, KeyError) as error:
        raise ChildError("answered with no JSON object") from error
    finally:
        child.kill()


def measure_apart(
    module: str,
    orders: Mapping[str, Any],
    limit_seconds: float,
    *,
    stop: Callable[[], object] = lambda: False,
    niceness: int = 0,
) -> Answer | None:
    """Run a measuring module. A failure or a late answer is logged and returns None."""
    try:
        return answer_of(module, orders, limit_seconds, stop=stop, niceness=niceness)
    except ChildError as error:
        if not stop():
            log.warning("%s %s", module, error)
        return None


def orders_of(job: ReplayJob, index: int, *, host: Host) -> dict[str, Any]:
    training = job.trainings[index]
    latency = job.latency if "latency" in training.measure else None
    return {
        "reference": training.package,
        "hyperparameters": training.settings,
        "precision": training.precision,
        "seed": training.seed,
        "device": host.device,
        "data_dir": str(host.data_dir),
        "data_set_sha256": job.data_set_sha256,
        "target": asdict(job.target),
        "stop_at": training.stop_at,
        "latency": asdict(latency) if latency is not None else None,
    }
