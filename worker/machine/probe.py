"""The hardware and software under this worker, and other work on it."""

import platform
import re
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from finishline.devices import (
    TOOL,
    TOOL_SECONDS,
    accelerators_of,
    find_devices,
    hardware_class_of,
    memory_gib,
    processor_count,
    processor_name,
)
from finishline.rules.verification.messages import Node, WorkerSystem

PACKAGES = ("torch", "numpy", "scikit-learn", "celery", "onnxruntime")


def probe(
    *,
    worker: str | None = None,
    hardware_class: str | None = None,
    threads: int,
    device: str | None = None,
) -> WorkerSystem:
    """Describe the system of this worker, with the accelerators that `device` trains on."""
    processor, cores = processor_name(), processor_count()
    accelerators = [each.name for each in accelerators_of(device, find_devices().accelerators)]
    accelerator = accelerators[0] if accelerators else None
    return WorkerSystem(
        worker=worker or platform.node() or "local",
        hardware_class=hardware_class or hardware_class_of(processor, cores, accelerators),
        processor=processor,
        processor_count=cores,
        memory_gib=memory_gib(),
        accelerator=accelerator,
        accelerator_count=len(accelerators),
        threads=threads,
        software=software(),
    )


def node_of(system: WorkerSystem) -> Node:
    return Node(
        name=system.worker,
        processor=system.processor,
        processor_count=system.processor_count,
        memory_gib=system.memory_gib,
        accelerator=system.accelerator,
        accelerator_count=system.accelerator_count,
    )


def class_over(node: Node, *, hosts: int) -> str:
    """Name the hardware class of several hosts like this."""
    accelerators = [node.accelerator or ""] * node.accelerator_count
    return hardware_class_of(node.processor, node.processor_count, accelerators, hosts=hosts)


def system_over(
    system: WorkerSystem, nodes: Sequence[Node], *, hardware_class: str | None
) -> WorkerSystem:
    """Describe all hosts that train together. `system` is the first."""
    return replace(
        system,
        hardware_class=hardware_class or class_over(nodes[0], hosts=len(nodes)),
        accelerator_count=sum(node.accelerator_count for node in nodes),
        nodes=list(nodes),
    )


def software() -> dict[str, str]:
    """Return the versions of the installed packages that matter to a training."""
    versions = {"python": platform.python_version(), "system": platform.system().lower()}
    for package in PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            continue
    return versions


CONTAINER_ID = re.compile(r"\b([0-9a-f]{64})\b")
NODES = "sys/devices/system/node"
GOVERNOR = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"
POWER_LIMIT = "sys/class/powercap/intel-rapl:0/constraint_0_power_limit_uw"
ACCELERATOR_FIELDS = {
    "driver": "driver_version",
    "accelerator_memory": "memory.total",
    "power_limit": "power.limit",
}


def describe_surroundings(
    device: str | None = None, *, image_digest: str | None = None, root: Path = Path("/")
) -> dict[str, str | None]:
    """Describe the surroundings of a device by name. The container's start states `image_digest`.

    The container's id comes from control groups or mounts. `numa_nodes` has the processors of each
    memory node, for example `0: 0-31, 1: 32-63`. The power limit is the first processor package's
    sustained limit.
    """
    groups = (_read(root / "proc/self" / name) or "" for name in ("cgroup", "mountinfo"))
    container = next((id_ for text in groups if (id_ := CONTAINER_ID.search(text))), None)
    nodes = sorted((int(path.name[4:]), path) for path in (root / NODES).glob("node[0-9]*"))
    lists = [(number, _read(path / "cpulist")) for number, path in nodes]
    known = [f"{number}: {processors}" for number, processors in lists if processors is not None]
    microwatts = _read(root / POWER_LIMIT) or ""
    return {
        "kernel": platform.release(),
        "image_digest": image_digest,
        "container": container and container.group(1),
        "numa_nodes": ", ".join(known) or None,
        "governor": _read(root / GOVERNOR),
        "processor_power_limit": f"{int(microwatts) / 1e6:g} W" if microwatts.isdigit() else None,
        **accelerator_facts(device),
    }


def accelerator_facts(device: str | None = None) -> dict[str, str | None]:
    """Driver, memory and power limit of a device's first accelerator by the driver's own tool."""
    found = accelerators_of(device, find_devices().accelerators)
    fields = f"--query-gpu={','.join(ACCELERATOR_FIELDS.values())}"
    rows = ask_driver(fields, "--format=csv,noheader", f"--id={found[0].board}") if found else []
    facts: dict[str, str | None] = dict.fromkeys(ACCELERATOR_FIELDS)
    if rows and len(rows[0]) == len(facts):
        known = [None if "[" in value or not value else value for value in rows[0]]
        facts = dict(zip(facts, known, strict=True))
    return facts


def ask_driver(*query: str) -> list[list[str]]:
    """Return the rows of a query to the driver's own tool. Empty for an unknown query."""
    try:
        answer = subprocess.run(
            [TOOL, *query], capture_output=True, text=True, timeout=TOOL_SECONDS, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [[part.strip() for part in line.split(",")] for line in answer.stdout.splitlines()]


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip() or None
    except OSError:
        return None
