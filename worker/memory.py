"""Peak memory of this process."""

import re
import sys
from pathlib import Path

STATUS = Path("/proc/self/status")
PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.MULTILINE)


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
