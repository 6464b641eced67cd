"""Folders of backups and exports: whole or not at all, with their logs and a signed manifest."""

import csv
import fcntl
import hashlib
import json
import os
import re
import secrets
import shutil
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
from sqlalchemy import Connection, select, text

from finishline.rules.canonical import read_json
from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import FIRST_PREVIOUS, Head
from finishline.rules.proof.proof import CodePart, Part, key_id_of, read_part, signed_bytes
from server.base.artifacts import ArtifactStore, Staged, sync
from server.base.database import Database, moment_text, utc_now
from server.base.errors import ConflictError
from server.base.models import AuditRecord
from server.base.places import code_version
from server.base.services import Services
from server.base.signing import Signer

MANIFEST, LOG_LIST, LOGS, LAST, LOCK = "manifest.json", "logs.csv", "logs", "last.json", ".lock"
PARTIAL = ".partial-"
DATED = re.compile(r"finishline-\d{8}T\d{6}Z")
EXPORT_FORMAT = "finishline-export-1"
BACKUP_FORMAT = "finishline-backup-2"
MANIFEST_LIMIT_BYTES = 16 * 1024 * 1024
FILES_AT_ONCE = 64

Progress = Callable[[str], None]


def silent(_line: str) -> None:
    """Say nothing."""


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """A connection that reads one moment of the database. Writers don't wait for it."""
    options: dict[str, Any] = {}
    if not database.is_sqlite:
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with database.engine.connect().execution_options(**options) as connection:
        revision_of(connection)  # The first read sets the moment.
        yield connection
        connection.rollback()


def revision_of(connection: Connection) -> str:
    """The schema's revision."""
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


@contextmanager
def whole_or_not(path: Path) -> Iterator[Path]:
    """A folder to fill. It gets its name when the block ends well, and is removed otherwise.

    A path that ends in .tar becomes an archive of the folder. Raises ConflictError if the name is
    taken. A killed process leaves a hidden folder `.NAME.partial-…` behind.
    """
    if path.exists():
        raise ConflictError(f"{path} exists already. Hint: name another place, or remove it first.")
    made = path.with_name(f".{path.name}{PARTIAL}{secrets.token_hex(8)}")
    archive = made.with_name(made.name + ".tar")
    made.mkdir(parents=True)
    try:
        yield made
        for each in (*made.glob("*"), *made.glob("*/*"), made):  # A log was written when copied.
            sync(each)
        finished = made
        if path.suffix == ".tar":
            finished = archive
            with tarfile.open(archive, "w") as target:
                target.add(made, arcname=path.stem)
            sync(archive)
        finished.rename(path)
        sync(path.parent)
    finally:
        shutil.rmtree(made, ignore_errors=True)
        archive.unlink(missing_ok=True)


