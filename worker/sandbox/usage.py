"""What a sandbox uses: by its cgroup of version 2, and by watching its processes.

It has a cgroup if the worker's own is delegated to it. systemd delegates a unit's or scope's with
`Delegate=yes`. A container engine may do so too. Without one the worker looks at the memory ten
times a second, and adds up processor time.
"""

import functools
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from worker.sandbox.protocol import Limits

ROOT = Path("/sys/fs/cgroup")
CONTROLLERS = ("memory", "pids", "cpu")
# A cgroup with controlled children must be empty itself, so the worker moves here.
LEAF = "worker"
# bubblewrap's own, and the programs that start it.
OTHER_PROCESSES = 4
PERIOD_US = 100_000
REMOVE_SECONDS = 1.0
# The shell enters the cgroup before it becomes the sandbox, so every process is inside.
ENTER = 'echo $$ > "$0" && exec "$@"'
_NUMBERS = count()
PERIOD_SECONDS = 0.1
# Counting shared pages once takes as long as all processes have pages: 50 ms a GiB.
MOST_SHARED = 4
TICKS = os.sysconf("SC_CLK_TCK")


class NoCgroupError(Exception):
    """Sandboxes have no cgroup on this host. The message says why."""


@dataclass(frozen=True)
class Usage:
    """Use of memory and processors by a whole sandbox. None if the kernel skips it."""

    peak_bytes: int | None = None
    was_killed: bool = False  # for memory
    processor_seconds: float | None = None


class BoxCgroup:
    """The cgroup of one sandbox, below the worker's. Raises OSError if it cannot be made."""

    def __init__(self, parent: Path, limits: Limits) -> None:
        self.folder = parent / f"box-{os.getpid()}-{next(_NUMBERS)}"
        self.folder.mkdir()
        wanted = {
            "memory.max": limits.memory_bytes,
            "memory.oom.group": 1,
            "pids.max": limits.processes + OTHER_PROCESSES,
            "cpu.max": f"{limits.threads * PERIOD_US} {PERIOD_US}",
        }
        try:
            for name, value in wanted.items():
                (self.folder / name).write_text(str(value))
            with suppress(FileNotFoundError):  # Kernels without swap lack this file.
                (self.folder / "memory.swap.max").write_text("0")
        except OSError:
            self.remove()
            raise

    def entering(self, command: list[str]) -> list[str]:
        """Wrap a command so that it starts in this cgroup."""
        return ["/bin/sh", "-c", ENTER, str(self.folder / "cgroup.procs"), *command]

    def usage(self) -> Usage:
        """Return the use so far, which is the whole run's once the sandbox has ended."""
        events = self._read("memory.events")
        microseconds = self._read("cpu.stat").get("usage_usec")
        return Usage(
            peak_bytes=self._read("memory.peak").get(""),
            was_killed=events.get("oom_kill", 0) > 0,
            processor_seconds=None if microseconds is None else microseconds / 1e6,
        )

    def remove(self) -> None:
        """Remove the cgroup of an ended sandbox. Its last processes may still be ending."""
        give_up_at = time.monotonic() + REMOVE_SECONDS
        while self.folder.exists() and time.monotonic() < give_up_at:
            try:
                self.folder.rmdir()
            except OSError:
                time.sleep(0.01)

    def _read(self, name: str) -> dict[str, int]:
        """Read numbers by their names. A single number has an empty name."""
        try:
            lines = (self.folder / name).read_text().splitlines()
        except OSError:
            return {}
        parts = (line.rpartition(" ") for line in lines)
        return {key: int(value) for key, _, value in parts if value.isdigit()}


def delegate(root: Path, own: str) -> Path:
    """Prepare the worker's cgroup for its sandboxes. Raises NoCgroupError.

    `own` is the text of /proc/self/cgroup. The worker's processes move to a child of their cgroup.
    """
    path = next((line[3:] for line in own.splitlines() if line.startswith("0::/")), None)
    folder = root / (path or "/").lstrip("/")
    try:
        controllers = (folder / "cgroup.controllers").read_text().split()
        # Only delegated cgroups have a type, unlike the host's root.
        is_there = path is not None and (folder / "cgroup.type").exists()
    except OSError:
        is_there, controllers = False, []
    if not is_there or not set(CONTROLLERS) <= set(controllers):
        raise NoCgroupError(f"the worker has none of version 2 with {', '.join(CONTROLLERS)}")
    if not os.access(folder, os.W_OK) or not os.access(folder / "cgroup.procs", os.W_OK):
        raise NoCgroupError("the worker may not write to its own; systemd: Delegate=yes")
    try:
        members = (folder / "cgroup.procs").read_text().split()
        if not set(members) <= {str(os.getpid()), *below(os.getpid())}:
            raise NoCgroupError("other processes are in the worker's; start it as a unit alone")
        (folder / LEAF).mkdir(exist_ok=True)
        for member in members:
            (folder / LEAF / "cgroup.procs").write_text(member)
        wanted = " ".join(f"+{name}" for name in CONTROLLERS)
        (folder / "cgroup.subtree_control").write_text(wanted)
    except OSError as error:
        raise NoCgroupError(f"the worker's cannot be divided: {error}") from error
    return folder


