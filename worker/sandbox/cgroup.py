"""A cgroup of version 2 for each sandbox, if the worker's own is delegated to it.

systemd delegates a unit's or scope's with `Delegate=yes`. A container engine may do so too.
"""

import functools
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path

from worker.sandbox.protocol import Limits
from worker.sandbox.watch import below

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
