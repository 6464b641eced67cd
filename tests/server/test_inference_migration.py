"""Submissions stored before there was inference are trainings; the migration can be taken back."""

from pathlib import Path

import pytest
from alembic import command
from fastapi.testclient import TestClient
from sqlalchemy import text

from finishline.rules.benchmarks.benchmark import Benchmark
from server.app import create_app
from server.base.database import Database
from server.base.schema import alembic_config, migrate
from server.base.settings import Settings

BEFORE = "0002"
# A result as it was stored then; a page needs every one of its names.
RESULT = """{"clock": "dawnbench", "started": 1, "reached": 1, "tta_seconds": 3600.0,
"tta_display": "1:00:00", "tta_low_seconds": null, "tta_high_seconds": null, "cv_percent": 0.0,
"epochs_to_target": 2.0, "cost_usd": 3.0, "best_quality": 94.5, "evaluation_interval_seconds": null,
"violations": [], "steps": []}"""
SYSTEM = """{"name": "H", "hardware_class": "h", "processor": "H", "processor_count": null,
"memory_gib": null, "accelerator": null, "accelerator_count": 0, "price_usd_per_hour": 3.0,
"price_source": "stated in the entry"}"""
NOW = "2026-11-21 10:00:00+00:00"


@pytest.fixture
def old(empty_database: Database, cifar10: Benchmark) -> Database:
    """A database of the schema before, with one training in it."""
    migrate(empty_database, BEFORE)
    insert(empty_database, "users", id=1, name="ada", created_at=NOW)
    insert(
        empty_database,
        "benchmark_definitions",
        sha256=cifar10.sha256,
        benchmark_id="cifar10",
        version=cifar10.version,
        content=(Path(__file__).parents[2] / "benchmarks" / "cifar10.toml").read_text(),
        created_at=NOW,
    )
    insert(empty_database, "submissions", **submission_row("old", cifar10.sha256))
    run = {"index": 0, "file": "old.tsv", "reached": True, "tta_seconds": 3600.0, "curve": "[]"}
    log = {"submission_id": "old", "log_sha256": "0" * 64, "log_bytes": 1}
    insert(empty_database, "runs", **run, **log)
    return empty_database


def insert(database: Database, table: str, **values: object) -> None:
    names = ", ".join(f'"{name}"' for name in values)
    places = ", ".join(f":{name}" for name in values)
    with database.engine.begin() as connection:
        statement = text(f"INSERT INTO {table} ({names}) VALUES ({places})")  # noqa: S608
        connection.execute(statement, values)


def submission_row(submission_id: str, sha256: str, **changes: object) -> dict[str, object]:
    return {
        "id": submission_id,
        "user_id": 1,
        "benchmark_id": "cifar10",
        "benchmark_sha256": sha256,
        "division": "open",
        "model": "M",
        "framework": "F",
        "system": SYSTEM,
        "hyperparameters": "{}",
        "claim_sha256": "0" * 64,
        "status": "claimed",
        "eligible": True,
        "tta_seconds": 3600.0,
        "cost_usd": 3.0,
        "result": RESULT,
        "request_sha256": "0" * 64,
        "submitted_at": NOW,
    } | changes


def ids(database: Database) -> list[str]:
    with database.engine.connect() as connection:
        return [row.id for row in connection.execute(text("SELECT id FROM submissions"))]


def test_an_old_submission_is_a_training_and_stands_where_it_stood(
    old: Database, tmp_path: Path
) -> None:
    migrate(old)
    settings = Settings(
        database_url=old.url.render_as_string(hide_password=False),
        artifacts_dir=tmp_path / "artifacts",
    )
    with TestClient(create_app(settings, dispatch=False)) as client:
        board = "/api/v1/leaderboards/cifar10"
        (entry,) = client.get(board).json()["entries"]
        assert (entry["submission_id"], entry["tta_seconds"]) == ("old", 3600.0)
        # Nobody has measured it.
        assert (entry["rank"], entry["provisional_rank"]) == (None, 1)
        assert client.get(board, params={"metric": "latency"}).json()["entries"] == []
        view = client.get("/api/v1/submissions/old").json()
        assert (view["kind"], view["result"]["tta_display"]) == ("train", "1:00:00")
        assert [run["file"] for run in view["runs"]] == ["old.tsv"]


def test_taking_back_keeps_trainings_and_lets_inference_go(
    old: Database, cifar10: Benchmark
) -> None:
    migrate(old)
    inference = {"kind": "inference", "tta_seconds": None, "latency_ms": 2.5}
    insert(old, "submissions", **submission_row("new", cifar10.sha256, **inference))
    assert sorted(ids(old)) == ["new", "old"]
    command.downgrade(alembic_config(old), BEFORE)

    assert ids(old) == ["old"]
    with old.engine.connect() as connection:
        assert connection.scalar(text("SELECT file FROM runs")) == "old.tsv"