@functools.cache
def delegated() -> Path | NoCgroupError:
    """Return the folder of this process's delegated cgroup, or why it is missing."""
    try:
        return delegate(ROOT, Path("/proc/self/cgroup").read_text())
    except OSError:
        return NoCgroupError("this kernel has none")
    except NoCgroupError as error:
        return error


class MemoryWatch:
    """Calls `exceeded` once when the processes below `pid` hold more than `limit_bytes`."""

    def __init__(self, pid: int, *, limit_bytes: int, exceeded: Callable[[int], None]) -> None:
        self.peak_bytes = 0
        self._pid = pid
        self._limit = limit_bytes
        self._exceeded = exceeded
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="box-memory", daemon=True)
        self._thread.start()

    def __enter__(self) -> "MemoryWatch":
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join(5.0)

    def _run(self) -> None:
        while not self._stopped.wait(PERIOD_SECONDS):
            used = tree_bytes(self._pid, limit_bytes=self._limit)
            self.peak_bytes = max(self.peak_bytes, used)
            if used > self._limit:
                self._exceeded(used)
                return


def tree_bytes(pid: int, *, limit_bytes: int) -> int:
    """Return the bytes that the processes below one hold.

    Up to the limit it is a cheap count, which adds a shared page for each process. Above it a walk
    through every page counts shared pages once. From four times the limit the walk would be too
    slow, so the cheap count decides.
    """
    found = [int(name) for name in below(pid)]
    tables = sum(_field_bytes(one, "status", ("VmPTE:", "HugetlbPages:")) for one in found)
    resident = sum(_field_bytes(one, "status", ("VmRSS:", "VmSwap:")) for one in found)
    if not limit_bytes < tables + resident <= MOST_SHARED * limit_bytes:
        return tables + resident
    return tables + sum(map(_own_part_bytes, found))


def _own_part_bytes(pid: int) -> int:
    """Return a process's bytes with its part of shared pages, or all if it hides its pages."""
    part = _field_bytes(pid, "smaps_rollup", ("Pss:", "SwapPss:"))
    return part or _field_bytes(pid, "status", ("VmRSS:", "VmSwap:"))


def below(pid: int | str) -> Iterator[str]:
    """Yield the descendants of a process."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
    except OSError:  # The process has ended.
        return
    for thread in threads:
        with suppress(OSError):
            for child in (thread / "children").read_text().split():
                yield child
                yield from below(child)


@dataclass(frozen=True)
class ProcessorTime:
    """Seconds that threads ran, and seconds that they were ready and waited for a processor."""

    ran: float
    waited: float

    def share_since(self, before: "ProcessorTime") -> float | None:
        """Return the part of the ready time in which they ran, None if the kernel counts none."""
        ran, waited = self.ran - before.ran, self.waited - before.waited
        return ran / (ran + waited) if ran > 0.0 and waited >= 0.0 else None


def processor_time(pid: int) -> ProcessorTime:
    """Return the processor time of the live processes below one."""
    ran = waited = 0
    for one in below(pid):
        with suppress(OSError):
            for thread in Path(f"/proc/{one}/task").iterdir():
                with suppress(OSError, ValueError):
                    used, ready, _ = (thread / "schedstat").read_text().split()
                    ran, waited = ran + int(used), waited + int(ready)
    return ProcessorTime(ran / 1e9, waited / 1e9)


class ProcessorUse:
    """Counts processor seconds of the processes below `pid` from now on.

    `counted` returns the kernel's count for all of them, None if it has none. Without it the time
    of an ended process is its parent's, or its last reading if its parent skipped the wait. So call
    `seconds` often.
    """

    def __init__(self, pid: int, *, counted: Callable[[], float | None] = lambda: None) -> None:
        self._pid = pid
        self._counted = counted
        self._used: dict[str, float] = {}
        self._before = self._totals()

    def seconds(self) -> float:
        return max(now - before for now, before in zip(self._totals(), self._before, strict=True))

    def _totals(self) -> tuple[float, float, float]:
        """Return seconds by the kernel, by live processes and waited children, by last readings."""
        living = 0.0
        for one in below(self._pid):
            own, of_children = _processor_seconds(one)
            self._used[one] = max(self._used.get(one, 0.0), own)
            living += own + of_children
        return self._counted() or 0.0, living, sum(self._used.values())


def _processor_seconds(pid: str) -> tuple[float, float]:
    """Return processor seconds of a process, and of the children that it waited for."""
    try:
        # The name before the last bracket may hold anything.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0, 0.0
    user, system, users, systems = map(int, fields[11:15])
    return (user + system) / TICKS, (users + systems) / TICKS


def _field_bytes(pid: int, file: str, fields: tuple[str, ...]) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(fields))
