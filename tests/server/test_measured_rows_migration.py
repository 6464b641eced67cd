"""Yesterday's verified rows: measured where today's rules would measure them, else claimed."""

import json
from copy import deepcopy
from typing import Any

import pytest
from alembic import command
from sqlalchemy import text

from finishline.rules.submissions.settings import Configuration
from server.base.database import Database
from server.base.schema import alembic_config, migrate
from tests.server.test_migrations import insert_rows

BEFORE, HERE = "0037", "0038"
CLASS = "cpu-test"
REPORT: dict[str, Any] = {
    "system": {"hardware_class": CLASS, "accelerator_count": 0},
    "drift": None,
    "runs": [
        {
            "index": index,
            "seed": 100 + index,
            "status": "reached",
            "failure": None,
            "evaluations": [{"epoch": 8.0}],
            "tta_seconds": seconds,
            "cpu_seconds": seconds,
            "parent_seconds": seconds,
        }
        for index, seconds in enumerate((1.0, 1.2, 1.1))
    ],
}
PEOPLE = """
INSERT INTO users (id, name, role, created_at) VALUES (1, 'ada', 'submitter', :now);
INSERT INTO users (id, name, role, created_at) VALUES (2, 'walter', 'submitter', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at) VALUES (1, 1, 'w', 'a', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at) VALUES (2, 2, 'w', 'b', :now)
"""


def report(**changes: Any) -> dict[str, Any]:
    made = deepcopy(REPORT)
    for name, value in changes.items():
        made[name] = value
    return made


# Of each: division, settings, report, the worker's token, and whether it is measured.
STORED: dict[str, tuple[str, dict[str, float], dict[str, Any], int, bool]] = {
    "well": ("closed", {"batch_size": 64}, REPORT, 2, True),
    "same": ("closed", {}, REPORT, 2, True),
    "open": ("open", {}, REPORT, 2, False),
    "own": ("closed", {}, REPORT, 1, False),
    "drifted": ("closed", {}, report(drift="slow"), 2, False),
    "between": ("closed", {"batch_size": 65}, REPORT, 2, False),
    "elsewhere": (
        "closed",
        {},
        report(system={"hardware_class": "x", "accelerator_count": 0}),
        2,
        False,
    ),
    "two runs": ("closed", {}, report(runs=REPORT["runs"][:2]), 2, False),
}


@pytest.fixture
def upgraded(empty_database: Database, benchmarks_dir: Any) -> Database:
    migrate(empty_database, BEFORE)
    content = (benchmarks_dir / "digits.toml").read_text()
    insert_rows(empty_database, PEOPLE)
    with empty_database.engine.begin() as connection:
        connection.execute(
            text(
                "INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, "
                "created_at) VALUES ('abc', 'digits', '1', :content, '2026-11-20 10:00:00')"
            ),
            {"content": content},
        )
        for number, (name, (division, settings, told, token, _)) in enumerate(STORED.items()):
            values = {
                "name": name,
                "division": division,
                "settings": json.dumps(settings),
                "system": json.dumps({"hardware_class": CLASS}),
                "report": json.dumps(told),
                "token": token,
                "verification": f"v-{number}",
                "attempt": f"a-{number}",
                "now": "2026-11-20 10:00:00",
            }
            for statement in ROWS.split(";"):
                connection.execute(text(statement), values)
    migrate(empty_database, HERE)
    return empty_database


ROWS = """
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, status, eligible, result, request_sha256, submitted_at,
  dawnbench, check_word)
VALUES (:name, 1, 'digits', 'abc', :division, 'm', 'f', :system, :settings, 'c', 'verified', true,
  '{}', 'r', :now, 'null', 'epochs_agree');
INSERT INTO verifications (id, kind, submission_id, benchmark_sha256, requested_by, state, seal,
  nonce, seeds, control_points, max_attempts, lease_seconds, limit_seconds, outcome, reasons,
  report, created_at, ended_at)
VALUES (:verification, 'replay', :name, 'abc', 1, 'done', 's', 'n', '[]', '[]', 3, 8, 100,
  'verified', '[]', :report, :now, :now);
INSERT INTO decisions (verification_id, decision, reason, decided_at)
VALUES (:verification, 'publish', 'r', :now);
INSERT INTO attempts (id, verification_id, number, state, fence, sends, send_after, created_at,
  claimed_by)
VALUES (:attempt, :verification, 1, 'done', 1, 1, :now, :now, :token)
"""


def rows_of(database: Database, table: str) -> list[Any]:
    with database.engine.connect() as connection:
        return list(connection.execute(text(f"SELECT * FROM {table}")).mappings())  # noqa: S608


def test_only_what_todays_rules_measure_is_measured(upgraded: Database) -> None:
    found = {row["id"]: row for row in rows_of(upgraded, "submissions")}

    assert {name: row["evidence"] for name, row in found.items()} == {
        name: "measured" if measured else "claimed" for name, (*_, measured) in STORED.items()
    }
    assert found["well"]["check_word"] is None
    assert found["open"]["check_word"] == "epochs_agree"
    assert {row["status"] for row in found.values()} == {"verified"}


def test_one_pool_has_all_runs_of_a_configuration_in_the_key_of_today(upgraded: Database) -> None:
    (pool,) = rows_of(upgraded, "pools")
    runs = rows_of(upgraded, "pool_runs")

    assert pool["state"] == "measured"
    # Six runs, the fastest and the slowest dropped.
    assert (pool["runs"], len(runs)) == (6, 6)
    assert pool["measured_seconds"] == pytest.approx((1.0 + 1.1 + 1.1 + 1.2) / 4)
    stored = pool["settings"]
    settings = stored if isinstance(stored, dict) else json.loads(stored)
    key = Configuration("digits", "closed", CLASS, settings).sha256
    assert pool["configuration_sha256"] == key
    assert {row["pool_id"] for row in runs} == {pool["id"]}


def test_it_goes_back(upgraded: Database) -> None:
    command.downgrade(alembic_config(upgraded), BEFORE)
    assert len(rows_of(upgraded, "submissions")) == len(STORED)


def test_measured_pools_count_the_owners_of_the_workers_behind_them(upgraded: Database) -> None:
    insert_rows(upgraded, "UPDATE users SET role = 'organiser' WHERE name = 'walter'")
    migrate(upgraded)
    (pool,) = rows_of(upgraded, "pools")

    assert (pool["owners"], bool(pool["by_organisers"])) == (1, True)
    assert pool["attested_at"] == pool["measured_at"] is not None
