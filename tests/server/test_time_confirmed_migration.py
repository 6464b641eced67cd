"""Submissions verified before a board told of their time: told from the reasons; and back."""

import json

import pytest
from alembic import command

from server.database import Database
from server.schema import alembic_config, migrate
from tests.server.test_migrations import insert_rows, select_all

BEFORE, HERE = "0024", "0025"
PEOPLE = """
INSERT INTO users (id, name, created_at) VALUES (1, 'ada', :now);
INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, created_at)
VALUES ('abc', 'digits', '1', 'id', :now)
"""
SUBMISSION = """
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, status, eligible, result, request_sha256, submitted_at)
VALUES ('{name}', 1, 'digits', 'abc', 'closed', 'm', 'f', '{{}}', '{{}}', 'c', '{status}', true,
  '{{}}', 'r', '2026-11-20 10:00:00')
"""
VERIFICATION = """
INSERT INTO verifications (id, kind, submission_id, benchmark_sha256, requested_by, state, seal,
  nonce, seeds, control_points, max_attempts, lease_seconds, limit_seconds, outcome, reasons,
  created_at)
VALUES ('{name}', '{kind}', '{submission}', 'abc', 1, 'done', 's', 'n', '[]', '[]', 3, 8, 100,
  '{outcome}', '{reasons}', '2026-11-20 10:00:00')
"""
DECISION = """
INSERT INTO decisions (verification_id, decision, reason, decided_at)
VALUES ('{name}', '{decision}', 'r', '2026-11-20 {hour}:00:00')
"""
AGREES = [{"code": "time_agrees", "numbers": {"ratio": 1.1, "tolerated_ratio": 1.5}}]
BEYOND = [{"code": "time_agrees", "numbers": {"ratio": 6.4, "tolerated_ratio": 1.5}}]
ELSEWHERE = [{"code": "hardware_differs", "numbers": {}}]
# Status, and of each verification: kind, outcome, reasons, decision and its hour.
STORED = {
    "claimed": ("claimed", []),
    "confirmed": ("verified", [("replay", "verified", AGREES, "publish", 11)]),
    "elsewhere": ("verified", [("replay", "verified", ELSEWHERE, "publish", 11)]),
    "kept": (
        "verified",
        [("replay", "verified", BEYOND, "publish", 11), ("replay", "verified", AGREES, "keep", 12)],
    ),
    "latency": ("verified", [("latency", "verified", [], "publish", 11)]),
    "later": (
        "verified",
        [
            ("replay", "verified", AGREES, "publish", 12),
            ("replay", "verified", ELSEWHERE, "publish", 11),
        ],
    ),
    "rejected": ("rejected", [("replay", "rejected", ELSEWHERE, "publish", 11)]),
}
TOLD = {
    "claimed": None,
    "confirmed": True,
    "elsewhere": False,
    "kept": False,
    "latency": None,
    "later": True,
    "rejected": None,
}


@pytest.fixture
def old(empty_database: Database) -> Database:
    """A database of the schema before, with verdicts of every sort."""
    migrate(empty_database, BEFORE)
    insert_rows(empty_database, PEOPLE)
    with empty_database.engine.begin() as connection:
        for submission, (status, found) in STORED.items():
            connection.exec_driver_sql(SUBMISSION.format(name=submission, status=status))
            for number, (kind, outcome, reasons, decision, hour) in enumerate(found):
                name = f"{submission}-{number}"
                statement = VERIFICATION.format(
                    name=name,
                    kind=kind,
                    submission=submission,
                    outcome=outcome,
                    reasons=json.dumps(reasons),
                )
                connection.exec_driver_sql(statement)
                connection.exec_driver_sql(DECISION.format(name=name, decision=decision, hour=hour))
    return empty_database


def test_stored_submissions_tell_of_their_time_and_the_way_back_loses_nothing(
    old: Database,
) -> None:
    before = select_all(old, "SELECT id, status FROM submissions ORDER BY id")
    migrate(old, HERE)

    query = "SELECT id, time_confirmed FROM submissions ORDER BY id"
    found = dict(select_all(old, query))
    assert {name: None if said is None else bool(said) for name, said in found.items()} == TOLD

    command.downgrade(alembic_config(old), BEFORE)
    assert select_all(old, "SELECT id, status FROM submissions ORDER BY id") == before
    migrate(old, HERE)
    assert dict(select_all(old, query)) == found
