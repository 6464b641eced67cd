"""One moment of the database, read while others write, and its tables as files."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Executable, inspect, select, text

from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import FIRST_PREVIOUS, Head
from finishline.rules.text import count_text
from server.database import Database
from server.models import AuditRecord
from server.operations.folders import Progress, silent
from server.operations.manifest import ColumnPart, FilePart, TablePart, file_part
from server.operations.selection import Selected
from server.operations.table_files import Columns, CsvFile, ParquetFile, Rows

# Curves and reports are long: a few hundred rows of them are megabytes.
ROWS_AT_ONCE = 200


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """A connection to which the database stands still: whatever it reads is of one moment.

    Writers do not wait for it. While it is open SQLite keeps later writes in its -wal file, and
    PostgreSQL the rows that they replaced.
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


def audit_head(connection: Connection) -> Head:
    """The last record of the audit log at the moment of a snapshot."""
    query = select(AuditRecord.id, AuditRecord.sha256).order_by(AuditRecord.id.desc()).limit(1)
    last = connection.execute(query).first()
    return Head(last.id, last.sha256) if last is not None else Head(0, FIRST_PREVIOUS)


def rows_present(connection: Connection) -> dict[str, bool]:
    """Which tables there are, and whether any row is in each."""
    quote = connection.dialect.identifier_preparer.quote
    return {
        name: connection.execute(text(f"SELECT 1 FROM {quote(name)} LIMIT 1")).first() is not None  # noqa: S608
        for name in inspect(connection).get_table_names()
        if name != "alembic_version"
    }


TABLES = "tables"


@dataclass(frozen=True)
class Written:
    """The tables that were written, and every file of theirs."""

    tables: list[TablePart]
    files: dict[str, FilePart]


def write_tables(
    connection: Connection,
    selected: Iterable[Selected],
    folder: Path,
    *,
    parquet: bool,
    progress: Progress = silent,
) -> Written:
    """Write each table of a snapshot as CSV and, if wanted, as Parquet as well."""
    (folder / TABLES).mkdir()
    tables: list[TablePart] = []
    files: dict[str, FilePart] = {}
    for table in selected:
        part, own = _write_table(connection, table, folder, parquet=parquet, progress=progress)
        tables.append(part)
        files |= own
    return Written(tables, files)


def _write_table(
    connection: Connection, table: Selected, folder: Path, *, parquet: bool, progress: Progress
) -> tuple[TablePart, dict[str, FilePart]]:
    columns = Columns(
        tuple(field.name for field in table.fields), tuple(field.kind for field in table.fields)
    )
    name, other = f"{TABLES}/{table.name}.csv", f"{TABLES}/{table.name}.parquet"
    with ExitStack() as files:
        target = CsvFile(files.enter_context((folder / name).open("wb")), columns)
        adds: list[Callable[[Rows], None]] = [target.add]
        if parquet:
            study = ParquetFile(folder / other, columns)
            files.callback(study.close)
            adds.append(study.add)
        for rows in _batches(connection, table):
            for add in adds:
                add(rows)
            progress(f"{table.name}, {count_text(target.rows, 'row')}")
    part = TablePart(
        name=table.name,
        file=name,
        rows=target.rows,
        columns=[ColumnPart(field.name, field.kind) for field in table.fields],
        left_out=dict(table.left_out),
    )
    own = {name: FilePart(target.sha256, target.size_bytes)}
    return part, own | ({other: file_part(folder / other)} if parquet else {})


def _batches(connection: Connection, table: Selected) -> Iterator[Rows]:
    try:
        yield from stream(connection, table.rows)
    except UnicodeError as error:
        raise RuleError(f"a text that is no Unicode: {error}", field=table.name) from error
