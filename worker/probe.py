"""What this host is made of, found without loading torch."""

import os
import platform
import re
import shutil
import subprocess
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from finishline.rules.verification.messages import WorkerSystem

NVIDIA_SMI_SECONDS = 10.0
PACKAGES = ("torch", "numpy", "scikit-learn", "celery", "onnxruntime")


def probe(
    *, worker: str, hardware_class: str | None, threads: int, device: str | None = None
) -> WorkerSystem:
    """Describe the system of this worker, with the accelerators that `device` trains on.

    Its hardware class is made from the parts if it is not given.
    """
    processor, cores = processor_name(), processor_count()
    accelerators = accelerators_of(device, nvidia_accelerators())
    accelerator = accelerators[0] if accelerators else None
    return WorkerSystem(
        worker=worker,
        hardware_class=hardware_class or hardware_class_of(processor, cores, accelerators),
        processor=processor,
        processor_count=cores,
        memory_gib=memory_gib(),
        accelerator=accelerator,
        accelerator_count=len(accelerators),
        threads=threads,
        software=software(),
    )


def accelerators_of(device: str | None, found: list[str]) -> list[str]:
    """Return the accelerators that a device name stands for: none of a processor, one of cuda:0."""
    if device is None or device == "cuda":
        return found
    kind, _, index = device.partition(":")
    place = int(index) if index.isdecimal() else 0
    return found[place : place + 1] if kind == "cuda" else []


def hardware_class_of(processor: str, cores: int, accelerators: list[str]) -> str:
    """`cpu-<processor>-<n>-cores` or `<n>x-<accelerator>`: lower case letters, digits, dashes."""
    if accelerators:
        return f"{len(accelerators)}x-{slug(accelerators[0])}"
    return f"cpu-{slug(processor)}-{cores}-{'core' if cores == 1 else 'cores'}"


def slug(name: str) -> str:
    """A model name without marks, filler words, cores and clock rate: `intel-xeon-gold-6230`."""
    plain = re.sub(r"\((r|tm)\)|@.*|\b(\d+-core|cpu|processor)\b", " ", name.lower())
    return re.sub(r"[^a-z0-9]+", "-", plain).strip("-") or "unknown"


def processor_name() -> str:
    """The model name of the first processor."""
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    match = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    if match:
        return match.group(1).strip()
    return platform.processor() or platform.machine() or "unknown"


def processor_count() -> int:
    """Processors this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def memory_gib() -> float:
    """The memory of this host."""
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)


def nvidia_accelerators() -> list[str]:
    """The names of NVIDIA accelerators, none where the driver's tool is absent or fails."""
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, "--query-gpu=name", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [line.strip() for line in answer.stdout.splitlines() if line.strip()]


def software() -> dict[str, str]:
    """Versions of what takes part in a training, as far as it is installed."""
    versions = {"python": platform.python_version(), "system": platform.system().lower()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions
