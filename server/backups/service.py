"""A server's whole state, secrets and all: the database, the signing key, the logs.

A folder of backups has one pool of logs by their hashes for all of them, and a dated folder each
for the rest: a second backup copies only the logs that are new.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from server.artifacts import ArtifactStore
from server.backups.database_part import write_database
from server.code_version import code_version
from server.database import moment_text, utc_now
from server.dependencies import Parts
from server.errors import ContentError, NotFoundError
from server.exports.csv_tables import CsvFile
from server.exports.folders import only_one, remove_partial, whole_or_not
from server.exports.logs import LOG_COLUMNS, Copied, copy_logs, size_in
from server.exports.manifest import (
    BACKUP_FORMAT,
    LOG_LIST,
    FilePart,
    LogsPart,
    Manifest,
    file_part,
    write_manifest,
)
from server.exports.nightly import dated_folders, dated_name, prune
from server.exports.progress import Progress, now_and_then, silent
from server.exports.service import NAMED, noted_logs
from server.observability.kept_copies import note_success
from server.proofs.service import current_signer

POOL = "logs"
KEY = "signing-key.pem"


@dataclass(frozen=True)
class Choice:
    """What to back up. Without `logs` they have to be kept safe in another way.

    `tables` writes the database as files of its tables, which PostgreSQL and SQLite both take back.
    `keep` is how many backups stay, None for all; logs in the pool are never removed.
    """

    logs: bool = True
    tables: bool = False
    keep_missing: bool = False
    keep: int | None = None


def back_up(
    parts: Parts, root: Path, choice: Choice, say: Progress = silent
) -> tuple[Path, Manifest]:
    """Add a backup to a folder of backups, while the server goes on.

    The database is of one moment, and every log that it names was there at that moment. Raises
    ConflictError while another backup runs, RuleError naming a log that is lost or changed.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with only_one(root, what="backup"):
        remove_partial(root)
        started = utc_now()
        path = root / dated_name(started)
        with whole_or_not(path) as folder:
            manifest = _fill(parts, root, folder, choice, say)
        if choice.keep is not None:
            for each in prune(root, keep=choice.keep):
                say(f"removed {each.name}")
        note_success(root, path.name, started=started, ended=utc_now())
    return path, manifest


def find_backup(root: Path, name: str | None) -> Path:
    """A backup by its name, the latest if none is named. Raises ContentError, NotFoundError."""
    if root.is_file():
        raise ContentError(
            f"{root} is a file; expected a folder of backups. A restore unpacks no archive: unpack "
            "one that you made yourself with tar, and name the folder."
        )
    found = {each.name: each for each in dated_folders(root)} if root.is_dir() else {}
    if not found:
        raise NotFoundError(f"There is no backup in {root}.")
    if name is None:
        return found[max(found)]
    if name not in found:
        raise NotFoundError(f"{root} has no backup {name!r}; it has {', '.join(sorted(found))}.")
    return found[name]


def _fill(parts: Parts, root: Path, folder: Path, choice: Choice, say: Progress) -> Manifest:
    folder.chmod(0o700)
    signer = current_signer(parts)
    made_at = moment_text(utc_now())
    database = write_database(
        parts.database, folder, as_tables=choice.tables or not parts.database.is_sqlite, say=say
    )
    _copy_key(parts.settings.signing_key_path, folder / KEY)
    copied, listed = _copy_logs(parts.artifacts, root, folder, choice, say)
    manifest = Manifest(
        format=BACKUP_FORMAT,
        content=database.content,
        made_at=made_at,
        schema_revision=database.revision,
        code=code_version(),
        audit_head=database.audit_head,
        tables=database.tables,
        left_out=database.left_out,
        logs=LogsPart(choice.logs, copied.files, copied.size_bytes, copied.missing),
        files=database.files | {LOG_LIST: listed, KEY: file_part(folder / KEY)},
    )
    write_manifest(folder, manifest, signer)
    for each in folder.rglob("*"):
        each.chmod(0o700 if each.is_dir() else 0o600)
    return manifest


def _copy_key(key: Path, copy: Path) -> None:
    copy.touch(mode=0o600)
    shutil.copyfile(key, copy)


def _copy_logs(
    store: ArtifactStore, root: Path, folder: Path, choice: Choice, say: Progress
) -> tuple[Copied, FilePart]:
    pool = ArtifactStore(root / POOL)
    pool.sweep(older_than_seconds=0)
    with (folder / LOG_LIST).open("wb") as file:
        listed = CsvFile(file, LOG_COLUMNS)
        copied = Copied()
        if choice.logs:
            copied = copy_logs(
                noted_logs(folder),
                store.open,
                pool,
                known=size_in(pool),
                keep_missing=choice.keep_missing,
                on_kept=lambda sha256, size_bytes, _: listed.add([(sha256, size_bytes)]),
                progress=now_and_then(say, what="logs"),
            )
    (folder / NAMED).unlink()
    say(f"logs: {copied.files}, of which {copied.new} are new in {root / POOL}")
    return copied, FilePart(listed.sha256, listed.size_bytes)
