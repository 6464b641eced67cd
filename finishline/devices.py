"""Find the processor, memory and accelerators of this machine, and choose one to train on.

NVIDIA's tool lists its accelerators. The number in cuda:1 counts the devices in
CUDA_VISIBLE_DEVICES, in the order of their PCI slots. A build of torch for ROCm lists AMD's, in a
separate process. `finishline up` shows each of its workers one accelerator.
"""

import importlib.util
import json
import os
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from finishline.rules.errors import RuleError

TOOL = "nvidia-smi"
TOOL_SECONDS = 10.0
TORCH_SECONDS = 25.0
TORCH_LIST = (
    "import json, torch; "
    "names = [torch.cuda.get_device_name(n) for n in range(torch.cuda.device_count())]; "
    "print(json.dumps(names))"
)
VISIBLE = "CUDA_VISIBLE_DEVICES"
CARD_NAMES = ("GPU-", "MIG-")
WITHOUT_CUDA = "torch is installed without CUDA and cannot use the accelerator: make install GPU=1"
_LISTED = re.compile(r"GPU (?P<number>\d+): (?P<name>.+?) \(UUID: (?P<uuid>GPU-[\w-]+)\)")
_PLATFORM = re.compile(r"^(cuda|hip)\b[^=\n]*=\s*(.+)$", re.MULTILINE)
_SLICE = re.compile(r"\s+(?P<name>MIG \S+)\s+Device\s+\d+: \(UUID: (?P<uuid>MIG-[\w/-]+)\)")


@dataclass(frozen=True)
class Accelerator:
    """A device by its `uuid` for CUDA_VISIBLE_DEVICES. `board` is its card's uuid."""

    uuid: str
    name: str
    board: str


@dataclass(frozen=True)
class Devices:
    """Accelerators that a process sees, and why expected ones are absent."""

    accelerators: tuple[Accelerator, ...]
    problem: str | None = None


def find_devices() -> Devices:
    """Find the accelerators that this process may use: AMD's if torch is built for ROCm."""
    return find_by_torch() if "hip" in torch_platforms() else find_nvidia()


def torch_platforms() -> set[str]:
    """Read from torch's files, without an import, which of "cuda" and "hip" it can use."""
    spec = importlib.util.find_spec("torch")
    if spec is None or not spec.submodule_search_locations:
        return set()
    try:
        text = (Path(spec.submodule_search_locations[0]) / "version.py").read_text()
    except OSError:
        return set()
    return {name for name, version in _PLATFORM.findall(text) if version.strip() != "None"}


def without_platform() -> list[str]:
    """Say that an installed torch was built for processors only."""
    if importlib.util.find_spec("torch") is None or torch_platforms():
        return []
    return [WITHOUT_CUDA]


