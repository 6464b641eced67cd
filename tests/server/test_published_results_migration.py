"""Published results get a table of their own: nothing of them is lost, and nothing of claims."""

import json
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text
from sqlalchemy.orm import Session

from server.base.database import Database
from server.base.models import PublishedResult, Submission
from server.base.schema import alembic_config, migrate
from tests.server.test_migrations import insert_rows

BEFORE, HERE = "0045", "0046"
PEOPLE = """
INSERT INTO users (id, name, role, created_at) VALUES (1, 'ada', 'organiser', :now);
INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, created_at)
VALUES ('abc', 'cifar10', '1', 'id', :now)
"""
ROW = """
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, dawnbench, status, eligible, tta_seconds, result,
  request_sha256, submitted_at, evidence, archive, organisation, submitted_on, source)
VALUES (:id, 1, 'cifar10', 'abc', 'open', 'm', 'f', '{}', '{}', 'c', 'null', 'claimed', true, 9.5,
  '{}', 'r', '2026-11-20 10:00:00', :evidence, :archive, :organisation, :submitted_on, :source)
"""
SOURCE = {"name": "DAWNBench", "url": "https://a.example", "commit": "f" * 40}
# Of each: organisation, day, source; None for a claim.
STORED: dict[str, tuple[str | None, str | None, str | None] | None] = {
    "whole": ("Été", "2018-04-20", json.dumps(SOURCE)),
    "no source": ("Été", "2018-04-20", "null"),
    "before sources": ("Été", None, None),
    "nothing": (None, None, "null"),
    "claim": None,
}


@pytest.fixture
def filled(empty_database: Database) -> Database:
    migrate(empty_database, BEFORE)
    insert_rows(empty_database, PEOPLE)
    with empty_database.engine.begin() as connection:
        for name, published in STORED.items():
            organisation, day, source = published or (None, None, "null")
            values = {
                "id": name,
                "evidence": "claimed" if published is None else "published",
                "archive": published is not None,
                "organisation": organisation,
                "submitted_on": day,
                "source": source,
            }
            connection.execute(text(ROW), values)
    return empty_database


def rows_of(database: Database, table: str, key: str) -> dict[str, dict[str, Any]]:
    with database.engine.connect() as connection:
        query = f"SELECT * FROM {table}"  # noqa: S608
        return {row[key]: dict(row) for row in connection.execute(text(query)).mappings()}


def test_every_published_result_moves_whole(filled: Database) -> None:
    before = rows_of(filled, "submissions", "id")
    migrate(filled, HERE)
    moved = rows_of(filled, "published_results", "submission_id")

    assert moved.keys() == {name for name, published in STORED.items() if published is not None}
    for name, row in moved.items():
        old = before[name]
        assert (row["organisation"], row["published_on"], row["source"]) == (
            old["organisation"],
            old["submitted_on"],
            old["source"],
        )
    gone = {"archive", "organisation", "submitted_on", "source"}
    for name, row in rows_of(filled, "submissions", "id").items():
        assert row == {column: old for column, old in before[name].items() if column not in gone}


def test_models_read_what_was_moved(filled: Database) -> None:
    migrate(filled)
    with Session(filled.engine) as session:
        whole = session.get_one(Submission, "whole")
        assert (whole.submitter, str(whole.published_on)) == ("Été", "2018-04-20")
        assert whole.published is not None
        assert whole.published.source == SOURCE
        assert session.get_one(PublishedResult, "no source").source is None
        nothing, claim = (
            session.get_one(Submission, "nothing"),
            session.get_one(Submission, "claim"),
        )
        assert (nothing.submitter, nothing.published is None) == ("ada", False)
        assert (claim.submitter, claim.published_on, claim.published) == ("ada", None, None)


def test_taking_it_back_restores_the_columns(filled: Database) -> None:
    before = rows_of(filled, "submissions", "id")
    before["claim"]["source"] = None
    migrate(filled, HERE)
    command.downgrade(alembic_config(filled), BEFORE)

    assert rows_of(filled, "submissions", "id") == before
