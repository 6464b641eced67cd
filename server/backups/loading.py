"""Rows from files into the tables of an empty database, as they are: with their ids."""

from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import psycopg
from sqlalchemy import Connection, Date, Dialect, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.types import TypeEngine

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.database import UtcDateTime
from server.exports.cells import Kind, kind_of
from server.exports.csv_tables import Columns, Line, read_csv
from server.exports.manifest import MANIFEST, Manifest, TablePart
from server.exports.progress import Progress, silent

ROWS_AT_ONCE = 200
# COPY goes past SQLAlchemy, to the driver.
DRIVER_ERRORS = (DBAPIError, psycopg.Error)


def load_tables(
    connection: Connection, folder: Path, manifest: Manifest, say: Progress = silent
) -> None:
    """Insert every row. Raises RuleError naming file and line of one that does not fit."""
    for table in manifest.tables:
        columns = _fitting(connection, table)
        insert = _inserter(connection, table.name, columns)
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


Insert = Callable[[Sequence[Line]], None]


def _inserter(connection: Connection, table: str, columns: Columns) -> Insert:
    quote = connection.dialect.identifier_preparer.quote
    names = ", ".join(quote(name) for name in columns.names)
    if connection.dialect.name == "postgresql":
        statement = f"COPY {quote(table)} ({names}) FROM STDIN"
        return lambda lines: _copy(connection, statement, lines)
    places = ", ".join("?" * len(columns.names))
    statement = f"INSERT INTO {quote(table)} ({names}) VALUES ({places})"  # noqa: S608
    convert = [_converter(kind, connection.dialect) for kind in columns.kinds]

    def insert(lines: Sequence[Line]) -> None:
        rows = [
            tuple([put(value) for put, value in zip(convert, line.values, strict=True)])
            for line in lines
        ]
        connection.exec_driver_sql(statement, rows)

    return insert


def _copy(connection: Connection, statement: str, lines: Sequence[Line]) -> None:
    driver = connection.connection.driver_connection
    with driver.cursor() as cursor, cursor.copy(statement) as copy:  # type: ignore[union-attr]
        for line in lines:
            copy.write_row(line.values)


def _converter(kind: Kind, dialect: Dialect) -> Callable[[Any], Any]:
    """How the driver of SQLite takes a value of a kind."""
    types: dict[Kind, TypeEngine[Any]] = {"moment": UtcDateTime(), "date": Date()}
    if kind not in types:
        return _same
    return types[kind].dialect_impl(dialect).bind_processor(dialect) or _same


def _same(value: Any) -> Any:
    return value


def _insert(
    connection: Connection, insert: Insert, lines: Sequence[Line], table: TablePart
) -> None:
    """Insert some lines; if they do not fit, one by one until the line is found that does not."""
    try:
        with connection.begin_nested():
            insert(lines)
    except DRIVER_ERRORS as error:
        if len(lines) == 1:
            raise RuleError(
                _why(error), file=table.file, line=lines[0].number,
                expected="a row that fits the database and the rows before it",
            ) from error  # fmt: skip
        for line in lines:
            _insert(connection, insert, [line], table)


def _why(error: Exception) -> str:
    """What the database says, without the statement and the row."""
    cause = error.orig if isinstance(error, DBAPIError) else error
    return " ".join(str(cause).split())[:300]


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