@cache
def find_by_torch() -> Devices:
    """List the accelerators that torch names. Each has its number instead of a UUID."""
    command = [sys.executable, "-c", TORCH_LIST]
    try:
        answer = subprocess.run(
            command, capture_output=True, text=True, timeout=TORCH_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Devices((), f"torch gives no answer: {error}")
    if answer.returncode:
        said = answer.stderr.strip().splitlines() or [f"exit code {answer.returncode}"]
        return Devices((), f"torch lists none: {said[-1]}")
    names = json.loads(answer.stdout)
    return Devices(tuple(Accelerator(str(at), name, str(at)) for at, name in enumerate(names)))


def find_nvidia() -> Devices:
    tool = shutil.which(TOOL)
    if tool is None:
        return Devices(())
    try:
        answer = subprocess.run(
            [tool, "-L"], capture_output=True, text=True, timeout=TOOL_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as error:
        return Devices((), f"{TOOL} gives no answer: {error}")
    cards = read_list(answer.stdout)
    problem = None
    if answer.returncode or not cards:
        said = (answer.stdout + answer.stderr).strip().splitlines()
        problem = f"{TOOL} lists none: {said[0] if said else f'exit code {answer.returncode}'}"
    shown, unknown = shown_of(cards, os.environ.get(VISIBLE))
    if problem is None and unknown is not None:
        problem = f"no such device as {unknown[:60]!r}, which {VISIBLE} names"
    return Devices(shown, problem)


def read_list(text: str) -> list[list[Accelerator]]:
    """Read `nvidia-smi -L`: for each card its slices if it has any, else the card."""
    cards: list[list[Accelerator]] = []
    card: Accelerator | None = None
    for line in text.splitlines():
        if found := _LISTED.match(line):
            card = Accelerator(found["uuid"], found["name"], found["uuid"])
            cards.append([card])
        elif card is not None and (found := _SLICE.match(line)):
            part = Accelerator(found["uuid"], f"{card.name} {found['name']}", card.uuid)
            cards[-1] = [*(each for each in cards[-1] if each is not card), part]
    return cards


def shown_of(
    cards: Sequence[Sequence[Accelerator]], visible: str | None
) -> tuple[tuple[Accelerator, ...], str | None]:
    """Return the devices that a variable shows, and its first unknown name. CUDA stops there.

    All are shown if `visible` is None. A name that is meant to hide them is known.
    """
    if visible is None:
        return tuple(part for card in cards for part in card), None
    shown: list[Accelerator] = []
    for name in map(str.strip, visible.split(",")):
        found = _named(cards, name)
        if not found:
            is_unknown = name.isdecimal() or name.startswith(CARD_NAMES)
            return tuple(shown), name if is_unknown else None
        shown += found
    return tuple(shown), None


def _named(cards: Sequence[Sequence[Accelerator]], name: str) -> Sequence[Accelerator]:
    if name.isdecimal():
        return cards[int(name)] if int(name) < len(cards) else ()
    if not name.startswith(CARD_NAMES):
        return ()
    parts = [part for card in cards for part in card]
    return [part for part in parts if name == part.uuid or part.board.startswith(name)]


def accelerators_of(device: str | None, found: Sequence[Accelerator]) -> Sequence[Accelerator]:
    """Return the accelerators of a device name: zero for a processor, one for cuda:0."""
    if device is None or device == "cuda":
        return found
    kind, _, number = device.partition(":")
    place = int(number) if number.isdecimal() else 0
    return found[place : place + 1] if kind == "cuda" else ()


def choose_device(name: str | None, found: Devices | None = None) -> str:
    """Choose the first accelerator or the named device, else cpu. Raises RuleError."""
    if name == "cpu":
        return name
    found = find_devices() if found is None else found
    if name is None and not found.accelerators:
        return "cpu"
    device = "cuda:0" if name in {None, "cuda"} else str(name)
    if not re.fullmatch(r"cuda:\d+", device):
        raise RuleError(
            f"{name!r} is no device", field="device", expected="cpu, cuda or cuda:NUMBER"
        )
    if not accelerators_of(device, found.accelerators):
        names = [f"cuda:{place} ({each.name})" for place, each in enumerate(found.accelerators)]
        why = f" ({found.problem})" if found.problem else ""
        expected = " or ".join(["cpu", *names]) + why
        raise RuleError(f"no {device} on this machine", field="device", expected=expected)
    return device


def local_system(device: str | None = None) -> dict[str, Any]:
    """Return the `system` of a submission's JSON, with the accelerators of `device`."""
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
    """Return `cpu-<processor>-<n>-cores` or `<n>x-<accelerator>`: lower case, digits, dashes.

    Several equal hosts are `<hosts>x-cpu-...` or `<hosts>x<n>-<accelerator>`, n for each host.
    """
    if accelerators:
        count = len(accelerators)
        many = f"{count}x" if hosts == 1 else f"{hosts}x{count}"
        return f"{many}-{slug(accelerators[0])}"
    many = "" if hosts == 1 else f"{hosts}x-"
    return f"{many}cpu-{slug(processor)}-{cores}-{'core' if cores == 1 else 'cores'}"


def slug(name: str) -> str:
    """Strip marks, filler words, cores and clock rate from a name: `intel-xeon-gold-6230`."""
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
    """Return the memory of this host, 0 where the system hides it."""
    if not hasattr(os, "sysconf"):
        return 0.0
    return round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1)
