"""A process that ends with its parent and knows its peak memory."""

import ctypes
import os
import re
import signal
import sys
from pathlib import Path

PR_SET_PDEATHSIG = 1
STATUS = Path("/proc/self/status")
PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


def die_with_parent(parent_pid: int) -> None:
    """Ask the kernel to kill this process when its parent dies (Linux)."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:  # It died before the request was made.
        os._exit(1)


def resident_peak_bytes(status: Path = STATUS) -> int | None:
    """The largest resident set since this program was started; None where /proc has it not.

    getrusage would count the parent's memory from before this program replaced its copy.
    """
    try:
        found = PEAK.search(status.read_text())
    except OSError:
        return None
    return int(found.group(1)) * 1024 if found else None


def accelerator_peak_bytes() -> int | None:
    """The most that torch had allocated on all accelerators; None without any."""
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return sum(
        int(torch.cuda.max_memory_allocated(index)) for index in range(torch.cuda.device_count())
    )
