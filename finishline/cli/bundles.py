"""Proof bundles from anywhere: read in memory, within limits, and never unpacked to a disk."""

import io
import re
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from finishline.cli.errors import CliError, ExitCode, Problem
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import read_json
from finishline.rules.proof.proof import PROOF_NAME
from finishline.rules.text import count_text

MIB = 1024 * 1024
PROOF_LIMIT_BYTES = 32 * MIB
FILE_LIMIT_BYTES = 64 * MIB
BUNDLE_LIMIT_BYTES = 512 * MIB  # of the zip, and of all that is in it
FILES_LIMIT = 110  # proof.json, a claim, and as many run logs as a submission may have
ALLOWED_NAME = re.compile(r"proof\.json|logs/[0-9a-f]{64}")


@dataclass(frozen=True)
class Bundle:
    """A proof's document and its files by hash; None if it came without files."""

    document: dict[str, Any]
    logs: dict[str, bytes] | None


def read_bundle_file(path: Path) -> Bundle:
    """The bundle in a proof.zip or proof.json. Raises CliError."""
    try:
        if path.stat().st_size > BUNDLE_LIMIT_BYTES:
            raise _refusal(path.name, "too large", expected=f"at most {BUNDLE_LIMIT_BYTES} bytes")
        content = path.read_bytes()
    except OSError as error:
        raise CliError(
            f"Cannot read {path} ({error.strerror}).", exit_code=ExitCode.REFUSED
        ) from error
    return read_bundle(content, file=path.name)


def read_bundle(content: bytes, *, file: str) -> Bundle:
    """The bundle in these bytes: a zip, or the JSON alone. Raises CliError."""
    if not content.startswith(b"PK"):
        return Bundle(_document(content, file=file), logs=None)
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as opened:
            files = _read_files(opened, file=file)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, OSError) as error:
        raise _refusal(file, f"no readable zip ({error})", expected="a proof bundle") from error
    if PROOF_NAME not in files:
        raise _refusal(file, f"holds no {PROOF_NAME}", expected="a proof bundle")
    document = _document(files.pop(PROOF_NAME), file=f"{file}/{PROOF_NAME}")
    return Bundle(document, {name.partition("/")[2]: found for name, found in files.items()})


def _read_files(opened: zipfile.ZipFile, *, file: str) -> dict[str, bytes]:
    entries = opened.infolist()
    if len(entries) > FILES_LIMIT:
        raise _refusal(file, count_text(len(entries), "file"), expected=f"at most {FILES_LIMIT}")
    files: dict[str, bytes] = {}
    left = BUNDLE_LIMIT_BYTES
    for entry in entries:
        place = f"{file}/{entry.filename[:100]}"
        if not ALLOWED_NAME.fullmatch(entry.filename):
            raise _refusal(place, "no name for a file here", expected=f"{PROOF_NAME} or logs/SHA")
        if entry.filename in files:
            raise _refusal(place, "is there twice", expected="each file once")
        if entry.flag_bits & 1:
            raise _refusal(place, "is encrypted", expected="a file that can be read")
        limit = PROOF_LIMIT_BYTES if entry.filename == PROOF_NAME else FILE_LIMIT_BYTES
        with opened.open(entry) as source:
            files[entry.filename] = _read_at_most(source, min(limit, left), place=place)
        left -= len(files[entry.filename])
    return files


def _read_at_most(source: IO[bytes], limit: int, *, place: str) -> bytes:
    """A file's bytes, however many its header says there are."""
    content = source.read(limit + 1)
    if len(content) > limit:
        raise _refusal(place, "too large unpacked", expected=f"at most {limit} bytes")
    return content


def _document(content: bytes, *, file: str) -> dict[str, Any]:
    if len(content) > PROOF_LIMIT_BYTES:
        raise _refusal(file, "too large", expected=f"at most {PROOF_LIMIT_BYTES} bytes")
    try:
        return read_json(content, file=file)
    except RuleError as error:
        raise _refusal(file, error.message, expected="a proof bundle") from error


def _refusal(file: str, message: str, *, expected: str) -> CliError:
    return CliError(
        "This is no proof bundle that can be checked.",
        exit_code=ExitCode.REFUSED,
        problems=[Problem(message=message, file=file, expected=expected)],
    )
