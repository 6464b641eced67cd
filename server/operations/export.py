"""Export of a server's public data, or of everything but secrets, for others to study."""

import csv
from contextlib import ExitStack
from datetime import date, datetime
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Select

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
from server.operations.parquet import can_write_parquet, parquet_file
from server.operations.selection import LEFT_OUT, NOT_PUBLIC, list_logs, select_export

EXPORT_FORMAT = "finishline-export-2"
TABLES, BENCHMARKS = "tables", "benchmarks"
# Curves and reports are long: a few hundred rows of them are megabytes. So many are a group of
# Parquet, too.
ROWS_AT_ONCE = 500


def export(
    services: Services, root: Path, *, public: bool = False, keep: int | None = None,
    keep_missing: bool = False, say: Progress = silent,
) -> tuple[Path, Manifest]:  # fmt: skip
    """Add an export to a folder of exports, while the server goes on. Its tables are of one moment.

    With `public` all that is not public is left out.
    """
    return add_copy(
        services, root, "export", partial(_fill, services, public, say), keep=keep,
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
    count = 0
    columns = {
        name: getattr(column.type, "impl_instance", column.type).python_type
        for name, column in query.selected_columns.items()
    }
    found = connection.execution_options(yield_per=ROWS_AT_ONCE).execute(query)
    with ExitStack() as stack:
        file = path.with_suffix(".csv").open("w", encoding="utf-8", newline="")
        target = csv.writer(stack.enter_context(file))
        target.writerow(columns)
        add = None
        if can_write_parquet():
            add = stack.enter_context(parquet_file(path.with_suffix(".parquet"), columns))
        for rows in found.partitions():
            try:
                target.writerows([_cell(value) for value in row] for row in rows)
            except UnicodeError as error:
                raise ContentError(f"{path.name}: a text that is not Unicode: {error}") from error
            if add is not None:
                add([row._asdict() for row in rows])
            count += len(rows)
    return count


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, datetime):
        return moment_text(value)
    return value.isoformat() if isinstance(value, date) else csv_cell(value)
