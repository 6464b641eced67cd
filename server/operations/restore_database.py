"""Put a restored database in the place of the present one, in one step, and load its tables."""

import os
import secrets
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Date, TextClause, bindparam, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text, names_text
from server.base.artifacts import sync
from server.base.database import Database, UtcDateTime, utc_now
from server.base.errors import ConflictError
from server.base.write_turns import LOCK_FILES
from server.operations.copies import rows_present
from server.operations.folders import MANIFEST, Progress, silent
from server.operations.manifest import Manifest, TablePart
from server.operations.table_files import Columns, Kind, Line, kind_of, read_csv

BESIDE = "finishline_restore_"
REPLACED = "finishline_replaced_"
LOCK_TIMEOUT = "10s"
# The server shows a connection that was closed for a moment longer.
GONE_SECONDS = 2.0
ROWS_AT_ONCE = 200
TYPES: dict[Kind, TypeEngine[Any]] = {"moment": UtcDateTime(), "date": Date()}
LOOK_SECONDS = 0.05


def _filled(connection: Connection) -> list[str]:
    return sorted(name for name, present in rows_present(connection).items() if present)


class SqlitePlace:
    """A file, replaced by renaming another onto it."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._path = Path(str(database.url.database))

    def filled(self) -> str | None:
        """Its content, as the beginning of a sentence; None if no table has a row."""
        if not self._path.exists() or not self._path.stat().st_size:
            return None
        with self._database.engine.connect() as connection:
            names = _filled(connection)
        return f"{self._path} has rows in {names_text(names)}" if names else None

    def require_unused(self) -> None:
        """Take the file out of the mode that needs others' files, which takes it for oneself."""
        self._database.close()
        if not self._path.exists():
            return
        try:
            with closing(sqlite3.connect(self._path, timeout=1.0)) as connection:
                connection.execute("PRAGMA journal_mode=DELETE")
        except sqlite3.OperationalError as error:
            raise ConflictError(
                f"{self._path} is in use ({error}): stop the server first."
            ) from error

    @contextmanager
    def beside(self) -> Iterator[Database]:
        """A file in the same folder. Leftovers of a killed restore are removed."""
        prefix = f".{self._path.name}.restore-"
        for old in self._path.parent.glob(f"{prefix}*"):
            old.unlink(missing_ok=True)
        made = self._path.with_name(f"{prefix}{secrets.token_hex(8)}")
        made.touch(mode=0o600)
        database = Database(f"sqlite:///{made}")
        try:
            yield database
        finally:
            database.close()
            for ending in ("", "-wal", "-shm", "-journal", *LOCK_FILES):
                made.with_name(made.name + ending).unlink(missing_ok=True)

    def swap(self, made: Database) -> str | None:
        """Rename; the replaced file has had another name as well for a moment before."""
        made.close()
        fresh = Path(str(made.url.database))
        with closing(sqlite3.connect(fresh)) as connection:
            connection.execute("PRAGMA journal_mode=DELETE")
        if self._path.exists():
            fresh.chmod(self._path.stat().st_mode & 0o777)
        sync(fresh)
        self.require_unused()
        old = None
        if self._path.exists():
            old = self._path.with_name(f"{self._path.name}.replaced-{utc_now():%Y%m%dT%H%M%SZ}")
            os.link(self._path, old)
        fresh.replace(self._path)
        sync(self._path.parent)
        return str(old) if old is not None else None


