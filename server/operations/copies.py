"""Write backups and exports: complete dated folders with a signed manifest."""

import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, text

from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import Head
from finishline.rules.proof.proof import CodePart, Part, signed_bytes
from server.base.artifacts import ArtifactStore, sync
from server.base.database import Services, moment_text, utc_now
from server.base.errors import ConflictError
from server.base.places import code_version
from server.people.audit import read_head
from server.verifications.proofs import current_signer

MANIFEST, LOGS, LOCK = "manifest.json", "logs", ".lock"
DATED = "????????T??????Z"  # As of %Y%m%dT%H%M%SZ.
PARTIAL = ".partial"

Progress = Callable[[str], None]
# The fields of a manifest about a copy without its logs, and the names of the logs.
Content = tuple[dict[str, Any], Sequence[str]]
# Fills a folder with a copy, except its logs, and reports progress.
Fill = Callable[[Services, Path, Progress], Content]


def silent(_line: str) -> None:
    """Ignore a line of progress."""


class Manifest(Part):
    """Description of a copy. `content` is `everything`, `public`, or a backup's kind of database.

    `tables` counts the rows of each table, `left_out` has the reason for each absent table or
    column, `files` the SHA-256 of each file, `missing_logs` the logs that the store had lost.
    """

    format: str
    content: str
    made_at: str
    schema_revision: str
    code: CodePart
    audit_head: Head
    tables: dict[str, int]
    left_out: dict[str, str]
    missing_logs: list[str]
    files: dict[str, str]

    @property
    def logs(self) -> int:
        """Number of logs."""
        return sum(name.startswith(f"{LOGS}/") for name in self.files)


def moment_of(connection: Connection) -> dict[str, Any]:
    """Read the fields of a manifest about a database's moment."""
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return {"schema_revision": revision, "audit_head": read_head(connection)}


@contextmanager
def only_one(root: Path) -> Iterator[None]:
    """Hold a folder's lock, which a dying process gives back. Raises ConflictError if held."""
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (root / LOCK).open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise ConflictError(f"Another command is at work in {root}.") from error
        yield


def add_copy(
    what: str, fill: Fill, services: Services, root: Path, *,
    keep: int | None = None, keep_missing: bool = False, say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Add a dated copy to a folder while the server runs. Then remove all but the latest `keep`.

    Raises ConflictError while another copy is made, RuleError naming a lost or changed log.
    With `keep_missing` lost logs are listed. A process that dies leaves a hidden folder behind,
    which the next one removes.
    """
    signer = current_signer(services)
    with only_one(root):
        for leftover in root.glob(f".*{PARTIAL}"):
            shutil.rmtree(leftover)
        path = root / f"{what}-{utc_now():%Y%m%dT%H%M%SZ}"
        folder = root / f".{path.name}{PARTIAL}"
        folder.mkdir(mode=0o700)
        try:
            fields, logs = fill(services, folder, say)
            files = {name: sha256_of(folder / name) for name in files_in(folder)}
            earlier = next(reversed(dated_copies(root, what)), root)
            missing = _copy_logs(logs, services.artifacts, folder, earlier, keep_missing)
            manifest = Manifest(
                **fields,
                made_at=moment_text(utc_now()),
                code=code_version(services.settings.code_commit),
                missing_logs=missing,
                files=files | {place_of(name): name for name in logs if name not in missing},
            )
            document = manifest.model_dump()
            document["signature"] = {
                "key_id": signer.key_id,
                "algorithm": "ed25519",
                "public_key": signer.public_key,
                "value": signer.sign(signed_bytes(document)).hex(),
            }
            (folder / MANIFEST).write_text(json.dumps(document, indent=1, ensure_ascii=False))
            for each in (*folder.rglob("*"), folder):
                sync(each)
            folder.rename(path)
            sync(root)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        for old in dated_copies(root, what)[:-keep] if keep else ():
            # Renamed first, so that a half removed folder has no dated name.
            shutil.rmtree(old.rename(old.with_name(f".{old.name}{PARTIAL}")))
    say(f"logs: {manifest.logs}")
    return path, manifest


def dated_copies(root: Path, what: str) -> list[Path]:
    """List the whole backups or exports in a folder, the oldest first."""
    return sorted(each for each in root.glob(f"{what}-{DATED}") if (each / MANIFEST).is_file())


def last_copy_at(root: Path, what: str) -> float:
    """Return when the last backup or export in a folder began, in Unix time. 0 without one."""
    last = next(reversed(dated_copies(root, what)), None)
    if last is None:
        return 0.0
    return datetime.strptime(last.name, f"{what}-%Y%m%dT%H%M%S%z").timestamp()


def place_of(sha256: str) -> str:
    """Return the path of a log in a copy."""
    return f"{LOGS}/{sha256[:2]}/{sha256}"


def files_in(folder: Path) -> list[str]:
    """List all paths in a folder except folders, also links and devices."""
    found = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return sorted(str(path.relative_to(folder)) for path in found)


def sha256_of(path: Path) -> str:
    """Hash a file. Raises OSError."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _copy_logs(
    names: Sequence[str], store: ArtifactStore, folder: Path, earlier: Path, keep_missing: bool
) -> list[str]:
    missing = []
    for name in names:
        path, before = folder / place_of(name), earlier / place_of(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        with suppress(OSError):
            if sha256_of(before) == name:
                os.link(before, path)
                continue
        try:
            with closing(store.open(name)) as source, path.open("wb") as target:
                shutil.copyfileobj(source, target)
        except FileNotFoundError:
            if not keep_missing:
                raise RuleError("not in the artifact store", file=name) from None
            missing.append(name)
            continue
        if (found := sha256_of(path)) != name:
            expected = "the hash in its name"
            raise RuleError(f"its content has hash {found}", file=name, expected=expected)
    return missing
