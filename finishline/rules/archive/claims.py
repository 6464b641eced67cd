"""Build the claim of a published submission, and find copies: files and logs of one training."""

import hashlib
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.errors import LogFormatError
from finishline.rules.submissions.descriptions import SystemDescription

NOT_STATED = "not stated"
MAX_CLASS_LENGTH = 80
# Memory is sold in powers of two, in either unit: "2 TB" are 2,048 GiB.
GIB_PER_UNIT = {"gb": 1, "gib": 1, "g": 1, "tb": 1024, "tib": 1024, "t": 1024}
# With three decimals it is not certain ("2.048 TB" are 2,048 GB as well), so there it is left out.
_MEMORY = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,2})?)\s*([a-z]{1,3})")


def set_claim(record: Mapping[str, Any], description: SystemDescription | None) -> dict[str, Any]:
    """The claim of an MLPerf result set, as a submission's JSON.

    Depends on the package alone, not on where it lies: the same package makes the same claim.
    Missing fields are left out, for the server to refuse.
    """
    claim = {
        "benchmark": set_benchmark_id(record),
        "division": record["division"],
        "model": record["benchmark"],
        "framework": (description and description.framework) or NOT_STATED,
        "system": _system(record["system"], description),
        "runs": [run["file"] for run in record["runs"]],
        "organisation": record["organisation"],
        "scaling_factor": record["scaling_json"],
        "notes": _notes(record, description),
    }
    return {name: value for name, value in claim.items() if value is not None}


def set_benchmark_id(record: Mapping[str, Any]) -> str:
    """The id of the definition of a set, which a server may have where we have none."""
    definition = record["definition"]
    if definition is not None:
        return str(definition["id"])
    version = record["version"]
    return (
        f"mlperf-v{version}-{record['benchmark']}" if version else f"mlperf-{record['benchmark']}"
    )


def _system(folder: str, description: SystemDescription | None) -> dict[str, Any]:
    """The system of a set; `folder` is its name in the package.

    The machines that may be compared are those with as many accelerators of one model, or, without
    accelerators, as many processors of one model; where neither is stated, those of the same name.
    """
    if description is None:
        return {"name": folder, "hardware_class": _slug(folder), "processor": NOT_STATED}
    nodes = description.number_of_nodes
    processor = description.host_processor_model_name
    processors = _product(nodes, description.host_processors_per_node)
    accelerator = description.accelerator_model_name if description.accelerators else None
    count, model = (
        (description.accelerators, accelerator) if accelerator else (processors, processor)
    )
    hardware = description.fields.get("hardware")  # The name of a system in v0.5.
    system = {
        "name": description.system_name or hardware or folder,
        "hardware_class": _slug(
            f"{count or ''} {model}" if model else f"{folder} {hardware or ''}"
        ),
        "processor": processor or NOT_STATED,
        "processor_count": processors or None,
        "memory_gib": _product(nodes, _memory_gib(description.host_memory_capacity)),
        "accelerator": accelerator,
        "accelerator_count": description.accelerators,
        "availability": description.status,
    }
    return {name: value for name, value in system.items() if value is not None}


def _notes(record: Mapping[str, Any], description: SystemDescription | None) -> str:
    place = "/".join(str(record[name]) for name in ("organisation", "system", "benchmark"))
    version = f" v{record['version']}" if record["version"] else ""
    status = f" ({description.status})" if description and description.status else ""
    return f"MLPerf Training{version}: {place}{status}"[:4000]


def _memory_gib(text: str | None) -> float | None:
    match = _MEMORY.fullmatch((text or "").strip().lower().replace(",", ""))
    unit = GIB_PER_UNIT.get(match[2]) if match else None
    return float(match[1]) * unit if match and unit else None


def _product(nodes: int | None, each: float | None) -> Any:
    return None if nodes is None or each is None else round(nodes * each, 1)


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower())[:MAX_CLASS_LENGTH].strip("-")
    return slug or "unknown"


HEAD_BYTES = 4096


def find_identical(archive: Archive, files: Iterable[ArchiveFile]) -> dict[str, tuple[str, ...]]:
    """Map the path of every log that has copies to the paths of the others.

    Only files of one size that begin alike are read whole; one that cannot be read has no copies.
    """
    sound = [file for file in files if file.size and file.refused is None]
    alike = _groups(sound, lambda file: file.size)
    alike = [group for each in alike for group in _groups(each, lambda file: _head(archive, file))]
    same = [group for each in alike for group in _groups(each, lambda file: _digest(archive, file))]
    return {
        file.path: tuple(other.path for other in group if other is not file)
        for group in same
        for file in group
    }


def _groups(
    files: Iterable[ArchiveFile], key_of: Callable[[ArchiveFile], object]
) -> list[list[ArchiveFile]]:
    """The files that share a key with another."""
    groups: dict[object, list[ArchiveFile]] = defaultdict(list)
    for file in files:
        key = key_of(file)
        if key is not None:
            groups[key].append(file)
    return [group for group in groups.values() if len(group) > 1]


def _head(archive: Archive, file: ArchiveFile) -> bytes | None:
    try:
        return next(archive.chunks(file, size=HEAD_BYTES), None)
    except LogFormatError:
        return None


def _digest(archive: Archive, file: ArchiveFile) -> bytes | None:
    digest = hashlib.sha256()
    try:
        for chunk in archive.chunks(file):
            digest.update(chunk)
    except LogFormatError:
        return None
    return digest.digest()
