"""Databases full of boards for perf/board_reads.py: one board as it would be, the others copies."""

import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from sqlalchemy import Connection, Table

from finishline.rules.benchmarks.benchmark import load_benchmarks
from perf.board_pages import BENCHMARK, fill
from server.benchmarks.queries import find_benchmark, keep_definition
from server.board_versions import raise_board_version
from server.database import Database
from server.dependencies import Parts
from server.models import RunRow, Submission
from server.schema import migrate
from server.settings import Settings
from tests.support.postgresql import kept_postgresql, running_postgresql

PER_BOARD = 5000


@dataclass(frozen=True)
class Filled:
    """A database with its boards, and the folder that the settings of its server name."""

    url: str
    folder: Path
    boards: tuple[str, ...]

    @property
    def settings(self) -> Settings:
        """Of a server on it."""
        return settings_of(self.url, self.folder)


def settings_of(url: str, folder: Path) -> Settings:
    """Of a server on a database whose benchmarks and artifacts lie in a folder."""
    return Settings(
        rate_limits=False,
        max_wait_seconds=60.0,
        database_url=url,
        artifacts_dir=folder / "artifacts",
        benchmarks_dir=folder / "benchmarks",
    )


@contextmanager
def filled(kind: str, folder: Path, *, results: int, keep: bool = False) -> Iterator[Filled]:
    """A "sqlite" or "postgresql" with so many results, 5,000 to a board; one at least.

    With `keep` it stays in the folder, and one that an earlier call has kept there is not filled
    again.
    """
    boards = (BENCHMARK, *(f"copy-{number}" for number in range(1, results // PER_BOARD)))
    is_whole = folder / "is-whole"
    with _database(kind, folder, keep=keep) as url:
        if not is_whole.exists():
            write_benchmarks(folder / "benchmarks", boards)
            fill_boards(url, folder, boards, min(results, PER_BOARD))
            is_whole.touch()
        database = Database(url)
        migrate(database)  # One that was kept may be of an earlier version.
        database.close()
        yield Filled(url, folder, boards)


def _database(kind: str, folder: Path, *, keep: bool) -> AbstractContextManager[str]:
    if kind == "sqlite":
        return nullcontext(f"sqlite:///{folder}/boards.db")
    return kept_postgresql(folder / "postgresql") if keep else running_postgresql()


def write_benchmarks(folder: Path, boards: tuple[str, ...]) -> None:
    """The shipped benchmarks, and one definition more for each copy."""
    shutil.copytree(Settings().benchmarks_dir, folder)
    text = (folder / f"{BENCHMARK}.toml").read_text()
    for name in boards[1:]:
        renamed = text.replace(f'id = "{BENCHMARK}"', f'id = "{name}"', 1)
        (folder / f"{name}.toml").write_text(renamed)


def fill_boards(url: str, folder: Path, boards: tuple[str, ...], count: int) -> None:
    """Migrate, fill one board, copy it."""
    database = Database(url)
    migrate(database)
    settings = settings_of(url, folder)
    parts = Parts(
        settings=settings,
        database=database,
        artifacts=None,  # type: ignore[arg-type]
        benchmarks=load_benchmarks(settings.benchmarks_dir),
    )
    fill(parts, count)
    for number, name in enumerate(boards[1:], start=1):
        copy_board(parts, number, name)
    if boards[1:] and not database.is_sqlite:
        with database.engine.connect().execution_options(isolation_level="AUTOCOMMIT") as c:
            c.exec_driver_sql("VACUUM ANALYZE")  # What PostgreSQL does by itself after a while.
    database.close()


def copy_board(parts: Parts, number: int, name: str) -> None:
    """The submissions of the first board again, with their runs, under another benchmark."""
    benchmark = find_benchmark(parts.benchmarks, name)
    with parts.database.write() as session:
        keep_definition(session, benchmark, parts.settings.benchmarks_dir)
        session.flush()
        connection = session.connection()
        own = {"benchmark_id": name, "benchmark_sha256": benchmark.sha256}
        copy_rows(connection, Submission.__table__, "id", number, own)  # type: ignore[arg-type]
        copy_rows(connection, RunRow.__table__, "submission_id", number, {})  # type: ignore[arg-type]
        raise_board_version(session, name)


def copy_rows(
    connection: Connection, table: Table, key: str, number: int, own: dict[str, str]
) -> None:
    """The rows of the first board under keys that sort before its own; runs are numbered anew."""
    given = {key, "id", *own}
    kept = [column.name for column in table.c if column.name not in given]
    names = ", ".join([key, *own, *(f'"{name}"' for name in kept)])
    values = ", ".join(
        [f"'c{number:03}-' || {key}", *(f"'{text}'" for text in own.values())]
        + [f'"{name}"' for name in kept]
    )
    connection.exec_driver_sql(
        f"INSERT INTO {table.name} ({names}) SELECT {values} FROM {table.name} "  # noqa: S608
        f"WHERE {key} >= 'perf-'"
    )
