"""Migrations: from nothing to the newest schema and back, and that models agree with them."""

import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from sqlalchemy import Column, MetaData, insert, inspect, select

from server.app import create_app
from server.database import Database
from server.models import Base, RunRow, Submission
from server.schema import alembic_config, current_revision, migrate, require_current_schema
from server.settings import Settings

OURS = {table.name for table in Base.metadata.sorted_tables}


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.processes)])
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """A database without any table."""
    if request.param == "sqlite":
        database = Database(f"sqlite:///{tmp_path / 'new' / 'empty.db'}")
    else:
        database = Database(request.getfixturevalue("empty_postgresql_url"))
    yield database
    database.close()


def tables(database: Database) -> set[str]:
    return set(inspect(database.engine).get_table_names()) - {"alembic_version"}


def test_up_down_and_up_again(empty: Database) -> None:
    assert (tables(empty), current_revision(empty)) == (set(), None)
    migrate(empty)
    assert tables(empty) == OURS
    newest = current_revision(empty)
    assert newest is not None
    migrate(empty, "base")
    assert (tables(empty), current_revision(empty)) == (set(), None)
    migrate(empty)
    assert (tables(empty), current_revision(empty)) == (OURS, newest)


def test_migrating_twice_changes_nothing(empty: Database) -> None:
    migrate(empty)
    migrate(empty)

    assert tables(empty) == OURS


def test_models_and_migrations_agree(empty: Database) -> None:
    migrate(empty)

    command.check(alembic_config(empty))  # Raises if a migration would still be needed.


def test_constraints_have_the_names_the_models_give_them(empty: Database) -> None:
    migrate(empty)
    inspector = inspect(empty.engine)
    for table in Base.metadata.sorted_tables:
        assert inspector.get_pk_constraint(table.name)["name"] == f"pk_{table.name}"
        wanted = {key.name for key in table.foreign_key_constraints}
        assert {key["name"] for key in inspector.get_foreign_keys(table.name)} == wanted
        indexes = {index.name for index in table.indexes}
        assert indexes <= {index["name"] for index in inspector.get_indexes(table.name)}


def rows(database: Database) -> dict[str, list[dict[str, Any]]]:
    """Every row of every table, by the names of its columns."""
    found = MetaData()
    found.reflect(database.engine)
    with database.engine.connect() as connection:
        return {
            table.name: [
                dict(row._mapping)
                for row in connection.execute(select(table).order_by(*table.primary_key.columns))
            ]
            for table in found.sorted_tables
            if table.name != "alembic_version"
        }


def fill(database: Database) -> None:
    """One row in each table, and two runs, as a server at the first revision keeps them."""
    found = MetaData()
    found.reflect(database.engine)
    when = datetime(2026, 11, 20, 12, 30, tzinfo=UTC if not database.is_sqlite else None)
    common = {"created_at": when, "submitted_at": when, "first_seen_at": when,
              "last_seen_at": when, "send_after": when}  # fmt: skip
    own: dict[str, list[dict[str, Any]]] = {
        "submissions": [{"id": "s1", "user_id": 1, "benchmark_sha256": "b1"}],
        "runs": [
            {"id": 1, "submission_id": "s1", "index": 0, "seed": 2**40, "best_quality": 98.1},
            {"id": 2, "submission_id": "s1", "index": 1, "seed": None, "best_quality": 12.5},
        ],
        "tokens": [{"id": 1, "user_id": 1}],
        "users": [{"id": 1}],
        "benchmark_definitions": [{"sha256": "b1"}],
        "verifications": [{"id": "v1", "submission_id": "s1", "requested_by": 1}],
        "attempts": [{"id": "a1", "verification_id": "v1"}],
        "replay_events": [{"attempt_id": "a1", "sequence": 0}],
    }
    with database.engine.begin() as connection:
        for table in found.sorted_tables:
            if table.name == "alembic_version":
                continue
            for values in own.get(table.name, [{}]):
                row = {c.name: usual(c) for c in table.columns if not c.nullable}
                row |= {name: value for name, value in common.items() if name in table.columns}
                connection.execute(insert(table).values(row | values))


def usual(column: Column[Any]) -> Any:
    """A value that fits a column; two places behind the point tell a float from an integer."""
    kind = str(column.type)
    if kind == "JSON":
        return {"list": [1, 2.25, None, "\u00e9"]}
    if kind == "BOOLEAN":
        return True
    if kind.startswith(("DOUBLE", "FLOAT")):
        return 1.25
    return 3 if kind in ("INTEGER", "BIGINT") else f"{column.name[:7]}\u00e9"


def test_no_row_is_lost_on_the_way_to_the_archives_and_back(empty: Database) -> None:
    migrate(empty, "0001")
    fill(empty)
    before = rows(empty)
    assert all(before.values())
    migrate(empty)
    after = rows(empty)
    added = {
        "submissions": {"archive": False, "organisation": None, "submitted_on": None},
        "runs": {"batch_size": None, "convergence": None},
    }
    for table in before:
        more = added.get(table, {})
        assert after[table] == [row | more for row in before[table]], table
    with empty.write() as session:  # What only the later schema has a word for.
        unseen = session.get_one(RunRow, 2)
        unseen.best_quality = None
        unseen.batch_size = 64
        session.get_one(Submission, "s1").organisation = "ACME"
    migrate(empty, "-1")

    assert current_revision(empty) == "0001"
    before["runs"][1]["best_quality"] = 0.0
    assert rows(empty) == before
    if empty.is_sqlite:
        with empty.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_a_server_refuses_a_database_of_another_schema_and_says_what_to_do(
    empty: Database, tmp_path: Path
) -> None:
    url = empty.url.render_as_string(hide_password=False)
    settings = Settings(database_url=url, artifacts_dir=tmp_path / "artifacts")
    with pytest.raises(RuntimeError, match=r"\(empty\).*server\.admin migrate"):
        create_app(settings)
    migrate(empty)
    require_current_schema(empty)


def test_the_administrators_command_migrates_and_makes_tokens(tmp_path: Path) -> None:
    environment = {
        "FINISHLINE_DATABASE_URL": f"sqlite:///{tmp_path / 'a.db'}",
        "FINISHLINE_ARTIFACTS_DIR": str(tmp_path / "artifacts"),
    }

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "server.admin", *arguments],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )

    token = ("token", "--user", "ada", "--role", "organiser")
    too_early = run(*token)
    assert too_early.returncode == 1
    assert "server.admin migrate" in too_early.stderr
    assert run("migrate").returncode == 0
    made = run(*token)
    assert made.returncode == 0, made.stderr
    assert '"token": "fl_' in made.stdout
    kept = tmp_path / "token"
    for _ in range(2):  # The second time the file is there already and is left alone.
        assert run(*token, "--out", str(kept)).returncode == 0
        assert kept.stat().st_mode & 0o777 == 0o600
    assert kept.read_text().startswith("fl_")
    assert run("token", "--user", "ada", "--role", "king").returncode == 2
