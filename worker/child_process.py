"""The parent's side of a training process: start it, stamp its events, kill all of it."""

import contextlib
import json
import os
import queue
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO, Any

from finishline.rules.verification.messages import ReplayJob
from worker.box.order import Backend
from worker.group import GroupChannel, Meeting, launch_options
from worker.processes import child_environment, kill_session
from worker.sensors import Sensors

LOG_TAIL_BYTES = 4_000
LINE_LIMIT_BYTES = 64_000
CHILD_COMMAND = (sys.executable, "-m", "worker.child")


@dataclass(frozen=True)
class Host:
    """Host of a training. `command` starts one of its `processes`, `sensors` observe it.

    At the `meeting` other hosts train along, each with as many processes. `box` makes its boxes, in
    which packages may compile if it `has_compiler`.
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


class ChildProcess:
    """A training process in a session of its own, so that all it starts can be killed with it.

    Start it from the thread that lives as long as the worker does: the kernel kills the child when
    the thread that started it ends.
    """

    def __init__(self, orders: dict[str, Any], *, host: Host) -> None:
        self.started_at = time.perf_counter()
        is_group = host.processes > 1 or host.meeting is not None
        self._group = GroupChannel(orders) if is_group else None
        if self._group is None:
            self._process = _start(host.command, host, stderr=subprocess.PIPE)
            events, log = _stream(self._process.stdout), _stream(self._process.stderr)
        else:
            self._process = _start_group(self._group, host)
            events, log = open(self._group.reader, "rb"), _stream(self._process.stdout)  # noqa: PTH123, SIM115
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
        """The next line, or None if none comes in time."""
        try:
            return self._lines.get(timeout=wait_seconds)
        except queue.Empty:
            return None

    def exit_code(self, *, wait_seconds: float) -> int | None:
        """Exit code of the process (negative: the signal), None if it still runs after waiting."""
        try:
            return self._process.wait(timeout=wait_seconds)
        except subprocess.TimeoutExpired:
            return None

    def kill(self) -> None:
        """End the process and everything it started, at once; harmless if it is gone."""
        kill_session(self._process)
        self._process.wait()
        for thread in self._threads:
            thread.join(timeout=5)
        if self._group is not None:
            self._group.remove()

    def log_tail(self) -> str:
        """The end of the process's standard error."""
        return self._tail.decode(errors="replace")

    def _read_events(self, events: IO[bytes]) -> None:
        with events as stream:
            while text := stream.readline(LINE_LIMIT_BYTES):
                self._lines.put(Line(at=time.perf_counter(), text=text))
        self._lines.put(Line(at=time.perf_counter(), text=None))

    def _read_log(self, log: IO[bytes]) -> None:
        with log as stream:
            while chunk := os.read(stream.fileno(), LINE_LIMIT_BYTES):
                self._tail = (self._tail + chunk)[-LOG_TAIL_BYTES:]


def _start_group(group: GroupChannel, host: Host) -> subprocess.Popen[bytes]:
    """Start the launcher of several processes; both its outputs are log."""
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
        group.close_writer()


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


def orders_of(job: ReplayJob, index: int, *, host: Host) -> dict[str, Any]:
    training = job.trainings[index]
    latency = job.latency if "latency" in training.measure else None
    return {
        "parent_pid": os.getpid(),
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
