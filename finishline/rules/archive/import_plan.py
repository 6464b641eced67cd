"""Plan an import: the submissions of an archive to upload, their claims and forms."""

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from enum import StrEnum
from typing import Any
from urllib.parse import quote

import orjson

from finishline.rules.archive.agreement import read_description
from finishline.rules.archive.files import Archive, ArchiveFile, Problems
from finishline.rules.archive.find import EntryFiles, ResultSet
from finishline.rules.archive.nanogpt import (
    BOARDS,
    SEVERAL_STOPS,
    Folder,
    Row,
    row_of,
    score_folder,
)
from finishline.rules.archive.score import HPC, Found, score_found
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.submissions.descriptions import SystemDescription

CLAIM_NAME = "submission.json"
NOT_STATED = "not stated"
MAX_CLASS_LENGTH = 80
# Memory is sold in powers of two, in either unit: "2 TB" are 2,048 GiB.
GIB_PER_UNIT = {"gb": 1, "gib": 1, "g": 1, "tb": 1024, "tib": 1024, "t": 1024}
# Three decimals are ambiguous ("2.048 TB" are 2,048 GB as well), so they are left out.
_MEMORY = re.compile(r"([0-9]{1,7}(?:\.[0-9]{1,2})?)\s*([a-z]{1,3})")


class Kind(StrEnum):
    """Kinds of archive."""

    DAWNBENCH = "dawnbench"
    MLPERF = "mlperf"
    NANOGPT = "nanogpt"


@dataclass(frozen=True)
class Unsent:
    """A submission that stays here, for its problems or only for the reason."""

    path: str
    reason: str
    problems: Sequence[Mapping[str, Any]] = ()


@dataclass(frozen=True)
class Parcel:
    """Upload for one submission, with the `problems` of our own reading.

    `claim` is the JSON of an MLPerf set, or a DAWNBench entry's file, without its benchmark.
    """

    path: str
    claim: ArchiveFile | Mapping[str, Any]
    logs: Sequence[ArchiveFile]
    benchmark_id: str | None = None
    problems: Sequence[Mapping[str, Any]] = ()

    @property
    def board(self) -> str:
        if isinstance(self.claim, Mapping):
            return str(self.claim["benchmark"])
        return self.benchmark_id or ""

    @property
    def fields(self) -> dict[str, str]:
        named = {} if self.benchmark_id is None else {"benchmark": self.benchmark_id}
        return {"archive": "true"} | named

    @property
    def paths(self) -> dict[str, str]:
        """Return the path of every file, by its name in the upload."""
        files = [*self.logs] if isinstance(self.claim, Mapping) else [self.claim, *self.logs]
        return {CLAIM_NAME: self.path} | {file.name: file.path for file in files}

    @property
    def claim_name(self) -> str:
        return CLAIM_NAME if isinstance(self.claim, Mapping) else self.claim.name

    def claim_json(self, archive: Archive) -> bytes:
        """Return the claim as it is sent: the entry's own bytes. Raises LogFormatError."""
        if isinstance(self.claim, Mapping):
            return orjson.dumps(self.claim)
        return archive.small(self.claim)


def key_of(parcel: Parcel, claim_json: bytes, archive: Archive) -> str:
    """Hash the whole upload with SHA-256. Raises LogFormatError."""
    whole = hashlib.sha256()
    for name, value in sorted(parcel.fields.items()):
        whole.update(f"{name}={value}\0".encode())
    whole.update(f"{parcel.claim_name}\0".encode() + hashlib.sha256(claim_json).digest())
    for file in parcel.logs:
        whole.update(f"{file.name}\0".encode() + archive.digest(file))
    return whole.hexdigest()


def of_kind(found: Found, kind: Kind) -> Found:
    """Keep the submissions of one kind of archive."""
    wanted = EntryFiles if kind is Kind.DAWNBENCH else ResultSet
    return replace(found, submissions=[s for s in found.submissions if isinstance(s, wanted)])


def plan_import(
    found: Found, benchmarks: Mapping[str, Benchmark], *, published: date | None = None
) -> Iterator[Parcel | Unsent]:
    """Yield uploads by path, or why they stay here. `published` is an unknown round's day."""
    records = score_found(found, benchmarks)
    for submission, record in zip(found.submissions, records, strict=True):
        path, problems = submission.path, record["problems"]
        if any(problem["code"] == "internal_error" for problem in problems):
            yield Unsent(path, "It cannot be read.", of_severity(problems, "error"))
        elif isinstance(submission, EntryFiles):
            # An entry of inference is only its JSON, even with other files around it.
            curves = () if record["kind"] == "inference" else (submission.tsv,)
            logs = [curve for curve in curves if curve is not None]
            if submission.json and record["definition"] and len(logs) == len(curves):
                definition = record["definition"]["id"]
                yield Parcel(path, submission.json, logs, definition, problems)
            else:
                yield Unsent(path, "The entry is incomplete.", of_severity(problems, "error"))
        elif record["suite"] == HPC:
            yield Unsent(path, f"{HPC} is not scored")
        elif submission.in_package:
            # The problems of its description are in the record already.
            version = record["version"]
            description = read_description(submission, found.archive, version, Problems())
            day = {} if published is None else {"submitted_on": published.isoformat()}
            claim = set_claim(record, description) | day
            yield Parcel(path, claim, submission.runs, problems=problems)
        else:
            outside = "outside a package (ORG/results/SYSTEM/BENCHMARK)"
            yield Unsent(path, f"{outside}, so its submitter is unknown")


