"""Start a box: bubblewrap and a seccomp filter, as an ordinary user."""

import json
import os
import platform
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from finishline.rules.trainings.protocol import Limits
from worker.box import own_uid
from worker.box.packages import (
    SITE,
    Bind,
    interpreter_binds,
    library_binds,
    masked_folders,
    package_binds,
)
from worker.box.watch import can_watch

RUNNER = Path(__file__).parent / "inside" / "runner.py"
PACKAGE = "/package"
SCRATCH = "/scratch"
# bubblewrap's own, which ends the box and has none of its limits. A package that writes to its
# memory outlives the run, so its files are hidden.
FIRST_PROCESS = "/proc/1"
OLDEST_BUBBLEWRAP = (0, 8)
BUBBLEWRAP_NEEDED = (
    "bubblewrap 0.8 is needed; on Debian 12, Ubuntu 24.04 and later: apt install bubblewrap"
)
ROOT_REFUSED = (
    "worker runs as root, and this host does not let it start a box through a uid of its own; run "
    "it as an ordinary user"
)
NAMESPACES_REFUSED = (
    "namespaces are refused to ordinary users; in a container run the worker on the host instead, "
    "on Ubuntu 24.04 load AppArmor's profile bwrap-userns-restrict"
)


class BoxUnavailableError(Exception):
    """No box can be started on this host; the message says why and what to do."""


@dataclass(frozen=True)
class Order:
    """A package to run in a box.

    `packages` are the environment's with their versions, `extra` further read-only files.
    """

    package: Path
    module: str
    packages: dict[str, str | None]
    preload: Sequence[str] = ()
    limits: Limits = field(default_factory=Limits)
    extra: Sequence[Bind] = ()
    runner: Path = RUNNER


class Box:
    """A running box: the worker's end of its channel, its log, and its end. Use it as a context.

    Start it from a thread that lives as long as the box: the kernel kills the box with that thread.
    """

    def __init__(self, order: Order) -> None:
        self.limits = order.limits
        self.started_at = time.perf_counter()
        self.log_is_full = False
        self._tail = b""
        self._stage = tempfile.mkdtemp(prefix="finishline-box-") if os.geteuid() == 0 else None
        self.socket, inside = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self._process = _start(order, inside, self._stage)
        except BaseException as error:
            self.socket.close()
            self._remove_stage()
            if isinstance(error, OSError):
                raise BoxUnavailableError(f"bubblewrap could not be started: {error}") from error
            raise
        finally:
            inside.close()
        self._reader = threading.Thread(target=self._read_log, name="box-log", daemon=True)
        self._reader.start()

    def __enter__(self) -> "Box":
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    @property
    def pid(self) -> int:
        """The process of bubblewrap; all others of the box are below it."""
        return self._process.pid

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

    def stop(self) -> None:
        """Kill every process of the box. May be called from any thread, and again."""
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def kill(self) -> None:
        """Kill every process of the box and free its files. May be called again."""
        self.stop()
        self._process.wait()
        self.socket.close()
        self._reader.join(5.0)
        self._remove_stage()

    def why_not_started(self) -> str:
        """The reason of a box that ended before the runner's first frame."""
        last = self.log_tail().strip().splitlines()[-1:]
        if last and re.match(r"bwrap: .*(namespace|uid map|loopback)", last[0]):
            return NAMESPACES_REFUSED
        return f"a box did not start: {last[0] if last else f'status {self._process.returncode}'}"

    def log_tail(self) -> str:
        """The last lines that the package wrote."""
        return self._tail.decode(errors="replace")

    def _remove_stage(self) -> None:
        if self._stage is not None:
            shutil.rmtree(self._stage, ignore_errors=True)

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


def _start(order: Order, inside: socket.socket, stage: str | None) -> "subprocess.Popen[bytes]":
    arguments, binds = _arguments(order, channel=inside.fileno(), staged=stage)
    rules = os.open(filter_path(), os.O_RDONLY | os.O_CLOEXEC)
    listed = os.memfd_create("arguments")
    try:
        os.write(listed, b"\0".join(part.encode() for part in arguments) + b"\0")
        os.lseek(listed, 0, os.SEEK_SET)
        command = [
            find_bubblewrap(),
            "--args", str(listed),
            "--seccomp", str(rules),
            "--",
            *_inner_command(order, inside.fileno()),
        ]  # fmt: skip
        if stage is not None:
            command = own_uid.through(command, [bind.source for bind in binds], stage)
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={"PATH": own_uid.SEARCHED},
            pass_fds=(inside.fileno(), rules, listed),
            start_new_session=True,
        )
    finally:
        os.close(rules)
        os.close(listed)


