"""Copies of one moment: tables of the database as files, and the logs that their rows name."""

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, BinaryIO

from sqlalchemy import Connection, Executable, inspect, select, text, union
from sqlalchemy.sql.expression import CompoundSelect

from finishline.rules.errors import RuleError
from finishline.rules.proof.hash_chain import FIRST_PREVIOUS, Head
from finishline.rules.text import count_text
from server.base.artifacts import ArtifactStore, Staged
from server.base.database import Database
from server.base.models import (
    AuditRecord,
    BenchmarkFile,
    RunRow,
    Submission,
)
from server.operations.folders import Progress, silent
from server.operations.manifest import LOG_LIST, ColumnPart, FilePart, TablePart, file_part
from server.operations.selection import Selected, hidden_submissions
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
    """Tables of a database by name, each with whether it has any row."""
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


FILES_AT_ONCE = 64
# A disk ends many fsyncs that wait together in about the time of one, and a bucket answers many.
THREADS = 8
LOG_COLUMNS = Columns(("sha256", "bytes"), ("text", "integer"))

Open = Callable[[str], BinaryIO]


@dataclass
class Copied:
    """Outcome of a copy, filled while it goes on.

    `sizes` are the bytes of each file that the target has, `new` the files it had not before,
    `missing` those that could not be opened.
    """

    sizes: dict[str, int] = field(default_factory=dict)
    new: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        """Bytes of all files."""
        return sum(self.sizes.values())


def named_logs(*, public: bool = False, of_benchmarks: bool = True) -> CompoundSelect[Any]:
    """The hashes of all files that rows name, once each, in order."""
    claims = select(Submission.claim_sha256.label("sha256"))
    runs = select(RunRow.log_sha256.label("sha256"))
    own = select(BenchmarkFile.file_sha256.label("sha256"))
    if public:
        hidden = hidden_submissions()
        claims = claims.where(~hidden)
        runs = runs.where(RunRow.submission_id.in_(select(Submission.id).where(~hidden)))
    return union(claims, runs, *([own] if of_benchmarks else [])).order_by("sha256")


def list_logs(connection: Connection, *, public: bool = False) -> list[str]:
    """The hashes of all files that rows name at the moment of a snapshot.

    A backup before a migration reads a database that may lack the table of benchmarks' files.
    """
    of_benchmarks = inspect(connection).has_table(BenchmarkFile.__tablename__)
    named = named_logs(public=public, of_benchmarks=of_benchmarks)
    return list(connection.scalars(named))


def copy_logs(
    hashes: Iterable[str],
    source: Open,
    target: ArtifactStore,
    *,
    known: Callable[[str], int | None],
    keep_missing: bool = False,
    copied: Copied | None = None,
    progress: Progress = silent,
) -> Copied:
    """Copy files by their hashes into a store, and write them to the disk.

    `known` returns the size in bytes of a file that the target already has, else None. Raises
    RuleError on a file with another hash than its name, or that is not in the source, unless
    missing files are to be listed.
    """
    copied = copied or Copied()
    everything = iter(hashes)
    with ThreadPoolExecutor(THREADS) as threads:
        while wanted := list(islice(everything, FILES_AT_ONCE)):
            sizes = {sha256: known(sha256) for sha256 in wanted}
            fresh = [sha256 for sha256 in wanted if sizes[sha256] is None]
            found = list(threads.map(lambda sha256: _stage(sha256, source, target), fresh))
            staged = [each for each in found if each is not None]
            try:
                missing = [name for name, each in zip(fresh, found, strict=True) if each is None]
                if missing and not keep_missing:
                    raise RuleError("not in the artifact store", file=missing[0])
                target.keep(target.settle(staged))
                target.write_places(staged)
            finally:
                for each in staged:
                    target.discard(each)
            copied.missing += missing
            copied.new += [each.sha256 for each in staged]
            sizes |= {each.sha256: each.size_bytes for each in staged}
            copied.sizes |= {sha256: size for sha256, size in sizes.items() if size is not None}
            progress(f"{count_text(len(copied.sizes), 'file')}")
    return copied


def write_log_list(folder: Path, copied: Copied) -> FilePart:
    """Write the hash and bytes of each file beside an export or a backup."""
    with (folder / LOG_LIST).open("wb") as file:
        listed = CsvFile(file, LOG_COLUMNS)
        listed.add(list(copied.sizes.items()))
    return FilePart(listed.sha256, listed.size_bytes)


def _stage(sha256: str, source: Open, target: ArtifactStore) -> Staged | None:
    try:
        opened = source(sha256)
    except FileNotFoundError:
        return None
    with closing(opened):
        staged = target.stage(opened)
    if staged.sha256 != sha256:
        target.discard(staged)
        raise RuleError(
            f"its content has hash {staged.sha256}", file=sha256, expected="the hash in its name"
        )
    return staged


def size_in(store: ArtifactStore) -> Callable[[str], int | None]:
    """Function for the bytes of a file in a store's folder, None without it; no bucket is asked."""

    def size(sha256: str) -> int | None:
        if store.bucket is not None:
            return None
        try:
            return store.path_of(sha256).stat().st_size
        except FileNotFoundError:
            return None

    return size


def link_from(earlier: Path | None, target: ArtifactStore) -> Callable[[str], int | None]:
    """Hard-link files of an earlier export into this one when their size is asked, as `size_in`."""
    here = size_in(target)
    if earlier is None:
        return here
    before = ArtifactStore(earlier, reads_only=True)

    def size(sha256: str) -> int | None:
        old, new = before.path_of(sha256), target.path_of(sha256)
        try:
            new.parent.mkdir(exist_ok=True)
            os.link(old, new)
        except FileExistsError:
            pass
        except OSError:
            return here(sha256)  # It is not there, or on another disk.
        return here(sha256)

    return size
