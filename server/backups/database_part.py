"""The database in a backup: SQLite as a file, PostgreSQL as its tables, of one moment either way.

Sessions of browsers are in neither. PostgreSQL is read by COPY's own rules of this project, not by
pg_dump, which refuses a server newer than itself and cannot be taken along.
"""

import sqlite3
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, cast

from sqlalchemy import Connection, NullPool, create_engine

from finishline.rules.proof.hash_chain import Head
from server.database import Database
from server.exports.logs import list_logs
from server.exports.manifest import FilePart, TablePart, file_part
from server.exports.progress import Progress, now_and_then
from server.exports.selection import select_backup
from server.exports.service import NAMED, audit_head
from server.exports.snapshot import revision_of, snapshot
from server.exports.tables import write_tables

SQLITE_FILE = "finishline.db"
SESSIONS = "console_sessions"
LEFT_OUT = {SESSIONS: "whoever is signed in signs in again"}


@dataclass(frozen=True)
class DatabasePart:
    """What was written of a database."""

    content: Literal["sqlite", "tables"]
    revision: str
    audit_head: Head
    files: dict[str, FilePart]
    tables: list[TablePart] = field(default_factory=list)
    left_out: dict[str, str] = field(default_factory=lambda: dict(LEFT_OUT))


def write_database(
    database: Database, folder: Path, *, as_tables: bool, say: Progress
) -> DatabasePart:
    """Write a database into a folder, and beside it the names of the logs its rows want."""
    if as_tables:
        return _write_tables(database, folder, say)
    path = folder / SQLITE_FILE
    _copy_sqlite(database, path)
    engine = create_engine(f"sqlite:///{path}", poolclass=NullPool)
    with engine.connect() as connection:
        _note_logs(connection, folder)
        revision, head = revision_of(connection), audit_head(connection)
    return DatabasePart("sqlite", revision, head, {SQLITE_FILE: file_part(path)})


def _write_tables(database: Database, folder: Path, say: Progress) -> DatabasePart:
    with snapshot(database) as connection:
        revision, head = revision_of(connection), audit_head(connection)
        written = write_tables(
            connection,
            select_backup(without=(SESSIONS,)),
            folder,
            parquet=False,
            progress=now_and_then(say, what="tables"),
        )
        _note_logs(connection, folder)
    return DatabasePart("tables", revision, head, written.files, written.tables)


def _note_logs(connection: Connection, folder: Path) -> None:
    with (folder / NAMED).open("w") as file:
        file.writelines(f"{sha256}\n" for sha256 in list_logs(connection))


def _copy_sqlite(database: Database, path: Path) -> None:
    """SQLite's own online backup, in one step: writers go on, and none of theirs is half in it."""
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
