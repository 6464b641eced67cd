"""Migrations that meet others at work, or fail: what was there stays there."""

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import inspect, text

from server.base import schema
from server.base.database import Database
from server.base.revision import current_revision
from server.base.schema import known_revisions, migrate
from tests.support.both_databases import wait_until_blocked

FAILING = '''
"""A migration that fails after it has changed something."""

import sqlalchemy as sa
from alembic import op

revision = "9999"
down_revision = "HEAD"
branch_labels = depends_on = None


def upgrade() -> None:
    op.create_table("half_done", sa.Column("id", sa.Integer(), primary_key=True))
    op.add_column("users", sa.Column("half_done", sa.Integer()))
    op.execute("INSERT INTO half_done (id) VALUES (1)")
    op.execute("SELECT no_such_column FROM users")
'''


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.nightly)])
def database(request):
    """A migrated database."""
    opened = Database(request.getfixturevalue(f"{request.param}_url"))
    yield opened
    opened.close()


def test_a_migration_that_fails_leaves_the_database_as_it_was(database, tmp_path, monkeypatch):
    scripts = tmp_path / "migrations"
    shutil.copytree(schema.MIGRATIONS, scripts, ignore=shutil.ignore_patterns("__pycache__"))
    head = known_revisions(database)[0]
    (scripts / "versions" / "9999_failing.py").write_text(FAILING.replace("HEAD", head))
    with database.engine.begin() as connection:
        connection.execute(
            text("INSERT INTO users (name, created_at) VALUES ('ada', '2026-11-20 10:00:00')")
        )
    monkeypatch.setattr(schema, "MIGRATIONS", scripts)

    with pytest.raises(Exception, match="no_such_column"):
        migrate(database)

    assert current_revision(database) == head
    inspector = inspect(database.engine)
    assert "half_done" not in inspector.get_table_names()
    assert "half_done" not in {column["name"] for column in inspector.get_columns("users")}
    with database.engine.connect() as connection:
        assert connection.execute(text("SELECT name FROM users")).scalars().all() == ["ada"]
        if database.is_sqlite:
            assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1
        else:
            assert connection.exec_driver_sql("SHOW lock_timeout").scalar() == "0"


def test_a_migration_waits_for_who_is_at_work_and_holds_nobody_up(empty_database, monkeypatch):
    database = empty_database
    head, before, *_ = known_revisions(database)
    migrate(database, before)
    monkeypatch.setattr(schema, "LOCK_SECONDS", 0.2)
    monkeypatch.setattr(schema, "PAUSE_SECONDS", 0.2)
    statement = "SELECT count(*) FROM submissions"
    refused = threading.Event()
    monkeypatch.setattr(schema.log, "warning", lambda *_: refused.set())
    with database.engine.connect() as busy, ThreadPoolExecutor() as threads:
        # A writer: readers hold nobody up on SQLite, nor who makes an index on PostgreSQL.
        if database.is_sqlite:
            busy.execution_options(finishline_write=True)
            busy.execute(text(statement))
        else:
            # Every table, as no two newest migrations change the same one.
            tables = ", ".join(inspect(database.engine).get_table_names())
            busy.execute(text(f"LOCK TABLE {tables} IN ROW EXCLUSIVE MODE"))
        with pytest.raises(RuntimeError, match=rf"revision {before}.*half done"):
            migrate(database, patience_seconds=0)
        assert current_revision(database) == before
        refused.clear()
        migrating = threads.submit(migrate, database)
        assert refused.wait(20)
        with database.engine.connect() as reader:
            reader.execute(text(statement))
        busy.rollback()
        migrating.result(timeout=30)
    assert current_revision(database) == head


@pytest.mark.nightly
def test_two_migrations_at_once_come_one_after_the_other(empty_postgresql_url):
    head = known_revisions(Database(empty_postgresql_url))[0]
    both = [migrating(empty_postgresql_url) for _ in range(2)]
    for each in both:
        printed, errors = each.communicate(timeout=60)
        assert each.returncode == 0, errors
        assert json.loads(printed) == {"revision": head}


@pytest.mark.nightly
def test_a_migration_that_comes_amid_another_waits_before_it_looks_for_tables_to_back_up(
    empty_postgresql_url,
):
    database = Database(empty_postgresql_url)
    migrate(database)
    head, before, *_ = known_revisions(database)
    with database.engine.connect() as first:
        first.exec_driver_sql(f"SELECT pg_advisory_lock({schema.MIGRATION_LOCK})")
        be_at(first, before)
        second = migrating(empty_postgresql_url)
        wait_until_blocked(database)
        be_at(first, head)
        first.invalidate()
    printed, errors = second.communicate(timeout=60)
    database.close()
    assert second.returncode == 0, errors
    assert json.loads(printed) == {"revision": head}


def migrating(url):
    """The command at work on a database, without a folder for backups."""
    environment = os.environ | {"FINISHLINE_DATABASE_URL": url}
    environment.pop("FINISHLINE_BACKUPS_DIR", None)
    return subprocess.Popen(
        [sys.executable, "-m", "server.admin", "migrate"],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def be_at(connection, revision):
    """Say that the database is at a revision, and let others see it."""
    connection.execute(text("UPDATE alembic_version SET version_num = :at"), {"at": revision})
    connection.commit()
