"""Processes that share a file of SQLite write one after the other; a turn is only a courtesy."""

import fcntl
import sqlite3
import threading
from contextlib import closing
from itertools import pairwise
from pathlib import Path

import pytest
from sqlalchemy import text

import server.write_turns
from server.database import Database
from server.write_turns import TURN

WRITES = 50


@pytest.fixture
def path(tmp_path: Path) -> Path:
    database = Database(f"sqlite:///{tmp_path / 'turns.db'}")
    with database.write() as session:
        session.execute(text("CREATE TABLE written (number INTEGER)"))
    database.close()
    return tmp_path / "turns.db"


def write(database: Database, number: int = 0) -> None:
    with database.write() as session:
        session.execute(text("INSERT INTO written VALUES (:number)"), {"number": number})


def test_two_processes_that_write_on_and_on_write_in_turns(path: Path) -> None:
    # Two databases of one file share nothing but the file, as two processes do.
    ready = threading.Barrier(2)

    def write_on(number: int) -> None:
        database = Database(f"sqlite:///{path}")
        ready.wait(10.0)
        for _ in range(WRITES):
            write(database, number)
        database.close()

    writers = [threading.Thread(target=write_on, args=(number,)) for number in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    with closing(sqlite3.connect(path)) as connection:
        order = [number for (number,) in connection.execute("SELECT number FROM written")]
    assert len(order) == 2 * WRITES
    changes = sum(before != after for before, after in pairwise(order))
    # Whoever is looked after late may miss a turn.
    assert changes > WRITES / 2, order


def test_whoever_waits_too_long_for_a_turn_goes_without(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.write_turns, "PATIENCE_SECONDS", 0.01)
    database = Database(f"sqlite:///{path}")
    with Path(f"{path}{TURN}").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        write(database)

    assert count(database) == 1
    database.close()


def test_where_no_file_can_be_locked_the_database_decides(path: Path) -> None:
    Path(f"{path}{TURN}").unlink()
    Path(f"{path}{TURN}").mkdir()  # No file can be opened under this name.
    database = Database(f"sqlite:///{path}")
    write(database)

    assert count(database) == 1
    database.close()


def test_a_turn_ends_with_a_write_that_fails(path: Path) -> None:
    database, other = Database(f"sqlite:///{path}"), Database(f"sqlite:///{path}")
    with pytest.raises(ZeroDivisionError), database.write():
        raise ZeroDivisionError
    with Path(f"{path}{TURN}").open("rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    write(other)

    assert count(other) == 1
    database.close()
    other.close()


def count(database: Database) -> int:
    with database.read_columns() as connection:
        return int(connection.scalar(text("SELECT count(*) FROM written")) or 0)
