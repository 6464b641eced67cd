"""Start a box, and end it: by bubblewrap, or as a container."""

import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import IO

from worker.sandbox import bubblewrap, oci, plain
from worker.sandbox.cgroup import Usage
from worker.sandbox.order import Backend, BoxUnavailableError, Order, Started
from worker.sandbox.processors import running_on
from worker.sandbox.watch import can_watch

BACKENDS: Mapping[str, ModuleType] = {"bwrap": bubblewrap, "oci": oci, "plain": plain}


class Box:
    """A running box: the worker's end of its channel, its log, and its end. Use it as a context.

    Start it from a thread that lives as long as the box: the kernel kills the box with that thread.
    """

    def __init__(self, order: Order) -> None:
        self.limits = order.limits
        self.started_at = time.perf_counter()
        self.log_is_full = False
        self._tail = b""
        self._usage: Usage | None = None
        self._backend = BACKENDS[order.backend]
        self._folder = tempfile.mkdtemp(prefix="finishline-box-")
        try:
            with running_on(order.processors):
                self._started: Started = self._backend.launch(order, Path(self._folder))
        except BaseException as error:
            self._remove_folder()
            if isinstance(error, OSError):
                raise BoxUnavailableError(f"a sandbox could not be started: {error}") from error
            raise
        self.socket = self._started.channel
        self._process: subprocess.Popen[bytes] = self._started.process
        self._reader = threading.Thread(target=self._read_log, name="box-log", daemon=True)
        self._reader.start()

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process above all others of the box."""
        return self._started.pid

    @property
    def reads(self) -> bool:
        """Whether more of the log may come."""
        return self._reader.is_alive()

    def exit_status(self, *, wait_seconds: float) -> int | None:
        """The runner's exit status, or None while it runs."""
        try:
            return self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return None

    def killed_by(self) -> str | None:
        """The signal that ended the program above the box, in words; None if it ended otherwise.

        Nothing inside a box can reach that program. Without a box it is the package's own process.
        """
        status = self._process.poll()
        if status is None or status >= 0 or self._backend is plain:
            return None
        return f"signal {-status} ({signal.strsignal(-status) or 'unknown'})"

    def stop(self) -> None:
        """Kill every process of the box. May be called from any thread, and again."""
        self._started.stop()

    def kill(self) -> None:
        """Kill every process of the box and free its files. May be called again."""
        self.stop()
        self._process.wait()
        if self._usage is None:
            self._usage = self.usage()
            if self._started.cgroup is not None:
                self._started.cgroup.remove()
        self.socket.close()
        if self._started.held is not None:
            self._started.held.close()
        self._reader.join(5.0)
        self._remove_folder()

    def usage(self) -> Usage:
        """Use of memory and processors, as its cgroup counts them; empty without one."""
        if self._usage is None and self._started.cgroup is not None:
            return self._started.cgroup.usage()
        return self._usage or Usage()

    def why_not_started(self) -> str:
        """The reason of a box that ended before the runner's first frame."""
        last = (self.log_tail().strip().splitlines() or [f"status {self._process.returncode}"])[-1]
        return self._backend.reason_of(last) or f"a sandbox did not start: {last}"

    def log_tail(self) -> str:
        """The last lines that the package wrote."""
        return self._tail.decode(errors="replace")

    def _remove_folder(self) -> None:
        shutil.rmtree(self._folder, ignore_errors=True)

    def _read_log(self) -> None:
        output: IO[bytes] = self._process.stdout  # type: ignore[assignment]
        total = 0
        with output:
            while part := os.read(output.fileno(), 65_536):
                total += len(part)
                self._tail = (self._tail + part)[-self.limits.log_tail_bytes :]
                if total > self.limits.log_bytes:
                    self.log_is_full = True
                    return


def check_host(backend: Backend) -> None:
    """Raise BoxUnavailableError where no box can be started, before one is."""
    if not can_watch():
        raise BoxUnavailableError("this kernel lists no children of a process to watch")
    BACKENDS[backend].check_host()
