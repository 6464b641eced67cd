"""Moments come out of either database in UTC; connections that the database ended are replaced."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.dialects import sqlite
from sqlalchemy.exc import OperationalError

import server.base.database
from server.base.database import Database, UtcDateTime, insert_missing
from server.base.models import User

MOMENT = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
KATHMANDU = timezone(timedelta(hours=5, minutes=45))


@pytest.mark.parametrize(
    "answered", [MOMENT, MOMENT.replace(tzinfo=None), MOMENT.astimezone(KATHMANDU)]
)
def test_a_moment_is_of_the_day_it_is_in_utc(answered: datetime) -> None:
    read = UtcDateTime().process_result_value(answered, sqlite.dialect())

    assert read is not None
    assert read.isoformat() == "2026-03-01T23:30:00+00:00"


@pytest.mark.processes
def test_a_postgresql_of_another_timezone_answers_in_utc(postgresql_url: str) -> None:
    database = Database(postgresql_url)
    with database.write() as session:
        session.execute(text("SET timezone TO 'Asia/Kathmandu'"))
        insert_missing(session, User, name="alice", created_at=MOMENT)
        user = session.query(User).one()

        assert user.created_at.isoformat() == "2026-03-01T23:30:00+00:00"
    database.close()


@pytest.mark.processes
def test_a_connection_that_the_database_ended_while_it_rested_is_replaced(
    postgresql_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database, others = Database(postgresql_url), create_engine(postgresql_url)

    def backend() -> int:
        with database.read_columns() as connection:
            return int(connection.scalar(text("SELECT pg_backend_pid()")) or 0)

    def end(number: int) -> None:
        with others.connect() as connection:
            # It waits until that one has ended, 10 seconds at most.
            ending = text("SELECT pg_terminate_backend(:number, 10000)")
            assert connection.scalar(ending, {"number": number})

    # Within so many seconds nobody asks: whoever finds out is told, and replaces it for the others.
    monkeypatch.setattr(server.base.database, "RESTED_SECONDS", 3600.0)
    first = backend()
    assert backend() == first
    end(first)
    with pytest.raises(OperationalError):
        backend()
    second = backend()
    monkeypatch.setattr(server.base.database, "RESTED_SECONDS", 0.0)
    end(second)
    assert backend() not in (first, second)
    database.close()
    others.dispose()
