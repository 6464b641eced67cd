"""A server as a process: its imports, its settings, its revision and its connections."""

import json
import re
import subprocess
import sys
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from sqlalchemy import create_engine, text
from sqlalchemy.dialects import sqlite

import server.app
import server.base.database
from server.base.database import Database, insert_missing
from server.base.models import User, UtcDateTime
from server.base.schema import require_current_schema
from server.base.settings import Settings, get_settings
from tests.support.admin import run_admin

PAGE = Path(__file__).parents[2] / "docs" / "running.md"
MOMENT = datetime(2026, 3, 1, 23, 30, tzinfo=UTC)
KATHMANDU = timezone(timedelta(hours=5, minutes=45))
LIMIT_SECONDS = 30.0  # Only a start that hangs is caught; what makes one long is LATER.
FOREIGN = (
    "torch", "sklearn", "worker", "reference_models", "finishline.cli", "finishline.client",
    "torchvision", "pandas",
)  # fmt: skip
# What some requests need, or some servers: each would make every start longer.
LATER = (
    "alembic", "authlib", "boto3", "botocore", "celery", "fsspec", "httpcore2", "httpx2", "kombu",
    "markdown_it", "numpy", "plotly", "pyarrow", "redis", "scipy",
)  # fmt: skip


def test_importing_the_server_loads_no_torch_no_worker_and_nothing_for_later():
    script = (
        "import json, sys, time; start = time.perf_counter(); import server.app; "
        "seconds = time.perf_counter() - start; "
        "names = {'.'.join(name.split('.')[:depth]) for name in sys.modules for depth in (1, 2)}; "
        "print(json.dumps([seconds, sorted(names)]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=60
    )
    seconds, loaded = json.loads(done.stdout)

    assert set(FOREIGN).isdisjoint(loaded)
    assert set(LATER).intersection(loaded) == set()
    assert "fastapi" in loaded
    assert seconds < LIMIT_SECONDS


def test_a_file_that_is_not_there_is_named_and_not_made_by_looking(tmp_path):
    path = tmp_path / "mistyped.db"
    nowhere = Database(f"sqlite:///{path}")
    with pytest.raises(RuntimeError, match=r"no file.*FINISHLINE_DATABASE_URL.*mistyped\.db"):
        require_current_schema(nowhere)
    nowhere.close()
    assert not path.exists()


def test_a_database_that_does_not_answer_is_told_in_one_line_without_its_password():
    away = Database("postgresql+psycopg://ada:secret@127.0.0.1:1/results")
    with pytest.raises(RuntimeError, match=r"FINISHLINE_DATABASE_URL.*ada:\*\*\*.*refused") as told:
        require_current_schema(away)
    away.close()
    assert "secret" not in str(told.value)
    assert "\n" not in str(told.value)


def test_the_documents_list_every_setting_with_its_default_and_no_other():
    rows = re.findall(r"^\| `FINISHLINE_([A-Z0-9_]+)` \| (.*?) ?\|", PAGE.read_text(), re.MULTILINE)
    told = {name.lower(): default.strip("`") for name, default in rows}
    assert sorted(name.lower() for name, _ in rows) == sorted(Settings.model_fields)
    in_words = ("docs_dir", "public_url", "secure_cookies", "signing_key")
    sizes = {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30}

    assert all(told.pop(name) for name in in_words)
    assert told.pop("benchmarks_dir") == "benchmarks"
    for name, words in told.items():
        default = Settings.model_fields[name].default
        number, _, unit = words.partition(" ")
        expected = str(int(number) * sizes[unit]) if unit in sizes else words
        written = "" if default is None else str(default)
        assert expected in (written, written.lower(), written.removesuffix(".0")), name


