"""The files of a published submission as the parts of a form, and the key they are sent under."""

import hashlib
import os
import stat
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, BinaryIO

import orjson

from finishline.cli.errors import Problem
from finishline.rules.archive.files import Archive, ArchiveFile
from finishline.rules.errors import LogFormatError

CLAIM_NAME = "submission.json"
Part = tuple[str, tuple[str, Any, str]]


@dataclass(frozen=True)
class Parcel:
    """Upload for one submission.

    `path` is shown to people. `claim` is the JSON of an MLPerf set; a DAWNBench entry is sent as it
    is, so there it is a file. `benchmark_id` is given beside the JSON where that names none.
    `errors` has the faults that our own reading finds; the server decides whether to refuse.
    `notes` has the guesses made.
    """

    path: str
    claim: ArchiveFile | Mapping[str, Any]
    logs: Sequence[ArchiveFile]
    benchmark_id: str | None = None
    errors: Sequence[Problem] = ()
    notes: Sequence[str] = ()

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


def parts_of(parcel: Parcel, claim_json: bytes, opened: ExitStack) -> list[Part]:
    """The files as parts of a form; `opened` closes them. Raises LogFormatError."""
    claim = ("submission", (parcel.claim_name, claim_json, "application/json"))
    return [claim] + [
        ("logs", (file.name, opened.enter_context(_open(file)), "text/plain"))
        for file in parcel.logs
    ]


def _open(file: ArchiveFile) -> BinaryIO:
    """A regular file, never through a link that took its place since it was listed."""
    path = "/".join(("", *file.place[1:]))
    try:
        number = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except (OSError, ValueError) as error:
        raise _unreadable(file, getattr(error, "strerror", None) or str(error)) from error
    opened = os.fdopen(number, "rb")
    if not stat.S_ISREG(os.fstat(number).st_mode):
        opened.close()
        raise _unreadable(file, "not a regular file")
    return opened


def _unreadable(file: ArchiveFile, reason: str) -> LogFormatError:
    return LogFormatError(
        f"cannot be read ({reason})", file=file.path, expected="a readable file", code="unreadable"
    )
