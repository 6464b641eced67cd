"""AMD's accelerators by its library amdsmi, where it is installed and its driver is loaded.

A field that the library of a card, a driver or a release does not know says nothing about it: it
answers with "N/A" or raises, and releases differ in both.
"""

import contextlib
import importlib
import importlib.util
import io
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from finishline.accelerators import Accelerator, Devices, shown_of

LIBRARY = "amdsmi"
MIB = 2**20
# Fields of amdsmi_get_violation_status that slow a card down against its will.
SLOWED = {
    "active_prochot_thrm": "by heat, in hardware",
    "active_socket_thrm": "by heat",
    "active_vr_thrm": "by the heat of its power supply",
    "active_hbm_thrm": "by the heat of its memory",
    "active_ppt_pwr": "by its power limit",
}
_SERIAL = re.compile(r"0x[0-9a-fA-F]+")


def open_library() -> Any | None:
    """The library, initialised. None without it; raises RuntimeError if it finds no driver."""
    if importlib.util.find_spec(LIBRARY) is None:
        return None
    try:
        with contextlib.redirect_stdout(io.StringIO()):  # It prints that its own library is absent.
            library = importlib.import_module(LIBRARY)
    except (ImportError, OSError, KeyError, AttributeError):
        return None
    try:
        library.amdsmi_init()
    except library.AmdSmiException as error:
        raise RuntimeError(f"{LIBRARY} gives no answer: {_line(error)}") from error
    return library


def find_amd() -> Devices:
    """AMD's accelerators that ROCR_VISIBLE_DEVICES and then HIP_VISIBLE_DEVICES show."""
    try:
        library = open_library()
    except RuntimeError as error:
        return Devices((), str(error))
    if library is None:
        return Devices(())
    cards = [[each] for each, _ in _listed(library)]
    shown = shown_of(cards, os.environ.get("ROCR_VISIBLE_DEVICES"))
    visible = os.environ.get("HIP_VISIBLE_DEVICES", os.environ.get("CUDA_VISIBLE_DEVICES"))
    shown = shown_of([[each] for each in shown], visible)
    return Devices(shown, None if cards else f"{LIBRARY} lists none")


def handles_of(library: Any, uuids: Sequence[str]) -> list[Any]:
    """The library's handles of accelerators, those that it lists."""
    by_uuid = {each.uuid: handle for each, handle in _listed(library)}
    return [by_uuid[uuid] for uuid in uuids if uuid in by_uuid]


def read(library: Any, name: str, *arguments: Any) -> Any | None:
    """An answer of the library; None where it does not know the question."""
    try:
        return getattr(library, name)(*arguments)
    except (AttributeError, library.AmdSmiException):
        return None


def number(answer: Any, *fields: str) -> float | None:
    """The first of these fields of an answer that is a number."""
    found = answer if isinstance(answer, Mapping) else {}
    values = [found.get(field) for field in fields]
    numbers = (value for value in values if isinstance(value, int | float))
    return next((float(value) for value in numbers), None)


def amd_memory_bytes(uuids: Sequence[str]) -> dict[str, int]:
    """The memory of accelerators by UUID."""
    sizes = {}
    for uuid, library, handle in _opened(uuids):
        mebibytes = number(read(library, "amdsmi_get_gpu_vram_info", handle), "vram_size")
        if mebibytes:
            sizes[uuid] = int(mebibytes) * MIB
    return sizes


def amd_facts(uuid: str) -> dict[str, str | None]:
    """Version of the driver, and memory, of an accelerator."""
    facts: dict[str, str | None] = {}
    for _, library, handle in _opened([uuid]):
        driver = read(library, "amdsmi_get_gpu_driver_info", handle) or {}
        facts["driver"] = _told(driver.get("driver_version"))
        size = number(read(library, "amdsmi_get_gpu_vram_info", handle), "vram_size")
        facts["accelerator_memory"] = None if size is None else f"{size:.0f} MiB"
    return facts


def amd_problems(names: Mapping[str, str]) -> list[str]:
    """What keeps accelerators (UUID to name) from training at their speed, a sentence each."""
    found = []
    for uuid, library, handle in _opened(list(names)):
        found += [f"{names[uuid]} ({uuid}) {trouble}" for trouble in _troubles(library, handle)]
    return found


def _troubles(library: Any, handle: Any) -> Iterable[str]:
    for process in read(library, "amdsmi_get_gpu_process_list", handle) or []:
        pid = number(process, "pid")
        if pid:
            yield f"is busy: process {pid:.0f} uses it"
    errors = number(read(library, "amdsmi_get_gpu_total_ecc_count", handle), "uncorrectable_count")
    if errors:
        yield f"has {errors:.0f} uncorrected ECC errors since the driver's start"
    slowed = read(library, "amdsmi_get_violation_status", handle) or {}
    why = [words for field, words in SLOWED.items() if slowed.get(field) is True]
    if why:
        yield f"is throttled {' and '.join(why)}"


def _opened(uuids: Sequence[str]) -> list[tuple[str, Any, Any]]:
    """UUID, library and handle of accelerators that are here."""
    try:
        library = open_library()
    except RuntimeError:
        return []
    if library is None:
        return []
    return [(uuid, library, handle) for uuid in uuids for handle in handles_of(library, [uuid])]


def _listed(library: Any) -> list[tuple[Accelerator, Any]]:
    """Accelerators with their handles, in the order in which HIP counts them if it is told."""
    found = []
    handles = read(library, "amdsmi_get_processor_handles") or []
    for place, handle in enumerate(handles):
        known = read(library, "amdsmi_get_gpu_enumeration_info", handle) or {}
        order = number(known, "hip_id")
        accelerator = _accelerator(library, handle, known)
        if accelerator is not None:
            found.append((place if order is None else order, accelerator, handle))
    return [(each, handle) for _, each, handle in sorted(found, key=lambda row: row[0])]


def _accelerator(library: Any, handle: Any, known: Mapping[str, Any]) -> Accelerator | None:
    """One card under the UUID that ROCR_VISIBLE_DEVICES takes; None for one without any."""
    told = read(library, "amdsmi_get_gpu_asic_info", handle) or {}
    serial = str(told.get("asic_serial", ""))
    uuid = _told(known.get("hip_uuid"))
    if uuid is None and _SERIAL.fullmatch(serial):
        uuid = f"GPU-{serial[2:].lower()}"
    if uuid is None:
        return None
    name = _told(told.get("market_name")) or _told(told.get("device_id")) or "accelerator"
    name = name if name.upper().startswith("AMD") else f"AMD {name}"
    return Accelerator(uuid, name, uuid, vendor="amd")


def _told(value: Any) -> str | None:
    """A text that says something."""
    text = str(value or "").strip()
    return None if text in ("", "N/A") else text


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