def test_passwords_in_files_are_put_into_the_addresses_and_shown_nowhere(monkeypatch, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("p@ss/w:rd\n")
    for name, value in {
        "DATABASE_URL": "postgresql+psycopg://ada@postgres:5432/results",
        "DATABASE_PASSWORD_FILE": str(secret),
        "BROKER_URL": "redis://redis:6379/0",
        "BROKER_PASSWORD_FILE": str(secret),
        "METRICS_TOKEN_FILE": str(tmp_path / "token"),
        "CODE_COMMIT": "",
    }.items():
        monkeypatch.setenv(f"FINISHLINE_{name}", value)
    (tmp_path / "token").write_text("a-token-of-some-length\n")

    settings = Settings()

    assert settings.database_url == (
        "postgresql+psycopg://ada:p%40ss%2Fw%3Ard@postgres:5432/results"
    )
    assert settings.broker_url == "redis://:p%40ss%2Fw%3Ard@redis:6379/0"
    assert settings.metrics_token is not None
    assert settings.metrics_token.get_secret_value() == "a-token-of-some-length"
    assert settings.code_commit is None
    assert "a-token" not in repr(settings)


def test_a_secret_file_that_is_missing_or_empty_is_named(monkeypatch, tmp_path):
    monkeypatch.setenv("FINISHLINE_DATABASE_PASSWORD_FILE", str(tmp_path / "absent"))
    with pytest.raises(RuntimeError, match=r"FINISHLINE_DATABASE_PASSWORD_FILE.*absent"):
        Settings()
    (tmp_path / "absent").write_text("\n")
    with pytest.raises(RuntimeError, match=r"FINISHLINE_DATABASE_PASSWORD_FILE.*empty"):
        Settings()


def test_a_wrong_variable_is_told_in_one_sentence_with_its_name_and_without_its_value(monkeypatch):
    monkeypatch.setenv("FINISHLINE_DATABASE_URL", "postgres://ada:secret@host/results")
    monkeypatch.setenv("FINISHLINE_DRAIN_SECONDS", "soon")
    get_settings.cache_clear()

    with pytest.raises(RuntimeError) as told:
        get_settings()

    with pytest.raises(SystemExit, match=r"did not start.*FINISHLINE_DRAIN_SECONDS"):
        _ = server.app.app
    sentence = str(told.value)
    assert "FINISHLINE_DATABASE_URL: expected sqlite:///" in sentence
    assert "FINISHLINE_DRAIN_SECONDS: Input should be a valid number" in sentence
    assert "\n" not in sentence
    assert "secret" not in sentence


@pytest.mark.parametrize(
    "answered", [MOMENT, MOMENT.replace(tzinfo=None), MOMENT.astimezone(KATHMANDU)]
)
def test_a_moment_is_of_the_day_it_is_in_utc(answered):
    read = UtcDateTime().process_result_value(answered, sqlite.dialect())

    assert read is not None
    assert read.isoformat() == "2026-03-01T23:30:00+00:00"


@pytest.mark.nightly
def test_a_postgresql_of_another_timezone_answers_in_utc(postgresql_url):
    database = Database(postgresql_url)
    with database.write() as session:
        session.execute(text("SET timezone TO 'Asia/Kathmandu'"))
        insert_missing(session, User, name="alice", created_at=MOMENT)
        user = session.query(User).one()

        assert user.created_at.isoformat() == "2026-03-01T23:30:00+00:00"
    database.close()


@pytest.mark.nightly
def test_a_connection_that_the_database_ended_while_it_rested_is_replaced(postgresql_url):
    database, others = Database(postgresql_url), create_engine(postgresql_url)

    def backend():
        with database.engine.connect() as connection:
            return int(connection.scalar(text("SELECT pg_backend_pid()")) or 0)

    def end(number):
        with others.connect() as connection:
            # It waits until that one has ended, 10 seconds at most.
            ending = text("SELECT pg_terminate_backend(:number, 10000)")
            assert connection.scalar(ending, {"number": number})

    first = backend()
    assert backend() == first
    end(first)
    assert backend() != first
    database.close()
    others.dispose()


def test_a_database_that_cannot_be_written_is_told_in_one_line(database):
    if not database.is_sqlite:
        pytest.skip("a file that is opened for reading alone is SQLite's")
    url = f"sqlite:///file:{database.url.database}?mode=ro&uri=true"
    said = run_admin({"FINISHLINE_DATABASE_URL": url}, "token", "--user", "ada", "--role", "admin")

    (line,) = said.err.splitlines()
    assert said.code == 1
    assert "attempt to write a readonly database" in line
    assert str(database.url.database) in line
