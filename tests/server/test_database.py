"""Moments come out of either database in UTC."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from sqlalchemy import text
from sqlalchemy.dialects import sqlite

from server.database import Database, UtcDateTime, insert_missing
from server.models import User

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
