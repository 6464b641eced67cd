"""Migrations: from nothing to the newest schema."""

import json
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import MetaData, NullPool, create_engine, inspect, select

from server.app import create_app
from server.base.database import Database
from server.base.models import Base
from server.base.schema import migrate, require_current_schema
from server.base.settings import Settings
from tests.support.admin import run_admin, run_finishline
from tests.support.both_databases import wait_until_blocked


def test_server_wants_a_schema_and_migrating_twice_is_once(empty_database, tmp_path):
    url = empty_database.url.render_as_string(hide_password=False)
    settings = Settings(database_url=url, artifacts_dir=tmp_path / "artifacts")
    told = r"(\(empty\)|no file of the database).*server\.admin migrate"
    with pytest.raises(RuntimeError, match=told):
        create_app(settings)
    for _ in range(2):
        migrate(empty_database)
    tables = set(inspect(empty_database.engine).get_table_names())
    assert tables - {"alembic_version"} == {table.name for table in Base.metadata.sorted_tables}
    require_current_schema(empty_database)


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


VERSIONS = "CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY)"
COMMIT = "ALTER TABLE alembic_version ADD COLUMN code_commit VARCHAR(64) DEFAULT '5f3c9d1'"
SERVER = ("-c", "import server.app; server.app.app")


def at_revision(revision):
    return f"INSERT INTO alembic_version (version_num) VALUES ('{revision}')"  # noqa: S608


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def url(request, tmp_path):
    if request.param == "postgresql":
        return request.getfixturevalue("empty_postgresql_url")
    return f"sqlite:///{tmp_path / 'a.db'}"


def fill(url, *statements):
    engine = create_engine(url, poolclass=NullPool)
    with engine.begin() as connection:
        for statement in statements:
            connection.exec_driver_sql(statement)


def content(url):
    if url.startswith("sqlite"):
        folder = Path(url.removeprefix("sqlite:///")).parent
        return {each.name: each.read_bytes() for each in folder.iterdir() if each.is_file()}
    engine, found = create_engine(url, poolclass=NullPool), MetaData()
    found.reflect(engine)
    with engine.connect() as connection:
        return {each.name: connection.execute(select(each)).all() for each in found.sorted_tables}


@pytest.mark.parametrize(
    ("statements", "told"),
    [
        ((at_revision("0061"),), "git checkout 0a22c18d"),
        ((COMMIT, at_revision("0123456789ab")), "git checkout 5f3c9d1"),
        ((at_revision("0123456789ab"),), "does not say which commit"),
    ],
    ids=["numbered", "of a commit", "unknown"],
)
def test_other_schema_is_left_unchanged(url, statements, told):
    fill(url, VERSIONS, "CREATE TABLE users (name TEXT)", *statements)
    before = content(url)
    environment = {"FINISHLINE_DATABASE_URL": url}

    for run, command in (
        (run_admin, ("migrate",)),
        (run_admin, ("token", "--user", "a", "--role", "admin")),
        (run_finishline, ("export", "copy")),
    ):
        said = run(environment, *command)
        assert (said.code, said.out, content(url)) == (1, "", before)
        assert "was not changed" in said.err
        assert "admin export" in said.err
        assert told in said.err


def test_commit_of_a_schema_is_kept(url):
    environment = {"FINISHLINE_DATABASE_URL": url, "FINISHLINE_CODE_COMMIT": "5f3c9d1"}
    assert run_admin(environment, "migrate").code == 0
    fill(url, "UPDATE alembic_version SET version_num = '0123456789ab'")

    assert "`git checkout 5f3c9d1`" in run_admin(environment, "migrate").err


def test_up_leaves_another_schema_unchanged(tmp_path):
    url = f"sqlite:///{tmp_path / 'finishline.db'}"
    fill(url, VERSIONS, at_revision("0061"))
    before = (tmp_path / "finishline.db").read_bytes()
    command = (sys.executable, "-m", "finishline.cli.main", "up", "--var", tmp_path, "--port", "1")
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 4, done.stderr
    assert "`git checkout 0a22c18d`" in done.stderr
    assert (tmp_path / "finishline.db").read_bytes() == before


def test_server_refuses_another_schema(url, tmp_path):
    fill(url, VERSIONS, at_revision("0061"))
    before = content(url)
    environment = os.environ | {
        "FINISHLINE_DATABASE_URL": url,
        "FINISHLINE_ARTIFACTS_DIR": str(tmp_path / "artifacts"),
    }
    command = (sys.executable, *SERVER)
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert "git checkout 0a22c18d" in done.stderr
    assert content(url) == before


def test_tables_of_others_are_left_alone(url):
    fill(url, "CREATE TABLE cats (name TEXT)", "INSERT INTO cats VALUES ('Tom')")
    before = content(url)
    said = run_admin({"FINISHLINE_DATABASE_URL": url}, "migrate")

    assert (said.code, content(url)) == (1, before)
    assert "tables that Finishline did not make: cats. Hint: name an empty" in said.err


def test_failed_migration_changes_nothing(url):
    fill(url, "CREATE VIEW workers AS SELECT 1 AS name")
    said = run_admin({"FINISHLINE_DATABASE_URL": url}, "migrate")

    assert said.code == 1
    assert "workers" in said.err
    engine = create_engine(url, poolclass=NullPool)
    found = MetaData()
    found.reflect(engine)
    assert not found.tables


def migrating(url):
    command = [sys.executable, "-m", "server.admin", "migrate"]
    environment = os.environ | {"FINISHLINE_DATABASE_URL": url}
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    return subprocess.Popen(command, env=environment, **pipes)


def test_migrations_come_one_after_another(url):
    both = [migrating(url) for _ in range(2)]
    said = [each.communicate(timeout=60) for each in both]

    assert [each.returncode for each in both] == [0, 0], said
    assert len({json.loads(printed)["revision"] for printed, _ in said}) == 1


@pytest.mark.nightly
def test_waiting_migration_looks_again(empty_postgresql_url):
    database = Database(empty_postgresql_url)
    with database.engine.connect() as other:
        other.exec_driver_sql("SELECT pg_advisory_xact_lock(7270011)")
        waiting = migrating(empty_postgresql_url)
        wait_until_blocked(database)
        for statement in (VERSIONS, at_revision("0061")):
            other.exec_driver_sql(statement)
        other.commit()
    _, errors = waiting.communicate(timeout=60)
    database.close()

    assert waiting.returncode == 1
    assert "git checkout 0a22c18d" in errors
