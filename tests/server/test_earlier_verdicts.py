"""Verified rows of before pools: measured where today's rules measure them, else claimed."""

import json
from copy import deepcopy
from typing import Any

import pytest
from sqlalchemy import text

from finishline.rules.submissions.settings import Configuration
from server.base.schema import migrate
from tests.support.databases import load_earlier

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
            "evaluations": [{"epoch": 8.0, "quality": 98.0}],
            "tta_seconds": seconds,
            "cpu_seconds": seconds,
            "parent_seconds": seconds,
        }
        for index, seconds in enumerate((1.0, 1.2, 1.1))
    ],
}
PEOPLE = """
INSERT INTO users (id, name, role, created_at) VALUES (101, 'eve', 'submitter', :now);
INSERT INTO users (id, name, role, created_at) VALUES (102, 'walter', :role, :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at)
VALUES (101, 101, 'worker', 'a', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at)
VALUES (102, 102, 'worker', 'b', :now);
INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, created_at)
VALUES ('abc', 'digits', '1', :content, :now)
"""


def report(**changes):
    made = deepcopy(REPORT)
    for name, value in changes.items():
        made[name] = value
    return made


# Of each: division, settings, report, the worker's token, and whether it is measured.
STORED: dict[str, tuple[str, dict[str, float], dict[str, Any], int, bool]] = {
    "well": ("closed", {"batch_size": 64}, REPORT, 102, True),
    "same": ("closed", {}, REPORT, 102, True),
    "open": ("open", {}, REPORT, 102, False),
    "own": ("closed", {}, REPORT, 101, False),
    "drifted": ("closed", {}, report(drift="slow"), 102, False),
    "between": ("closed", {"batch_size": 65}, REPORT, 102, False),
    "elsewhere": (
        "closed",
        {},
        report(system={"hardware_class": "x", "accelerator_count": 0}),
        102,
        False,
    ),
    "two runs": ("closed", {}, report(runs=REPORT["runs"][:2]), 102, False),
}


@pytest.fixture(params=["submitter", "organiser"])
def role(request):
    """The role of the worker's owner."""
    return str(request.param)


@pytest.fixture
def upgraded(empty_database, benchmarks_dir, role):
    """A database that was taken over with verdicts of each kind."""
    load_earlier(empty_database, "f5482e6")
    now = "2026-11-20 10:00:00"
    content = (benchmarks_dir / "digits.toml").read_text()
    with empty_database.engine.begin() as connection:
        for statement in PEOPLE.split(";"):
            connection.execute(text(statement), {"now": now, "role": role, "content": content})
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
                "now": now,
            }
            for statement in ROWS.split(";"):
                connection.execute(text(statement), values)
    migrate(empty_database)
    return empty_database


ROWS = """
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, status, eligible, result, request_sha256, submitted_at,
  dawnbench)
VALUES (:name, 101, 'digits', 'abc', :division, 'm', 'f', :system, :settings, 'c', 'verified', true,
  '{}', 'r', :now, 'null');
INSERT INTO verifications (id, kind, submission_id, benchmark_sha256, requested_by, state, seal,
  nonce, seeds, control_points, max_attempts, lease_seconds, limit_seconds, outcome, reasons,
  report, created_at, ended_at)
VALUES (:verification, 'replay', :name, 'abc', 101, 'done', 's', 'n', '[]', '[]', 3, 8, 100,
  'verified', '[]', :report, :now, :now);
INSERT INTO decisions (verification_id, decision, reason, decided_at)
VALUES (:verification, 'publish', 'r', :now);
INSERT INTO attempts (id, verification_id, number, state, fence, sends, send_after, created_at,
  claimed_by)
VALUES (:attempt, :verification, 1, 'done', 1, 1, :now, :now, :token)
"""


def rows_of(database, table):
    """The rows of a table that are not the dump's."""
    column = {"submissions": "user_id = 101", "pools": f"hardware_class = '{CLASS}'"}
    where = column.get(table, "verification_id LIKE 'v-%'")
    with database.engine.connect() as connection:
        found = connection.execute(text(f"SELECT * FROM {table} WHERE {where}"))  # noqa: S608
        return list(found.mappings())


def test_only_what_todays_rules_measure_is_measured(upgraded):
    found = {row["id"]: row for row in rows_of(upgraded, "submissions")}

    assert {name: row["evidence"] for name, row in found.items()} == {
        name: "measured" if measured else "claimed" for name, (*_, measured) in STORED.items()
    }
    assert found["well"]["check_word"] is None
    assert found["open"]["check_word"] == "epochs_agree"
    assert {row["status"] for row in found.values()} == {"verified"}


def test_one_pool_has_all_runs_of_a_configuration_in_the_key_of_today(upgraded):
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


def test_measured_pools_count_the_owners_of_the_workers_behind_them(upgraded, role):
    (pool,) = rows_of(upgraded, "pools")
    attempts = {row["attempt_id"] for row in rows_of(upgraded, "pool_runs")}

    assert (pool["owners"], bool(pool["by_organisers"])) == (1, role == "organiser")
    assert pool["attested_at"] == (pool["measured_at"] if role == "organiser" else None)
    assert attempts == {"a-0", "a-1"}
