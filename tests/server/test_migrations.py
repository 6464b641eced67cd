"""Migrations: from nothing to the newest schema."""

from functools import partial

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import inspect

from server.app import create_app
from server.base.models import Base
from server.base.schema import migrate, require_current_schema
from server.base.settings import Settings
from tests.support.admin import run_admin

OURS = {table.name for table in Base.metadata.sorted_tables}


@pytest.fixture
def empty(empty_database):
    """A database without any table."""
    return empty_database


def tables(database):
    return set(inspect(database.engine).get_table_names()) - {"alembic_version"}


def test_migrating_twice_changes_nothing(empty):
    migrate(empty)
    migrate(empty)

    assert tables(empty) == OURS


def test_a_server_refuses_a_database_of_another_schema_and_says_what_to_do(empty, tmp_path):
    url = empty.url.render_as_string(hide_password=False)
    settings = Settings(database_url=url, artifacts_dir=tmp_path / "artifacts")
    with pytest.raises(
        RuntimeError, match=r"(\(empty\)|no file of the database).*server\.admin migrate"
    ):
        create_app(settings)
    migrate(empty)
    require_current_schema(empty)


def test_the_administrators_command_migrates_and_makes_tokens(tmp_path):
    environment = {
        "FINISHLINE_DATABASE_URL": f"sqlite:///{tmp_path / 'a.db'}",
        "FINISHLINE_ARTIFACTS_DIR": str(tmp_path / "artifacts"),
    }

    run = partial(run_admin, environment)
    token = ("token", "--user", "ada", "--role", "organiser")
    too_early = run(*token)
    assert too_early.code == 1
    assert "server.admin migrate" in too_early.err
    assert run("migrate").code == 0
    made = run(*token)
    assert made.code == 0, made.err
    assert '"token": "fl_' in made.out
    kept = tmp_path / "token"
    for _ in range(2):  # The second time the file is there already and is left alone.
        assert run(*token, "--out", str(kept)).code == 0
        assert kept.stat().st_mode & 0o777 == 0o600
    first = kept.read_text()
    assert first.startswith("fl_")
    # A volume of tokens outlives the database that knew them.
    other = environment | {"FINISHLINE_DATABASE_URL": f"sqlite:///{tmp_path / 'b.db'}"}
    assert run_admin(other, "migrate").code == 0
    assert run_admin(other, *token, "--out", str(kept)).code == 0
    second = kept.read_text()
    assert second.startswith("fl_")
    assert second != first
    assert kept.stat().st_mode & 0o777 == 0o600
    kept.write_text("notes")  # No token: it may be anything.
    refused = run_admin(other, *token, "--out", str(kept))
    assert (refused.code, kept.read_text()) == (1, "notes")
    assert "is not a token file" in refused.err
    assert run("token", "--user", "ada", "--role", "king").code == 2


def test_second_server_of_sqlite_is_refused(settings, database):
    with TestClient(create_app(settings)) as first:
        with pytest.raises(RuntimeError, match=r"another server process has .*PostgreSQL"):
            create_app(settings)
        assert first.get("/healthz").status_code == 200
    create_app(settings).state.services.database.close()
