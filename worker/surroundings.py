"""What a worker runs in: kernel, container, memory nodes, governor, driver, power limit.

Read from files that a worker may read without rights; what cannot be read is None.
"""

import platform
import re
import shutil
import subprocess
from pathlib import Path

NVIDIA_SMI_SECONDS = 10.0
CONTAINER_ID = re.compile(r"\b([0-9a-f]{64})\b")
NODES = "sys/devices/system/node"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
ACCELERATOR_FIELDS = {
    "driver": "driver_version",
    "accelerator_memory": "memory.total",
    "power_limit": "power.limit",
}


def describe_surroundings(
    *, image_digest: str | None = None, root: Path = Path("/")
) -> dict[str, str | None]:
    """The surroundings by name. `image_digest` is what whoever started the container says."""
    return {
        "kernel": platform.release(),
        "image_digest": image_digest,
        "container": container_id(root),
        "numa_nodes": numa_nodes(root),
        "governor": _read(root / GOVERNOR),
        "processor_power_limit": processor_power_limit(root),
        **accelerator_facts(),
    }


def container_id(root: Path) -> str | None:
    """The id of the container this process is in, as control groups or mounts tell it."""
    for name in ("proc/self/cgroup", "proc/self/mountinfo"):
        found = CONTAINER_ID.search(_read(root / name) or "")
        if found:
            return found.group(1)
    return None


def numa_nodes(root: Path) -> str | None:
    """The memory nodes and the processors of each: `0: 0-31, 1: 32-63`."""
    nodes = sorted(
        (root / NODES).glob("node[0-9]*"), key=lambda path: int(path.name.removeprefix("node"))
    )
    lists = [
        f"{node.name.removeprefix('node')}: {processors}"
        for node in nodes
        if (processors := _read(node / "cpulist")) is not None
    ]
    return ", ".join(lists) or None


def processor_power_limit(root: Path) -> str | None:
    """The sustained power limit of the first processor package in watts."""
    text = _read(root / "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw")
    return f"{int(text) / 1e6:g} W" if text is not None and text.isdigit() else None


def accelerator_facts() -> dict[str, str | None]:
    """Driver, memory and power limit of the first accelerator by the driver's own tool."""
    values = _ask_driver(tuple(ACCELERATOR_FIELDS.values()))
    return dict(zip(ACCELERATOR_FIELDS, values, strict=True))


def _ask_driver(fields: tuple[str, ...]) -> list[str | None]:
    absent: list[str | None] = [None] * len(fields)
    tool = shutil.which("nvidia-smi")
    if tool is None:
        return absent
    try:
        answer = subprocess.run(
            [tool, f"--query-gpu={','.join(fields)}", "--format=csv,noheader"],
            capture_output=True,
            text=True,
            timeout=NVIDIA_SMI_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return absent
    first = (answer.stdout.splitlines() or [""])[0].split(",")
    said = [None if "[" in item or not item.strip() else item.strip() for item in first]
    return said if len(said) == len(fields) else absent


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
