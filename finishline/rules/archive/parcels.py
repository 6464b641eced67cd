"""Uploads of an import: the files of one submission, the fields of their form, and their key."""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import orjson

from finishline.rules.archive.files import Archive, ArchiveFile

CLAIM_NAME = "submission.json"


@dataclass(frozen=True)
class Parcel:
    """Upload for one submission.

    `path` is shown to people. `claim` is the JSON of an MLPerf set; a DAWNBench entry is sent as it
    is, so there it is a file. `benchmark_id` is given beside the JSON where that names none.
    `problems` are those that our own reading finds; the server decides whether to refuse.
    """

    path: str
    claim: ArchiveFile | Mapping[str, Any]
    logs: Sequence[ArchiveFile]
    benchmark_id: str | None = None
    problems: Sequence[Mapping[str, Any]] = ()

    @property
    def fields(self) -> dict[str, str]:
        """The form's other fields."""
        named = {} if self.benchmark_id is None else {"benchmark": self.benchmark_id}
        return {"archive": "true"} | named

    @property
    def paths(self) -> dict[str, str]:
        """The path of every file, by the name it is sent under."""
        files = [*self.logs] if isinstance(self.claim, Mapping) else [self.claim, *self.logs]
        return {CLAIM_NAME: self.path} | {file.name: file.path for file in files}

    @property
    def claim_name(self) -> str:
        """The name under which the claim is sent."""
        return CLAIM_NAME if isinstance(self.claim, Mapping) else self.claim.name

    def claim_json(self, archive: Archive) -> bytes:
        """The claim as it is sent: the entry's own bytes. Raises LogFormatError."""
        if isinstance(self.claim, Mapping):
            return orjson.dumps(self.claim)
        return archive.small(self.claim)


def key_of(parcel: Parcel, claim_json: bytes, archive: Archive) -> str:
    """SHA-256 over everything that is sent, so that the same is stored once.

    Raises LogFormatError for a file that may not be read.
    """
    whole = hashlib.sha256()
    for name, value in sorted(parcel.fields.items()):
        whole.update(f"{name}={value}\0".encode())
    whole.update(f"{parcel.claim_name}\0".encode() + hashlib.sha256(claim_json).digest())
    for file in parcel.logs:
        digest = hashlib.sha256()
        for chunk in archive.chunks(file):
            digest.update(chunk)
        whole.update(f"{file.name}\0".encode() + digest.digest())
    return whole.hexdigest()
