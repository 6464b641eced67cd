"""Trouble of accelerators as NVIDIA's tool tells it: busy, uncorrected memory errors, slowed down.

Absent answers are none: a field that a driver or a card does not know says nothing about it.
"""

import importlib.util
import re
import shutil
import subprocess
from collections.abc import Sequence

from finishline.accelerators import Accelerator
from finishline.devices import TOOL, TOOL_SECONDS, torch_platforms

# Bits of clocks_event_reasons.active that slow a card down against its will.
SLOWED = {
    0x08: "by its hardware",
    0x20: "by heat",
    0x40: "by heat, in hardware",
    0x80: "by its power supply",
}
MIB = 2**20
WITHOUT_CUDA = "torch is installed without CUDA and cannot use the accelerator: make install GPU=1"


def memory_bytes(found: Sequence[Accelerator]) -> dict[str, int]:
    """Memory of whole cards by UUID; a slice's is not told."""
    rows = _ask("--query-gpu=uuid,memory.total")
    whole = {each.uuid for each in found}
    return {
        uuid: int(amount) * MIB for uuid, amount in rows if amount.isdecimal() and uuid in whole
    }


def problems_of(found: Sequence[Accelerator]) -> list[str]:
    """What keeps these accelerators from training at their speed, a sentence each."""
    boards = {each.board: each.name for each in found}
    if not found:
        return []
    return [*_busy(boards), *_errors(boards), *_slowed(boards), *without_platform()]


def _busy(boards: dict[str, str]) -> list[str]:
    return [
        f"{boards[uuid]} ({uuid}) is busy: process {pid} uses it"
        for uuid, pid in _ask("--query-compute-apps=gpu_uuid,pid")
        if uuid in boards and pid.isdecimal()
    ]


def _errors(boards: dict[str, str]) -> list[str]:
    rows = _ask("--query-gpu=uuid,ecc.errors.uncorrected.volatile.total")
    return [
        f"{boards[uuid]} ({uuid}) has {count} uncorrected ECC errors since the driver's start"
        for uuid, count in rows
        if uuid in boards and count.isdecimal() and int(count)
    ]


def _slowed(boards: dict[str, str]) -> list[str]:
    # The name of the field before driver 535.
    rows = _ask("--query-gpu=uuid,clocks_event_reasons.active") or _ask(
        "--query-gpu=uuid,clocks_throttle_reasons.active"
    )
    found = []
    for uuid, mask in rows:
        if uuid not in boards or not re.fullmatch(r"0x[0-9a-fA-F]+", mask):
            continue
        why = [words for bit, words in SLOWED.items() if int(mask, 16) & bit]
        if why:
            found.append(f"{boards[uuid]} ({uuid}) is throttled {' and '.join(why)}")
    return found


def without_platform() -> list[str]:
    """Return the trouble of torch as it is installed with the accelerators that were found."""
    if importlib.util.find_spec("torch") is None or torch_platforms():
        return []
    return [WITHOUT_CUDA]


def _ask(query: str) -> list[list[str]]:
    """Pairs that the tool answers a query for two fields with; none if it does not know them."""
    tool = shutil.which(TOOL)
    if tool is None:
        return []
    try:
        answer = subprocess.run(
            [tool, query, "--format=csv,noheader,nounits"],
            capture_output=True,
            text=True,
            timeout=TOOL_SECONDS,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    rows = [[part.strip() for part in line.split(",")] for line in answer.stdout.splitlines()]
    return [row for row in rows if len(row) == 2]
