"""Processor, memory and accelerators of this machine, without a training library."""

import os
import platform
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from finishline.devices import accelerators_of, find_devices


def local_system(device: str | None = None) -> dict[str, Any]:
    """The `system` of a submission's JSON, with the accelerators that `device` trains on."""
    processor, cores = processor_name(), processor_count()
    accelerators = [each.name for each in accelerators_of(device, find_devices().accelerators)]
    return {
        "name": platform.node() or "local",
        "hardware_class": hardware_class_of(processor, cores, accelerators),
        "processor": processor,
        "processor_count": cores,
        "memory_gib": memory_gib() or None,
        "accelerator": accelerators[0] if accelerators else None,
        "accelerator_count": len(accelerators),
    }


def hardware_class_of(
    processor: str, cores: int, accelerators: Sequence[str], *, hosts: int = 1
) -> str:
    """`cpu-<processor>-<n>-cores` or `<n>x-<accelerator>`: lower case letters, digits, dashes.

    Of several equal hosts `<hosts>x-cpu-...` or `<hosts>x<n>-<accelerator>`, n being each host's.
    """
    if accelerators:
        count = len(accelerators)
        many = f"{count}x" if hosts == 1 else f"{hosts}x{count}"
        return f"{many}-{slug(accelerators[0])}"
    many = "" if hosts == 1 else f"{hosts}x-"
    return f"{many}cpu-{slug(processor)}-{cores}-{'core' if cores == 1 else 'cores'}"


def slug(name: str) -> str:
    """A model name without marks, filler words, cores and clock rate: `intel-xeon-gold-6230`."""
    plain = re.sub(r"\((r|tm)\)|@.*|\b(\d+-core|cpu|processor)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unknown"


def processor_name() -> str:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if match:
        return match.group(1).strip()
    return platform.processor() or platform.machine() or "unknown"


def processor_count() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float:
    """The memory of this host; 0 where the system does not tell."""
    if not hasattr(os, "sysconf"):
        return 0.0
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