NANOGPT_SYSTEM = {
    "name": "8 × NVIDIA H100",
    "hardware_class": "8-h100",
    "processor": NOT_STATED,
    "accelerator": "NVIDIA H100",
    "accelerator_count": 8,
}
NANOGPT_URL = "https://github.com/KellerJordan/modded-nanogpt/tree/master/records"


def plan_nanogpt(
    folders: Sequence[Folder], archive: Archive, rows: Mapping[str, Row]
) -> Iterator[Parcel | Unsent]:
    """Yield the upload of each record of the NanoGPT speedrun, or why it stays here.

    Only folders in the README's table are records, with its title, day and holder.
    """
    for folder in folders:
        scored = score_folder(folder, archive)
        problems = scored.record["problems"]
        errors = [each for each in of_severity(problems, "error") if each["code"] != SEVERAL_STOPS]
        board, row = BOARDS.get(folder.track or ""), row_of(folder, rows)
        if board is None:
            yield Unsent(folder.id, "It has no board: only tracks 1 and 2 rank by seconds")
        elif row is None:
            yield Unsent(folder.id, "It is not a record in the README's table")
        elif errors or not scored.logs:
            yield Unsent(folder.id, "It cannot be read.", errors)
        else:
            claim = {
                "benchmark": board,
                "division": "open",
                "model": row.title,
                "framework": "PyTorch",
                "system": NANOGPT_SYSTEM,
                "runs": [file.name for file in scored.logs],
                "organisation": (row.holder or "modded-nanogpt")[:200],
                "submitted_on": row.day and row.day.isoformat(),
                "code_url": f"{NANOGPT_URL}/{quote(folder.id)}",
                "notes": f"modded-nanogpt: records/{folder.id}",
            }
            yield Parcel(folder.id, claim, scored.logs, problems=problems)


def of_severity(problems: Sequence[Mapping[str, Any]], severity: str) -> list[Mapping[str, Any]]:
    return [problem for problem in problems if problem["severity"] == severity]


def set_claim(record: Mapping[str, Any], description: SystemDescription | None) -> dict[str, Any]:
    """Build an MLPerf set's claim. Missing fields are left out, for the server to refuse."""
    place = "/".join(str(record[name]) for name in ("organisation", "system", "benchmark"))
    version = f" v{record['version']}" if record["version"] else ""
    status = f" ({description.status})" if description and description.status else ""
    claim = {
        "benchmark": set_benchmark_id(record),
        "division": record["division"],
        "model": record["benchmark"],
        "framework": (description and description.framework) or NOT_STATED,
        "system": _system(record["system"], description),
        "runs": [run["file"] for run in record["runs"]],
        "organisation": record["organisation"],
        "scaling_factor": record["scaling_json"],
        "notes": f"MLPerf Training{version}: {place}{status}"[:4000],
    }
    return {name: value for name, value in claim.items() if value is not None}


def set_benchmark_id(record: Mapping[str, Any]) -> str:
    """Return the definition's id of a set, which perhaps only a server knows."""
    if record["definition"] is not None:
        return str(record["definition"]["id"])
    version = f"v{record['version']}-" if record["version"] else ""
    return f"mlperf-{version}{record['benchmark']}"


def _system(folder: str, description: SystemDescription | None) -> dict[str, Any]:
    """Build the system of a set from its description, else from its `folder`'s name.

    A hardware class counts accelerators, else processors, of one model. Else it is the name.
    """
    if description is None:
        return {"name": folder, "hardware_class": _slug(folder), "processor": NOT_STATED}
    nodes = description.number_of_nodes
    processor = description.host_processor_model_name
    processors = _product(nodes, description.host_processors_per_node)
    accelerator = description.accelerator_model_name if description.accelerators else None
    count = description.accelerators if accelerator else processors
    model = accelerator or processor
    hardware = description.fields.get("hardware")  # The name of a system in v0.5.
    hardware_class = f"{count or ''} {model}" if model else f"{folder} {hardware or ''}"
    system = {
        "name": description.system_name or hardware or folder,
        "hardware_class": _slug(hardware_class),
        "processor": processor or NOT_STATED,
        "processor_count": processors or None,
        "memory_gib": _product(nodes, _memory_gib(description.host_memory_capacity)),
        "accelerator": accelerator,
        "accelerator_count": description.accelerators,
        "availability": description.status,
    }
    return {name: value for name, value in system.items() if value is not None}


def _memory_gib(text: str | None) -> float | None:
    match = _MEMORY.fullmatch((text or "").strip().lower().replace(",", ""))
    unit = GIB_PER_UNIT.get(match[2]) if match else None
    return float(match[1]) * unit if match and unit else None


def _product(nodes: int | None, each: float | None) -> Any:
    return None if nodes is None or each is None else round(nodes * each, 1)


def _slug(text: str) -> str:
    slug = re.sub(r"[^a-z0-9]+", "-", text.lower())[:MAX_CLASS_LENGTH].strip("-")
    return slug or "unknown"
