"""One moment of the database, read while others write."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Executable, inspect, text

from server.database import Database

# Curves and reports are long: a few hundred rows of them are megabytes.
ROWS_AT_ONCE = 200


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """A connection to which the database stands still: whatever it reads is of one moment.

    Nobody waits for it. While it is open SQLite keeps what is written since in its -wal file, and
    PostgreSQL the rows that were replaced.
    """
    options: dict[str, Any] = {}
    if not database.is_sqlite:
        options = {"isolation_level": "REPEATABLE READ", "postgresql_readonly": True}
    with database.engine.connect().execution_options(**options) as connection:
        # The moment is that of the first read, on either database.
        connection.execute(text("SELECT version_num FROM alembic_version")).all()
        yield connection
        connection.rollback()


def stream(connection: Connection, query: Executable) -> Iterator[list[tuple[Any, ...]]]:
    """The rows of a query, a few at a time: they are never in memory together."""
    result = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    for part in result.partitions():
        yield [tuple(row) for row in part]


def revision_of(connection: Connection) -> str:
    """The schema's revision at that moment."""
    return str(connection.execute(text("SELECT version_num FROM alembic_version")).scalar_one())


def rows_present(connection: Connection) -> dict[str, bool]:
    """Which tables there are, and whether any row is in each."""
    quote = connection.dialect.identifier_preparer.quote
    return {
        name: connection.execute(text(f"SELECT 1 FROM {quote(name)} LIMIT 1")).first() is not None  # noqa: S608
        for name in inspect(connection).get_table_names()
        if name != "alembic_version"
    }
