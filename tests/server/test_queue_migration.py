"""Attempts of before there were fair queues: whose they are, where they wait; and the way back."""

import pytest
from alembic import command
from sqlalchemy import text

from server.base.database import Database
from server.base.schema import alembic_config, migrate
from tests.server.test_migrations import insert_rows, select_all

BEFORE, HERE = "0012", "0015"
ROWS = """
INSERT INTO users (id, name, created_at) VALUES (1, 'ada', :now), (2, 'olivia', :now);
INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, created_at)
VALUES ('abc', 'digits', '1', 'id', :now);
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, status, eligible, result, request_sha256, submitted_at)
VALUES ('s-1', 1, 'digits', 'abc', 'closed', 'm', 'f',
  '{"hardware_class" : "cpu"}', '{}', 'c', 'claimed', true, '{}', 'r', :now);
INSERT INTO verifications (id, kind, submission_id, benchmark_sha256, requested_by, state, seal,
  nonce, seeds, control_points, max_attempts, lease_seconds, limit_seconds, reasons, created_at)
VALUES ('own', 'replay', 's-1', 'abc', 1, 'queued', 's', 'n', '[1]', '[]', 3, 8, 100, '[]', :now),
 ('asked', 'replay', 's-1', 'abc', 2, 'queued', 's', 'n', '[1]', '[]', 3, 8, 100, '[]', :now),
 ('reference', 'calibration', NULL, 'abc', 2, 'queued', 's', 'n', '[1]', '[]', 3, 8, 100, '[]',
  :now);
INSERT INTO attempts (id, verification_id, number, state, fence, sends, send_after, created_at)
VALUES ('a-1', 'own', 1, 'queued', 0, 1, :now, :now), ('a-2', 'asked', 1, 'queued', 0, 0, :now,
  :now), ('a-3', 'reference', 1, 'queued', 0, 0, :now, :now);
INSERT INTO workers (name, hardware_class, state, system, first_seen_at, last_seen_at)
VALUES ('w', 'cpu', 'idle', '{}', :now, :now)
"""
OLD_SERVER = """
INSERT INTO attempts (id, verification_id, number, state, fence, sends, send_after, created_at)
VALUES ('a-4', 'own', 2, 'queued', 0, 0, :now, :now)
"""


@pytest.fixture
def old(empty_database: Database) -> Database:
    """A database of the schema before, with three attempts that wait."""
    migrate(empty_database, BEFORE)
    with empty_database.engine.begin() as connection:
        for statement in ROWS.split(";"):
            moment = "'2026-11-20 10:00:00'"
            connection.exec_driver_sql(statement.replace(":now", moment))
    return empty_database


def test_what_waits_knows_whose_it_is_and_the_way_back_loses_nothing(old: Database) -> None:
    attempts = select_all(old, "SELECT id, state, sends FROM attempts ORDER BY id")
    migrate(old, HERE)
    query = "SELECT id, submitter_id, by_organiser, hardware_class, sent_to FROM attempts"
    assert select_all(old, f"{query} ORDER BY id") == [
        ("a-1", 1, False, "cpu", None),
        ("a-2", 1, True, "cpu", None),
        ("a-3", 2, True, None, None),
    ]
    same = "SELECT count(*) FROM attempts WHERE asked_at = created_at"
    assert select_all(old, same) == [(3,)]
    assert select_all(old, "SELECT name, held FROM workers") == [("w", None)]

    insert_rows(old, OLD_SERVER)
    (late,) = select_all(old, f"{query} WHERE id = 'a-4'")
    assert late == ("a-4", None, True, None, None)
    with old.engine.begin() as connection:
        connection.execute(text("DELETE FROM attempts WHERE id = 'a-4'"))
        connection.execute(text("INSERT INTO queues VALUES ('cpu', 4, 0, NULL, NULL, NULL)"))
    command.downgrade(alembic_config(old), BEFORE)
    assert select_all(old, "SELECT id, state, sends FROM attempts ORDER BY id") == attempts
    migrate(old, HERE)
    assert select_all(old, "SELECT hardware_class FROM queues") == []
