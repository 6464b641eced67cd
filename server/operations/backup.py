"""Backup of a server's whole state, secrets and all: the database, the signing key, the logs.

A folder of backups has one pool of logs by their hashes for all of them, and a dated folder each
for the rest: a second backup copies only the logs that are new.
"""

import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from sqlalchemy import NullPool, create_engine

from finishline.rules.proof.hash_chain import Head
from server.base.artifacts import ArtifactStore
from server.base.code_version import code_version
from server.base.database import Database, moment_text, utc_now
from server.base.errors import ContentError, NotFoundError
from server.base.services import Services
from server.operations.copies import (
    Copied,
    audit_head,
    copy_logs,
    list_logs,
    revision_of,
    size_in,
    snapshot,
    write_log_list,
    write_tables,
)
from server.operations.folders import (
    Progress,
    dated_copy,
    dated_folders,
    now_and_then,
    silent,
    whole_or_not,
)
from server.operations.manifest import (
    BACKUP_FORMAT,
    LOG_LIST,
    FilePart,
    LogsPart,
    Manifest,
    TablePart,
    file_part,
    write_manifest,
)
from server.operations.selection import select_backup
from server.verifications.proofs import current_signer

POOL = "logs"
KEY = "signing-key.pem"
SQLITE_FILE = "finishline.db"
SESSIONS = "console_sessions"
LEFT_OUT = {SESSIONS: "users sign in again"}


@dataclass(frozen=True)
class Choice:
    """Content of a backup. Without `logs` they have to be kept safe in another way.

    `tables` writes the database as files of its tables, which PostgreSQL and SQLite both take back.
    `keep` is how many backups stay, None for all; logs in the pool are never removed.
    """

    logs: bool = True
    tables: bool = False
    keep_missing: bool = False
    keep: int | None = None


@dataclass(frozen=True)
class DatabasePart:
    """The files of a database in a backup, and the names of the logs its rows want."""

    content: Literal["sqlite", "tables"]
    revision: str
    audit_head: Head
    logs: list[str]
    files: dict[str, FilePart]
    tables: list[TablePart] = field(default_factory=list)


def back_up(
    services: Services, root: Path, choice: Choice, say: Progress = silent
) -> tuple[Path, Manifest]:
    """Add a backup to a folder of backups, while the server goes on.

    The database is of one moment, and every log that it names was there at that moment. Raises
    ConflictError while another backup runs, RuleError naming a log that is lost or changed.
    """
    root.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (
        dated_copy(root, what="backup", keep=choice.keep, say=say) as path,
        whole_or_not(path) as folder,
    ):
        manifest = _fill(services, root, folder, choice, say)
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
        raise NotFoundError(
            f"No backup in {root}. Name a folder that `finishline backup` or "
            "`python -m server.admin backup` has written."
        )
    if name is None:
        return found[max(found)]
    if name not in found:
        raise NotFoundError(f"{root} has no backup {name!r}; it has {', '.join(sorted(found))}.")
    return found[name]


def _fill(services: Services, root: Path, folder: Path, choice: Choice, say: Progress) -> Manifest:
    folder.chmod(0o700)
    signer = current_signer(services)
    made_at = moment_text(utc_now())
    as_tables = choice.tables or not services.database.is_sqlite
    database = (_write_tables if as_tables else _copy_sqlite)(services.database, folder, say)
    _copy_key(services.settings.signing_key_path, folder / KEY)
    copied = Copied()
    if choice.logs:
        copied = _copy_logs(services.artifacts, root, database.logs, choice, say)
    files = {LOG_LIST: write_log_list(folder, copied), KEY: file_part(folder / KEY)}
    manifest = Manifest(
        format=BACKUP_FORMAT,
        content=database.content,
        made_at=made_at,
        schema_revision=database.revision,
        code=code_version(services.settings.code_commit),
        audit_head=database.audit_head,
        tables=database.tables,
        left_out=LEFT_OUT,
        logs=LogsPart(choice.logs, len(copied.sizes), copied.size_bytes, copied.missing),
        files=database.files | files,
    )
    write_manifest(folder, manifest, signer)
    for each in folder.rglob("*"):
        each.chmod(0o700 if each.is_dir() else 0o600)
    return manifest


def _copy_key(key: Path, copy: Path) -> None:
    copy.touch(mode=0o600)
    shutil.copyfile(key, copy)


def _copy_logs(
    store: ArtifactStore, root: Path, names: list[str], choice: Choice, say: Progress
) -> Copied:
    if (root / POOL).is_symlink():
        raise ContentError(f"{root / POOL} is a link; expected a folder. Hint: remove the link.")
    pool = ArtifactStore(root / POOL)
    pool.sweep(older_than_seconds=0)
    copied = copy_logs(
        names,
        store.open,
        pool,
        known=size_in(pool),
        keep_missing=choice.keep_missing,
        progress=now_and_then(say, what="logs"),
    )
    say(f"logs: {len(copied.sizes)}, of which {len(copied.new)} are new in {root / POOL}")
    return copied


def _write_tables(database: Database, folder: Path, say: Progress) -> DatabasePart:
    """Write each table of one moment as a file, without the sessions of browsers.

    PostgreSQL is read by this project's own rules, not by pg_dump, which refuses a server newer
    than itself and cannot be taken along.
    """
    with snapshot(database) as connection:
        written = write_tables(
            connection,
            select_backup(connection, without=(SESSIONS,)),
            folder,
            parquet=False,
            progress=now_and_then(say, what="tables"),
        )
        return DatabasePart(
            "tables",
            revision_of(connection),
            audit_head(connection),
            list_logs(connection),
            written.files,
            written.tables,
        )


def _copy_sqlite(database: Database, folder: Path, _say: Progress) -> DatabasePart:
    """Copy the file by SQLite's own online backup, in one step, without the sessions of browsers.

    Writers go on, and none of theirs is half in it.
    """
    path = folder / SQLITE_FILE
    path.touch(mode=0o600)
    raw = database.engine.raw_connection()
    try:
        source = cast(sqlite3.Connection, raw.driver_connection)
        with closing(sqlite3.connect(path)) as target:
            source.backup(target)
            target.execute("PRAGMA journal_mode=DELETE")
            target.execute("PRAGMA secure_delete=ON")
            with target:
                target.execute(f"DELETE FROM {SESSIONS}")  # noqa: S608
            (found,) = target.execute("PRAGMA integrity_check").fetchone()
            if found != "ok":
                raise RuntimeError(f"The copy of the database is damaged: {found}")
    finally:
        raw.close()
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        revision, head = revision_of(connection), audit_head(connection)
        names = list_logs(connection)
    return DatabasePart("sqlite", revision, head, names, {SQLITE_FILE: file_part(path)})