def _inner_command(order: Order, channel: int) -> list[str]:
    _, program = interpreter_binds()
    orders = {
        "channel": channel,
        "module": order.module,
        "site": SITE,
        "package": PACKAGE,
        "packages": list(order.packages),
        "preload": list(order.preload),
        "limits": _rlimits(order.limits),
    }
    return [program, "-I", "-S", "-B", "-u", f"/{order.runner.name}", json.dumps(orders)]


def _rlimits(limits: Limits) -> dict[str, int]:
    return {
        "RLIMIT_NPROC": limits.processes,
        "RLIMIT_CPU": limits.cpu_seconds,
        "RLIMIT_NOFILE": limits.open_files,
        "RLIMIT_FSIZE": limits.file_bytes,
        "RLIMIT_DATA": limits.memory_bytes,
        "RLIMIT_CORE": 1,  # A core_pattern with a pipe starts a program of the host in spite of 0.
        "RLIMIT_MEMLOCK": 65_536,
        "RLIMIT_MSGQUEUE": 0,
        "RLIMIT_SIGPENDING": 256,
    }


def _arguments(order: Order, *, channel: int, staged: str | None) -> tuple[list[str], list[Bind]]:
    """Arguments of bubblewrap, and the binds in the order in which they are staged."""
    libraries, links = library_binds()
    interpreter, _ = interpreter_binds()
    binds = [
        *libraries,
        *interpreter,
        *package_binds(order.packages),
        Bind(order.runner, f"/{order.runner.name}"),
        Bind(order.package, PACKAGE),
        *order.extra,
    ]
    limits = order.limits
    found = [
        "--unshare-user", "--unshare-all", "--uid", "1000", "--gid", "1000", "--disable-userns",
        "--cap-drop", "ALL", "--die-with-parent", "--new-session", "--hostname", "box",
        "--clearenv",
    ]  # fmt: skip
    for name, value in _variables(limits).items():
        found += ["--setenv", name, value]
    for goal, link in links:
        found += ["--symlink", goal, link]
    for number, bind in enumerate(binds):
        source = f"{staged}/{number}" if staged is not None else str(bind.source)
        found += ["--ro-bind", source, bind.target]
    for folder in masked_folders([*libraries, *interpreter]):
        found += ["--size", "4096", "--tmpfs", folder, "--remount-ro", folder]
    found += [
        "--proc", "/proc", "--tmpfs", FIRST_PROCESS, "--dev", "/dev",
        "--dev-bind", "/dev/null", "/dev/zero",  # Shared, it is memory that no tmpfs bounds.
        "--size", str(limits.shared_memory_bytes), "--tmpfs", "/dev/shm",  # noqa: S108
        "--size", str(limits.scratch_bytes), "--tmpfs", SCRATCH,
        "--remount-ro", FIRST_PROCESS, "--remount-ro", "/dev", "--remount-ro", "/",
        "--chdir", SCRATCH,
    ]  # fmt: skip
    return found, binds


def _variables(limits: Limits) -> dict[str, str]:
    threads = str(limits.threads)
    return {
        "PATH": "/nowhere",
        "HOME": SCRATCH,
        "TMPDIR": SCRATCH,
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONHASHSEED": "0",
        "OMP_NUM_THREADS": threads,
        "MKL_NUM_THREADS": threads,
        "OPENBLAS_NUM_THREADS": threads,
        "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
    }


def check_host() -> None:
    """Raise BoxUnavailableError where no box can be started, before one is."""
    find_bubblewrap()
    if not can_watch():
        raise BoxUnavailableError("this kernel lists no children of a process to watch")
    if os.geteuid() == 0 and not own_uid.is_allowed():
        raise BoxUnavailableError(ROOT_REFUSED)


def filter_path(machine: str | None = None) -> Path:
    """The seccomp filter of a machine, or of this one: bytes that a test builds again."""
    return Path(__file__).parent / f"{machine or platform.machine()}.bpf"


def find_bubblewrap() -> str:
    """The path of a bubblewrap that is new enough. Raises BoxUnavailableError."""
    found = shutil.which("bwrap")
    if found is None or sys.platform != "linux":
        raise BoxUnavailableError(BUBBLEWRAP_NEEDED)
    said = subprocess.run([found, "--version"], capture_output=True, text=True, check=False)
    try:
        version = tuple(int(part) for part in said.stdout.split()[-1].split(".")[:2])
    except (ValueError, IndexError):
        version = (0, 0)
    if version < OLDEST_BUBBLEWRAP:
        raise BoxUnavailableError(BUBBLEWRAP_NEEDED)
    if not filter_path().exists():
        raise BoxUnavailableError(f"no filter for {filter_path().stem}")
    return found