class PostgresqlPlace:
    """A schema of PostgreSQL, replaced by renaming another one within a transaction."""

    def __init__(self, database: Database) -> None:
        self._database = database
        with database.engine.connect() as connection:
            self._schema = str(connection.scalar(text("SELECT current_schema()")) or "public")

    def filled(self) -> str | None:
        """Its content, as the beginning of a sentence; None if no table has a row."""
        with self._database.engine.connect() as connection:
            names = _filled(connection)
        return f"{self._database.url.database} has rows in {names_text(names)}" if names else None

    def require_unused(self) -> None:
        """Others' transactions would go on in the schema that is replaced."""
        self._database.close()
        give_up_at = time.monotonic() + GONE_SECONDS
        while (others := self._others()) and time.monotonic() < give_up_at:
            time.sleep(LOOK_SECONDS)
        self._database.close()
        if others:
            raise ConflictError(
                f"{others} other connections use {self._database.url.database}: stop every server "
                "process first."
            )

    def _others(self) -> int:
        query = (
            "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )
        with self._database.engine.connect() as connection:
            return int(connection.scalar(text(query)) or 0)

    @contextmanager
    def beside(self) -> Iterator[Database]:
        """A schema in the same database. Leftovers of a killed restore are removed."""
        name = f"{BESIDE}{secrets.token_hex(8)}"
        self._drop_leftovers()
        self._execute(f"CREATE SCHEMA {name}")
        database = Database(
            self._database.url.update_query_dict(
                {"options": f"-csearch_path={name}"}
            ).render_as_string(hide_password=False)
        )
        try:
            yield database
        finally:
            database.close()
            self._execute(f"DROP SCHEMA IF EXISTS {name} CASCADE")

    def swap(self, made: Database) -> str | None:
        """Rename both. An empty one is dropped."""
        with made.engine.connect() as connection:
            fresh = str(connection.scalar(text("SELECT current_schema()")))
        made.close()
        self.require_unused()
        kept = self.filled() is not None
        old = f"{REPLACED}{utc_now():%Y%m%dt%H%M%Sz}"
        statements = [
            f"SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'",
            f'ALTER SCHEMA "{self._schema}" RENAME TO {old}',
            f'ALTER SCHEMA {fresh} RENAME TO "{self._schema}"',
            f'GRANT USAGE ON SCHEMA "{self._schema}" TO PUBLIC',
        ]
        if not kept:
            statements.append(f"DROP SCHEMA {old} CASCADE")
        self._execute(*statements)
        return f"schema {old}" if kept else None

    def _drop_leftovers(self) -> None:
        query = f"SELECT nspname FROM pg_namespace WHERE nspname LIKE '{BESIDE}%'"  # noqa: S608
        with self._database.engine.connect() as connection:
            names = connection.scalars(text(query)).all()
        for name in names:
            self._execute(f'DROP SCHEMA "{name}" CASCADE')

    def _execute(self, *statements: str) -> None:
        with self._database.engine.begin() as connection:
            for statement in statements:
                connection.execute(text(statement))
        self._database.close()


Place = SqlitePlace | PostgresqlPlace


def place_of(database: Database) -> Place:
    """The place of the database that the settings name, which a restored one is to replace."""
    return SqlitePlace(database) if database.is_sqlite else PostgresqlPlace(database)


def load_tables(
    connection: Connection, folder: Path, manifest: Manifest, say: Progress = silent
) -> None:
    """Insert every row. Raises RuleError naming file and line of one that does not fit."""
    for table in manifest.tables:
        columns = _fitting(connection, table)
        insert = _insert_into(connection, table.name, columns)
        lines, done = read_csv(folder / table.file, columns, name=table.file), 0
        while batch := list(islice(lines, ROWS_AT_ONCE)):
            _insert(connection, insert, batch, table)
            done += len(batch)
            say(f"{table.name}, {done:,} of {count_text(table.rows, 'row')}")
    if connection.dialect.name == "postgresql":
        _set_sequences(connection, manifest.tables)


def _fitting(connection: Connection, table: TablePart) -> Columns:
    """The columns of a file, each of which the database has and keeps the same kind of value in."""
    columns = table.read_columns()
    inspector = inspect(connection)
    if not inspector.has_table(table.name):
        raise RuleError(f"this database has no table {table.name!r}", file=MANIFEST, field="tables")
    found = {each["name"]: kind_of(each["type"]) for each in inspector.get_columns(table.name)}
    for name, kind in zip(columns.names, columns.kinds, strict=True):
        if found.get(name) != kind:
            raise RuleError(
                f"got {kind}", file=MANIFEST, field=f"tables.{table.name}.{name}",
                expected=f"{found.get(name, 'no such column')}",
            )  # fmt: skip
    return columns


def _insert_into(connection: Connection, table: str, columns: Columns) -> TextClause:
    """The statement for rows of values by their column's position; JSON stays as it is written."""
    quote = connection.dialect.identifier_preparer.quote
    names = ", ".join(quote(name) for name in columns.names)
    places = ", ".join(f":p{number}" for number in range(len(columns.names)))
    typed = [
        bindparam(f"p{number}", type_=TYPES[kind])
        for number, kind in enumerate(columns.kinds)
        if kind in TYPES
    ]
    return text(f"INSERT INTO {quote(table)} ({names}) VALUES ({places})").bindparams(*typed)  # noqa: S608


def _insert(
    connection: Connection, insert: TextClause, lines: Sequence[Line], table: TablePart
) -> None:
    """Insert some lines; if they do not fit, one by one until the line is found that does not."""
    rows = [{f"p{number}": value for number, value in enumerate(line.values)} for line in lines]
    try:
        with connection.begin_nested():
            connection.execute(insert, rows)
    except DBAPIError as error:
        if len(lines) == 1:
            raise RuleError(
                _why(error), file=table.file, line=lines[0].number,
                expected="a row that fits the database and the rows before it",
            ) from error  # fmt: skip
        for line in lines:
            _insert(connection, insert, [line], table)


def _why(error: DBAPIError) -> str:
    """The database's reason, without the statement and the row."""
    return " ".join(str(error.orig).split())[:300]


def _set_sequences(connection: Connection, tables: Sequence[TablePart]) -> None:
    """Count on from the last id: PostgreSQL counts apart from the rows."""
    quote = connection.dialect.identifier_preparer.quote
    for table in tables:
        for column in table.columns:
            if column.kind != "integer":
                continue
            names = {"table": quote(table.name), "column": column.name}
            sequence = connection.scalar(
                text("SELECT pg_get_serial_sequence(:table, :column)"), names
            )
            if sequence is not None and table.rows:
                last = f"SELECT max({quote(column.name)}) FROM {quote(table.name)}"  # noqa: S608
                connection.execute(
                    text(f"SELECT setval(:sequence, ({last}))"), {"sequence": sequence}
                )
