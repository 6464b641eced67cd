"""Migrations: from nothing to the newest schema and back, and that models agree with them."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from alembic import command
from sqlalchemy import inspect

from server.app import create_app
from server.database import Database
from server.models import Base
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
