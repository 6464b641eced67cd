"""Watch the processes of a sandbox: memory ten times a second, and processor time."""

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

PERIOD_SECONDS = 0.1
# Counting shared pages once takes as long as all processes have pages: 50 ms a GiB.
MOST_SHARED = 4
TICKS = os.sysconf("SC_CLK_TCK")


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


def can_watch() -> bool:
    """Say whether this kernel lists the children of a process."""
    return Path("/proc/thread-self/children").exists()


def _field_bytes(pid: int, file: str, fields: tuple[str, ...]) -> int:
    try:
        lines = Path(f"/proc/{pid}/{file}").read_text().splitlines()
    except OSError:
        return 0
    return sum(1024 * int(line.split()[1]) for line in lines if line.startswith(fields))