@contextmanager
def only_one(folder: Path, *, what: str) -> Iterator[None]:
    """Hold a folder's lock, which a process that dies gives back. Raises ConflictError if held."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(f"Another {what} is under way in {folder}.") from error
        yield


@contextmanager
def dated_copy(root: Path, *, what: str, keep: int | None) -> Iterator[Path]:
    """A dated path to fill. Then all but the latest `keep` go, and `last.json` notes the success.

    Raises ConflictError while another one is filled.
    """
    with only_one(root, what=what):
        for leftover in root.glob(f".*{PARTIAL}*"):  # Of a process that was killed.
            shutil.rmtree(leftover, ignore_errors=True)
        started = utc_now()
        path = root / f"finishline-{started:%Y%m%dT%H%M%SZ}"
        yield path
        for old in dated_folders(root)[:-keep] if keep else ():
            # Renamed first: a folder that is half removed has no dated name.
            shutil.rmtree(old.rename(old.with_name(f".{old.name}{PARTIAL}removed")))
        ended = utc_now()
        seconds = (ended - started).total_seconds()
        note = {"name": path.name, "ended_at": ended.isoformat(), "seconds": seconds}
        fresh = root / f".{LAST}"
        fresh.write_text(json.dumps(note) + "\n")
        fresh.replace(root / LAST)


def dated_folders(root: Path) -> list[Path]:
    """Folders with a dated name and a manifest, the oldest first."""
    return sorted(
        each for each in root.iterdir()
        if DATED.fullmatch(each.name) and (each / MANIFEST).is_file()
    )  # fmt: skip


def last_success(root: Path) -> tuple[float, float]:
    """End of the last successful copy in a folder, in Unix time, and its seconds. 0 if none."""
    try:
        found = json.loads((root / LAST).read_text())
        return datetime.fromisoformat(found["ended_at"]).timestamp(), float(found["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, 0.0


@dataclass
class Copied:
    """Bytes of each log that a copy has, by hash, the number of new ones, and the lost ones."""

    sizes: dict[str, int] = field(default_factory=dict)
    new: int = 0
    missing: list[str] = field(default_factory=list)


def copy_logs(
    names: Sequence[str],
    source: ArtifactStore,
    target: ArtifactStore,
    *,
    earlier: Path | None = None,
    keep_missing: bool = False,
) -> Copied:
    """Copy logs by their hashes. Those in the target stay, those in `earlier` are hard-linked.

    Raises RuleError on a log whose content has another hash, and on one that the source lost,
    unless those are to be listed.
    """
    copied = Copied()
    for start in range(0, len(names), FILES_AT_ONCE):
        staged: list[Staged] = []
        try:
            for name in names[start : start + FILES_AT_ONCE]:
                size = None if target.bucket else _size_of(target.path_of(name), earlier)
                if size is None:
                    try:
                        with closing(source.open(name)) as file:
                            staged.append(target.stage(file))
                    except FileNotFoundError:
                        if not keep_missing:
                            raise RuleError("not in the artifact store", file=name) from None
                        copied.missing.append(name)
                        continue
                    size, found = staged[-1].size_bytes, staged[-1].sha256
                    if found != name:
                        raise RuleError(
                            f"its content has hash {found}", file=name,
                            expected="the hash in its name",
                        )  # fmt: skip
                copied.sizes[name] = size
            target.settle(staged)
            target.keep(staged)
        finally:
            for each in staged:
                target.discard(each)
        copied.new += len(staged)
    return copied


def _size_of(path: Path, earlier: Path | None) -> int | None:
    """Bytes of a log that a folder has, or that an earlier one on the same disk has."""
    if earlier is not None:
        with suppress(OSError):
            path.parent.mkdir(exist_ok=True)
            os.link(earlier / path.parent.name / path.name, path)
    return path.stat().st_size if path.exists() else None


@dataclass(frozen=True)
class FilePart:
    """A file of the folder."""

    sha256: str
    size_bytes: int


@dataclass(frozen=True)
class LogsPart:
    """The raw logs beside it. Rows name the `missing` ones, which the store had lost."""

    included: bool
    files: int
    size_bytes: int
    missing: list[str]


@dataclass(frozen=True)
class SignaturePart:
    """The signer of a manifest, and the signature of everything else. Key and value in hex."""

    key_id: str
    algorithm: Literal["ed25519"]
    public_key: str
    value: str


class Manifest(Part):
    """Content of a folder: `everything`, `public`, or the kind of database of a backup.

    `tables` are the rows of each table, `left_out` the reason for each table or column that is
    absent, `files` everything but the logs.
    """

    format: str
    content: str
    made_at: str
    schema_revision: str
    code: CodePart
    audit_head: Head
    tables: dict[str, int]
    left_out: dict[str, str]
    logs: LogsPart
    files: dict[str, FilePart]


@dataclass(frozen=True)
class Moment:
    """When a copy was made, and the state of the database at that moment."""

    made_at: str
    revision: str
    audit_head: Head
    logs: list[str]


def moment_of(connection: Connection, logs: list[str]) -> Moment:
    """The moment that a connection reads, with the hashes of the logs that its rows name."""
    query = select(AuditRecord.id, AuditRecord.sha256).order_by(AuditRecord.id.desc()).limit(1)
    last = connection.execute(query).first()
    head = Head(last.id, last.sha256) if last is not None else Head(0, FIRST_PREVIOUS)
    return Moment(moment_text(utc_now()), revision_of(connection), head, logs)


def sign_folder(
    folder: Path,
    services: Services,
    signer: Signer,
    moment: Moment,
    logs: Copied | None,
    **parts: Any,
) -> Manifest:
    """Write the list of logs and then the signed manifest, the last file of a folder."""
    copied = logs or Copied()
    with (folder / LOG_LIST).open("w", newline="") as file:
        csv.writer(file).writerows([("sha256", "bytes"), *copied.sizes.items()])
    inside = (each for each in folder.rglob("*") if each.relative_to(folder).parts[0] != LOGS)
    manifest = Manifest(
        made_at=moment.made_at,
        schema_revision=moment.revision,
        code=code_version(services.settings.code_commit),
        audit_head=moment.audit_head,
        logs=LogsPart(
            logs is not None, len(copied.sizes), sum(copied.sizes.values()), copied.missing
        ),
        files={
            str(each.relative_to(folder)): file_part(each)
            for each in sorted(inside)
            if each.is_file()
        },
        **parts,
    )
    write_manifest(folder, manifest, signer)
    return manifest


def write_manifest(folder: Path, manifest: Manifest, signer: Signer) -> None:
    """Write and sign a manifest."""
    document = manifest.model_dump()
    value = signer.sign(signed_bytes(document)).hex()
    document["signature"] = vars(SignaturePart(signer.key_id, "ed25519", signer.public_key, value))
    content = json.dumps(document, indent=1, ensure_ascii=False, allow_nan=False)
    (folder / MANIFEST).write_text(content + "\n", encoding="utf-8")


def read_manifest(folder: Path, *, wanted: str) -> Manifest:
    """The manifest of a folder. Raises RuleError on a fault in it or its signature."""
    with (folder / MANIFEST).open("rb") as file:
        document = read_json(file.read(MANIFEST_LIMIT_BYTES), file=MANIFEST)
    if document.get("format") != wanted:
        found = str(document.get("format"))[:60]
        raise RuleError(f"got {found!r}", file=MANIFEST, field="format", expected=wanted)
    if not _is_as_signed(document):
        raise RuleError(
            "it was changed after it was signed", file=MANIFEST, field="signature",
            expected="an Ed25519 signature over everything else",
        )  # fmt: skip
    plain = {name: value for name, value in document.items() if name != "signature"}
    return read_part(Manifest, plain)


def _is_as_signed(document: Mapping[str, Any]) -> bool:
    try:
        signature = SignaturePart(**document["signature"])
        key = bytes.fromhex(signature.public_key)
        value = bytes.fromhex(signature.value)
        Ed25519PublicKey.from_public_bytes(key).verify(value, signed_bytes(document))
    except (KeyError, TypeError, ValueError, InvalidSignature):
        return False
    return signature.key_id == key_id_of(key)


def file_part(path: Path) -> FilePart:
    """The hash and size of a file. Raises OSError."""
    with path.open("rb") as file:
        return FilePart(hashlib.file_digest(file, "sha256").hexdigest(), file.tell())
