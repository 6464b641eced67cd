"""The tables of a snapshot as files."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from server.exports.csv_tables import Columns, CsvFile, Rows
from server.exports.manifest import ColumnPart, FilePart, TablePart, file_part
from server.exports.parquet_tables import ParquetFile
from server.exports.progress import Progress, silent
from server.exports.selection import Selected
from server.exports.snapshot import stream

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
