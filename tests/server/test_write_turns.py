"""Processes that share a file of SQLite write one after the other; a turn is only a courtesy."""

import fcntl
import threading
from pathlib import Path

import pytest
from sqlalchemy import text

import server.base.write_turns
from server.base.database import Database
from server.base.write_turns import NEXT, TURN
from tests.support.processes import wait_for

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


def test_whoever_has_written_lets_those_who_wait_write_first(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Two databases of one file share nothing but the file, as two processes do.
    monkeypatch.setattr(server.base.write_turns, "PATIENCE_SECONDS", 60.0)
    database, other = Database(f"sqlite:///{path}"), Database(f"sqlite:///{path}")
    for number in range(5):
        with database.write():
            waiting = threading.Thread(target=write, args=(other,))
            waiting.start()
            wait_for(lambda: is_locked(f"{path}{NEXT}"), seconds=60.0, what="its wait", pause=0.001)
        with database.write() as session:
            written = session.scalar(text("SELECT count(*) FROM written"))
        waiting.join()
        assert written == number + 1
    database.close()
    other.close()


def test_nothing_that_two_processes_write_on_and_on_is_lost(path: Path) -> None:
    def write_on() -> None:
        database = Database(f"sqlite:///{path}")
        for _ in range(WRITES):
            write(database)
        database.close()

    writers = [threading.Thread(target=write_on) for _ in range(2)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()

    database = Database(f"sqlite:///{path}")
    assert count(database) == 2 * WRITES
    database.close()


def test_whoever_waits_too_long_for_a_turn_goes_without(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server.base.write_turns, "PATIENCE_SECONDS", 0.01)
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


def is_locked(path: str) -> bool:
    with Path(path).open("rb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def count(database: Database) -> int:
    with database.read_columns() as connection:
        return int(connection.scalar(text("SELECT count(*) FROM written")) or 0)
