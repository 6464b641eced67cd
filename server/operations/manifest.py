"""manifest.json: content of an export or a backup, with the hash of each file and a signature."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import Head
from finishline.rules.proof.proof import CodePart, Part, key_id_of, read_part, signed_bytes
from server.base.artifacts import CHUNK_BYTES
from server.base.signing import Signer
from server.operations.folders import MANIFEST
from server.operations.table_files import Columns, known_kind


class SignaturePart(Part):
    """The signer of a manifest, and the signature over all but itself. Key and value in hex."""

    key_id: str
    algorithm: Literal["ed25519"]
    public_key: str
    value: str


LOG_LIST = "logs.csv"
EXPORT_FORMAT = "finishline-export-1"
BACKUP_FORMAT = "finishline-backup-1"
MANIFEST_LIMIT_BYTES = 16 * 1024 * 1024


@dataclass(frozen=True)
class ColumnPart:
    """A column of a table's file."""

    name: str
    kind: str


@dataclass(frozen=True)
class TablePart:
    """A table: its file, its rows and columns, and the columns left out with the reason."""

    name: str
    file: str
    rows: int
    columns: list[ColumnPart]
    left_out: dict[str, str] = field(default_factory=dict)

    def read_columns(self) -> Columns:
        """The columns as their file has them. Raises ValueError on an unknown kind."""
        names = tuple(column.name for column in self.columns)
        return Columns(names, tuple(known_kind(column.kind) for column in self.columns))


@dataclass(frozen=True)
class LogsPart:
    """The raw logs that go with it; `missing` are named by rows, and were not in the store."""

    included: bool
    files: int
    size_bytes: int
    missing: list[str]


@dataclass(frozen=True)
class FilePart:
    """A file of the folder."""

    sha256: str
    size_bytes: int


class Manifest(Part):
    """Content of a folder. `content` is everything, public, or for a backup tables or sqlite."""

    format: str
    content: str
    made_at: str
    schema_revision: str
    code: CodePart
    audit_head: Head
    tables: list[TablePart]
    left_out: dict[str, str]
    logs: LogsPart
    files: dict[str, FilePart]


def write_manifest(folder: Path, manifest: Manifest, signer: Signer) -> None:
    """Write and sign it, the last file of a folder."""
    document = manifest.model_dump()
    signature = SignaturePart(
        algorithm="ed25519",
        key_id=signer.key_id,
        public_key=signer.public_key,
        value=signer.sign(signed_bytes(document)).hex(),
    )
    document["signature"] = signature.model_dump()
    text = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(text + "\n", encoding="utf-8")


def read_manifest(folder: Path, *, wanted: str) -> Manifest:
    """The manifest of a folder. Raises RuleError on a fault in it or its signature."""
    try:
        with (folder / MANIFEST).open("rb") as file:
            content = file.read(MANIFEST_LIMIT_BYTES)
    except OSError as error:
        raise RuleError(
            f"not there ({error.strerror})", file=MANIFEST, expected=f"a folder with {wanted}"
        ) from error
    document = read_json(content, file=MANIFEST)
    if document.get("format") != wanted:
        found = str(document.get("format"))[:60]
        raise RuleError(f"got {found!r}", file=MANIFEST, field="format", expected=wanted)
    _check_signature(document)
    plain = {name: value for name, value in document.items() if name != "signature"}
    return read_part(Manifest, plain)


def _check_signature(document: Mapping[str, Any]) -> None:
    try:
        signature = read_part(SignaturePart, document["signature"])
        key = bytes.fromhex(signature.public_key)
        Ed25519PublicKey.from_public_bytes(key).verify(
            bytes.fromhex(signature.value), signed_bytes(document)
        )
    except (KeyError, ValueError, InvalidSignature) as error:
        raise RuleError(
            "it is not as it was signed",
            file=MANIFEST,
            field="signature",
            expected="an Ed25519 signature over everything else",
        ) from error
    if signature.key_id != key_id_of(key):
        raise RuleError(
            "not the id of its key", file=MANIFEST, field="signature.key_id",
            expected=key_id_of(key),
        )  # fmt: skip


def file_part(path: Path) -> FilePart:
    """The hash and size of a file. Raises OSError."""
    digest, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while chunk := file.read(CHUNK_BYTES):
            digest.update(chunk)
            size += len(chunk)
    return FilePart(digest.hexdigest(), size)


def check_files(folder: Path, manifest: Manifest) -> Iterable[RuleError]:
    """Faults of the files that a manifest names: one that is missing, or changed."""
    for table in manifest.tables:
        if table.file not in manifest.files:
            yield RuleError(
                f"got {table.file[:100]!r}", file=MANIFEST, field=f"tables.{table.name[:100]}.file",
                expected="one of the files that it lists",
            )  # fmt: skip
    for name, part in manifest.files.items():
        if ".." in Path(name).parts or Path(name).is_absolute():
            yield RuleError(f"got {name[:100]!r}", file=MANIFEST, field="files", expected="inside")
            continue
        try:
            found = file_part(folder / name)
        except OSError as error:
            yield RuleError(f"not there ({error.strerror})", file=name, expected=part.sha256)
            continue
        if found != part:
            yield RuleError(
                f"it was changed: {found.size_bytes} bytes with hash {found.sha256}",
                file=name,
                expected=f"{part.size_bytes} bytes with hash {part.sha256}",
            )
