"""Runs of before they were known by their training: filled in; and the way back."""

import json

import pytest
from alembic import command
from sqlalchemy import inspect

from rules.fingerprint import fingerprint_of_curve
from rules.run import Evaluation
from server.database import Database
from server.schema import alembic_config, migrate
from tests.server.test_migrations import insert_rows, select_all

BEFORE, HERE = "0019", "0020"
CURVE = [[float(epoch), 0.5 * epoch, 90.0 + epoch, None] for epoch in range(1, 6)]
ROWS = """
INSERT INTO users (id, name, created_at) VALUES (1, 'ada', :now);
INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, created_at)
VALUES ('abc', 'digits', '1', 'id', :now);
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, status, eligible, result, request_sha256, submitted_at)
VALUES ('s-1', 1, 'digits', 'abc', 'closed', 'm', 'f', '{}', '{}', 'c', 'claimed', true, '{}', 'r',
  :now)
"""
RUN = """
INSERT INTO runs (id, submission_id, "index", file, log_sha256, log_bytes, reached, curve)
VALUES ({number}, 's-1', {number}, 'run.log', 'l', 1, true, '{curve}')
"""


@pytest.fixture
def old(empty_database: Database) -> Database:
    """A database of the schema before: a long curve, and one too short to tell."""
    migrate(empty_database, BEFORE)
    insert_rows(empty_database, ROWS)
    with empty_database.engine.begin() as connection:
        for number, curve in ((1, CURVE), (2, CURVE[:3])):
            statement = RUN.format(number=number, curve=json.dumps(curve))
            connection.exec_driver_sql(statement)
    return empty_database


def test_stored_runs_are_known_by_their_training_and_the_way_back_loses_nothing(
    old: Database,
) -> None:
    before = select_all(old, "SELECT id, file, curve FROM runs ORDER BY id")
    migrate(old, HERE)

    evaluations = [Evaluation(epoch=e, seconds=s, quality=q) for e, s, q, _ in CURVE]
    query = "SELECT id, training_sha256 FROM runs ORDER BY id"
    assert select_all(old, query) == [(1, fingerprint_of_curve(evaluations)), (2, None)]
    assert select_all(old, "SELECT copies FROM submissions") == [(None,)]
    indexes = {str(index["name"]) for index in inspect(old.engine).get_indexes("runs")}
    assert "ix_runs_training_sha256" in indexes

    command.downgrade(alembic_config(old), BEFORE)
    assert select_all(old, "SELECT id, file, curve FROM runs ORDER BY id") == before
    migrate(old, HERE)
    assert select_all(old, query)[1] == (2, None)
