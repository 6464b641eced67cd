"""Export of a server's public data, or of everything but secrets, for others to study."""

import csv
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sqlalchemy import Boolean, Connection, Date, DateTime, Float, Integer, Select

from finishline.rules.text import count_text
from server.base.database import moment_text
from server.base.errors import ContentError
from server.base.paging import csv_cell
from server.base.services import Services
from server.benchmarks.definitions import definition_text
from server.operations.copies import (
    Content,
    Manifest,
    Progress,
    add_copy,
    audit_head,
    revision_of,
    silent,
    snapshot,
)
from server.operations.selection import LEFT_OUT, NOT_PUBLIC, list_logs, select_export

EXPORT_FORMAT = "finishline-export-2"
TABLES, BENCHMARKS = "tables", "benchmarks"
# Curves and reports are long: a few hundred rows of them are megabytes.
ROWS_AT_ONCE = 200
ROWS_IN_GROUP, BYTES_IN_GROUP = 50_000, 16 * 1024 * 1024


def export(
    services: Services, root: Path, *, public: bool = False, keep: int | None = None,
    keep_missing: bool = False, say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Add an export to a folder of exports, while the server goes on. Its tables are of one moment.

    With `public` all that is not public is left out.
    """
    return add_copy(
        services, root, partial(_fill, services, public, say), keep=keep,
        keep_missing=keep_missing, say=say,
    )  # fmt: skip


def _fill(services: Services, public: bool, say: Progress, folder: Path) -> Content:
    (folder / TABLES).mkdir()
    (folder / BENCHMARKS).mkdir()
    tables = {}
    with snapshot(services.database) as connection:
        for name, query in select_export(public=public):
            tables[name] = write_table(connection, query, folder / TABLES / name)
            say(f"{name}, {count_text(tables[name], 'row')}")
        revision, head = revision_of(connection), audit_head(connection)
        logs = list_logs(connection, public=public)
    with services.database.read() as session:
        for benchmark_id, benchmark in services.benchmarks.items():
            content = definition_text(session, benchmark)
            (folder / BENCHMARKS / f"{benchmark_id}.toml").write_bytes(content)
    kind, left_out = ("public", LEFT_OUT | NOT_PUBLIC) if public else ("everything", LEFT_OUT)
    return Content(EXPORT_FORMAT, kind, revision, head, logs, tables, dict(left_out))


def write_table(connection: Connection, query: Select[Any], path: Path) -> int:
    """Write the rows of a query as CSV, and as Parquet where pyarrow is installed. Counts them.

    A few rows at a time are in memory.
    """
    count, names = 0, query.selected_columns.keys()
    found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    with (
        path.with_suffix(".csv").open("w", encoding="utf-8", newline="") as file,
        _parquet_file(path.with_suffix(".parquet"), query) as add_to_parquet,
    ):
        target = csv.writer(file)
        target.writerow(names)
        for portion in found.partitions():
            rows = [tuple(row) for row in portion]
            try:
                target.writerows([_cell(value) for value in row] for row in rows)
            except UnicodeError as error:
                raise ContentError(f"{path.name}: a text that is not Unicode: {error}") from error
            add_to_parquet(rows)
            count += len(rows)
    return count


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return moment_text(value)
    return value.isoformat() if isinstance(value, date) else csv_cell(value)


@contextmanager
def _parquet_file(path: Path, query: Select[Any]) -> Iterator[Callable[[list[Any]], None]]:
    """Take rows for a Parquet file, and write a group of them when it is large."""
    if find_spec("pyarrow") is None:
        yield lambda _: None
        return
    import pyarrow
    from pyarrow import parquet

    types: list[tuple[Any, Any]] = [
        (Boolean, pyarrow.bool_()), (DateTime, pyarrow.timestamp("us", tz="UTC")),
        (Date, pyarrow.date32()), (Integer, pyarrow.int64()), (Float, pyarrow.float64()),
    ]  # fmt: skip
    fields = []
    for name, column in query.selected_columns.items():
        own = getattr(column.type, "impl_instance", column.type)
        found = next((arrow for kind, arrow in types if isinstance(own, kind)), pyarrow.string())
        fields.append((name, found))
    schema = pyarrow.schema(fields)
    group: list[Any] = []

    def write_group() -> None:
        target.write_table(pyarrow.Table.from_batches(group, schema=schema))
        group.clear()

    def add(rows: list[Any]) -> None:
        columns = zip(zip(*rows, strict=True), schema.types, strict=True)
        arrays = [pyarrow.array(values, type=kind) for values, kind in columns]
        group.append(pyarrow.RecordBatch.from_arrays(arrays, schema=schema))
        many = sum(each.num_rows for each in group) >= ROWS_IN_GROUP
        if many or sum(each.nbytes for each in group) >= BYTES_IN_GROUP:
            write_group()

    with parquet.ParquetWriter(path, schema, compression="zstd") as target:
        yield add
        write_group()
