"""The processors of a sandbox, and waking the worker when the code has sent something.

The code goes on to compute after it has sent its predictions. A process that wakes up on its
processor waits until the code's slice is over: 5.6 ms with two processors on Linux 6.18. A shorter
slice wakes at once (Linux 6.12, `sched_setattr` with `sched_runtime`). Earlier kernels ignore the
length, and preempt by rules of their own.
"""

import ctypes
import os
import platform
import random
import socket
import struct
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

SHORTEST_SLICE_NS = 100_000
_SET_ATTRIBUTES = {"x86_64": 314, "aarch64": 274}
# struct sched_attr: size, policy, flags, nice, priority, runtime, deadline, period, two clamps.
_ATTRIBUTES = struct.Struct("IIQiIQQQII")
_LIBC = ctypes.CDLL(None)
SAMPLE_SECONDS = 0.05
NAME = "finishline-processor"
IDLE = slice(3, 5)  # Of a processor's line in /proc/stat: idle, and waiting for a disk.


@contextmanager
def quiet_processors(count: int) -> Iterator[frozenset[int]]:
    """Take the least busy processors, on separate cores while there are cores.

    Until the block ends, other runs on this host prefer other processors. A process with at most
    `count` processors gets all of them.
    """
    own = os.sched_getaffinity(0)
    if len(own) <= count:
        yield frozenset(own)
        return
    before = _idle_ticks()
    time.sleep(SAMPLE_SECONDS)
    after = _idle_ticks()
    idle = {one: after.get(one, 0) - before.get(one, 0) for one in own}
    ordered = in_order(idle, {one: _core(one) for one in own})
    with ExitStack() as stack:
        taken: list[int] = []
        for one in ordered:
            if len(taken) < count and _take(one, stack):
                taken.append(one)
        others = [one for one in ordered if one not in taken]
        yield frozenset([*taken, *others][:count])


def in_order(idle: Mapping[int, int], cores: Mapping[int, str]) -> list[int]:
    """Order processors by their idle ticks and the names of their cores. Equals are shuffled."""
    of_core = defaultdict[str, list[int]](list)
    for one in sorted(idle, key=lambda one: (-idle[one], random.random())):  # noqa: S311
        of_core[cores[one]].append(one)
    turns = {one: turn for members in of_core.values() for turn, one in enumerate(members)}
    idle_of_core = {core: sum(idle[one] for one in members) for core, members in of_core.items()}
    return sorted(turns, key=lambda one: (turns[one], -idle_of_core[cores[one]]))


def _take(processor: int, stack: ExitStack) -> bool:
    """Claim a processor's name by a socket, which the kernel frees when this process ends."""
    name = stack.enter_context(socket.socket(socket.AF_UNIX))
    try:
        name.bind(f"\0{NAME}-{processor}")
    except OSError:
        return False
    return True


@contextmanager
def running_on(processors: frozenset[int]) -> Iterator[None]:
    """Run the calling thread's children on these processors, or on all if empty."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, processors or before)
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def _idle_ticks() -> dict[int, int]:
    """Return each processor's idle ticks since the host started."""
    rows = (line.split() for line in Path("/proc/stat").read_text().splitlines())
    return {
        int(name[3:]): sum(map(int, ticks[IDLE]))
        for name, *ticks in rows
        if name[:3] == "cpu" and name[3:].isdigit()
    }


def _core(processor: int) -> str:
    """Name a processor's core by its siblings, or by its own number."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{processor}/topology/thread_siblings_list")
    try:
        return siblings.read_text().strip()
    except OSError:
        return str(processor)


@contextmanager
def waking_first() -> Iterator[None]:
    """Let the calling thread, and threads it starts, interrupt others when they wake up."""
    _set_slice(SHORTEST_SLICE_NS)
    try:
        yield
    finally:
        _set_slice(0)


def _set_slice(nanoseconds: int) -> None:
    """Ask for slices of this length, 0 for the kernel's own. A refusal changes nothing."""
    number = _SET_ATTRIBUTES.get(platform.machine())
    if number is None or os.sched_getscheduler(0) != os.SCHED_OTHER:
        return
    nice = os.getpriority(os.PRIO_PROCESS, 0)
    size = _ATTRIBUTES.size
    _LIBC.syscall(number, 0, _ATTRIBUTES.pack(size, 0, 0, nice, 0, nanoseconds, 0, 0, 0, 0), 0)
