"""Start a sandbox and end it, by bubblewrap or as a container. And test this host's sandbox.

Before a worker takes code submissions, it tries to escape from a real sandbox.
"""

import functools
import json
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

from finishline.rules.verification.messages import BoxWord
from worker.sandbox import bubblewrap, oci, plain
from worker.sandbox.order import RUNNER, Backend, BoxUnavailableError, Order, Started
from worker.sandbox.packages import Bind
from worker.sandbox.processors import running_on
from worker.sandbox.protocol import Limits
from worker.sandbox.usage import Usage

BACKENDS: Mapping[str, ModuleType] = {"bwrap": bubblewrap, "oci": oci, "plain": plain}


class Box:
    """A running sandbox with its channel and its log. Use it as a context.

    Start it from a thread that lives as long as it does: the kernel kills it with that thread.
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
        """The process above all others of the sandbox."""
        return self._started.pid

    def exit_status(self, *, wait_seconds: float) -> int | None:
        """Return the runner's exit status, or None while it runs."""
        try:
            return self._process.wait(wait_seconds)
        except subprocess.TimeoutExpired:
            return None

    def killed_by(self) -> str | None:
        """Name the signal by which the host ended the sandbox. None if it ended otherwise."""
        status = self._process.poll()
        if status is None or status >= 0 or self._backend is plain:
            return None
        return f"signal {-status} ({signal.strsignal(-status) or 'unknown'})"

    def stop(self) -> None:
        """Kill every process of the sandbox. Any thread may call it, and repeatedly."""
        self._started.stop()

    def kill(self) -> None:
        """Kill every process of the sandbox and free its files. May be called repeatedly."""
        self.stop()
        self._process.wait()
        if self._usage is None:
            self._usage = self.usage()
            if self._started.cgroup is not None:
                self._started.cgroup.remove()
        self.socket.close()
        if self._started.held is not None:
            self._started.held.close()
        self.wait_for_log()
        self._remove_folder()

    def usage(self) -> Usage:
        """Return the use of memory and processors that its cgroup counts. Empty without one."""
        if self._usage is None and self._started.cgroup is not None:
            return self._started.cgroup.usage()
        return self._usage or Usage()

    def why_not_started(self) -> str:
        """Say why the sandbox ended before the runner's first frame."""
        last = (self.log_tail().strip().splitlines() or [f"status {self._process.returncode}"])[-1]
        return bubblewrap.reason_of(last) or f"a sandbox did not start: {last}"

    def log_tail(self) -> str:
        return self._tail.decode(errors="replace")

    def wait_for_log(self) -> None:
        """Wait up to 5 s for the log's end, which a second thread reads."""
        self._reader.join(5.0)

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
    """Raise BoxUnavailableError if this host cannot start a sandbox."""
    if not Path("/proc/thread-self/children").exists():
        raise BoxUnavailableError("this kernel lists no children of a process to watch")
    BACKENDS[backend].check_host()


PROBE = RUNNER.with_name("probe.py")
LIMITS = Limits(memory_bytes=256 << 20, processes=32, run_seconds=5.0, prepare_seconds=5.0)
SECONDS = 10.0
LEAKS = {
    "writes_sysctl": "it can write a setting of the kernel",
    "sees_host": "it can read a file or a token of this host",
    "opens_network": "it can open a network connection",
    "reaches_parent": "it can signal processes outside",
    "traces": "it can write to another process's memory",
    "makes_namespace": "it can make a namespace",
    "writes_outside": "it can write outside its scratch folder",
    "forks_past_limit": "it can start more processes than its limit",
    "outgrows_memory": "it can hold more memory than its limit",
}


@functools.cache
def check_box(backend: Backend = "bwrap") -> BoxWord:
    """Start a sandbox on this host and try to escape from it. Runs once in a process.

    "anyone" needs a memory cgroup, because only a cgroup bounds all kinds of memory.
    """
    try:
        check_host(backend)
        leaks = _probe(backend)
    except BoxUnavailableError as error:
        return BoxWord("off", str(error))
    if leaks:
        return BoxWord("off", "a sandbox leaks: " + "; ".join(LEAKS[name] for name in leaks))
    why = BACKENDS[backend].why_no_cgroup()
    if why is None:
        return BoxWord("anyone")
    return BoxWord("known", f"only for approved users, as no memory cgroup bounds it: {why}")


def _probe(backend: Backend) -> list[str]:
    with tempfile.TemporaryDirectory() as folder, tempfile.NamedTemporaryFile() as secret:
        Path(folder).chmod(0o755)
        Path(secret.name).chmod(0o644)
        order = Order(
            package=Path(folder),
            module=secret.name,
            packages={},
            limits=LIMITS,
            extra=[Bind(RUNNER, "/runner.py")],
            runner=PROBE,
            backend=backend,
        )
        with Box(order) as box:
            box.exit_status(wait_seconds=SECONDS)
            box.wait_for_log()
            last = box.log_tail().strip().rpartition("\n")[2]
            if not last.startswith("["):
                raise BoxUnavailableError(box.why_not_started())
            found = json.loads(last)
            return [name for name in LEAKS if name in found]
