"""Migrations: from nothing to the newest schema and back, and that models agree with them."""

from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.script import ScriptDirectory
from sqlalchemy import Column, MetaData, insert, inspect, select, text

from server.app import create_app
from server.base.database import Database
from server.base.models import Base
from server.base.revision import current_revision, require_current_schema
from server.base.schema import alembic_config, migrate
from server.base.settings import Settings
from tests.support.admin import run_admin

OURS = {table.name for table in Base.metadata.sorted_tables}


@pytest.fixture
def empty(empty_database: Database) -> Database:
    """A database without any table."""
    return empty_database


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


OLD_ROWS = """
INSERT INTO users (id, name, created_at) VALUES (1, 'ada', :now);
INSERT INTO benchmark_definitions (sha256, benchmark_id, version, content, created_at)
VALUES ('abc', 'digits', '1', 'id', :now);
INSERT INTO submissions (id, user_id, benchmark_id, benchmark_sha256, division, model, framework,
  system, hyperparameters, claim_sha256, status, eligible, result, request_sha256, submitted_at)
VALUES ('s-1', 1, 'digits', 'abc', 'closed', 'm', 'f',
  '{}', '{}', 'c', 'verified', true, '{}', 'r', :now);
INSERT INTO verifications (id, submission_id, requested_by, state, seal, nonce, seeds,
  control_points, max_attempts, lease_seconds, limit_seconds, outcome, reasons, created_at)
VALUES ('v-1', 's-1', 1, 'done', 'seal', 'nonce', '[1, 2]', '[]', 3, 8, 100, 'verified', '[]',
  :now);
INSERT INTO attempts (id, verification_id, number, state, fence, sends, send_after, created_at)
VALUES ('a-1', 'v-1', 1, 'done', 1, 1, :now, :now);
INSERT INTO replay_events (attempt_id, sequence, event, created_at) VALUES ('a-1', 0, '{}', :now);
INSERT INTO workers (name, hardware_class, state, system, first_seen_at, last_seen_at)
VALUES ('w', 'cpu', 'idle', '{}', :now, :now)
"""
BOARD_ROWS = """;
INSERT INTO boards (benchmark_id, version) VALUES ('digits', 7)
"""
CALIBRATION_ROWS = """
INSERT INTO verifications (id, kind, benchmark_sha256, requested_by, state, seal, nonce, seeds,
  control_points, max_attempts, lease_seconds, limit_seconds, reasons, created_at)
VALUES ('v-2', 'calibration', 'abc', 1, 'done', 'seal', 'nonce', '[1]', '[]', 3, 8, 100, '[]',
  :now);
INSERT INTO attempts (id, verification_id, number, state, fence, sends, send_after, created_at)
VALUES ('a-2', 'v-2', 1, 'done', 1, 1, :now, :now);
INSERT INTO replay_events (attempt_id, sequence, event, created_at) VALUES ('a-2', 0, '{}', :now)
"""
CONSOLE_ROWS = """
INSERT INTO tokens (id, user_id, role, token_sha256, created_at)
VALUES (1, 1, 'organiser', 'abc', :now);
INSERT INTO console_sessions (id_sha256, token_id, created_at, last_seen_at, notices)
VALUES ('def', 1, :now, :now, '[]');
INSERT INTO prices (id, provider, instance, region, pricing, usd_per_hour, effective_on, source_url,
  added_by, added_at)
VALUES (1, 'cloud', 'gpu', 'north', 'on_demand', 2.5, '2026-11-01', 'https://a.example', 1, :now)
"""
NOTICE_ROWS = """
INSERT INTO notice_events (id, kind, user_id, content, created_at)
VALUES ('msg_1', 'submission.verified', 1, '{}', :now);
INSERT INTO webhooks (id, user_id, url, kinds, scope, secret, created_at)
VALUES ('h-1', 1, 'https://a.example', '[]', 'own', 'whsec_', :now);
INSERT INTO mail_subscriptions (id, user_id, address, kinds, scope, secret, created_at)
VALUES ('m-1', 1, 'ada@example.org', '[]', 'own', 'abc', :now);
INSERT INTO deliveries (id, event_id, webhook_id, state, due_at, claims, failures, tries,
  created_at)
VALUES (1, 'msg_1', 'h-1', 'waiting', :now, 0, 0, '[]', :now)
"""


def insert_rows(database: Database, rows: str) -> None:
    with database.engine.begin() as connection:
        for statement in rows.split(";"):
            moment = "'2026-11-20 10:00:00'"
            connection.execute(text(statement.replace(":now", moment)))


def select_all(database: Database, query: str) -> list[tuple[object, ...]]:
    with database.engine.connect() as connection:
        return [tuple(row) for row in connection.execute(text(query))]


def test_earlier_verifications_become_replays_of_their_submissions_benchmark(
    empty: Database,
) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty)

    query = "SELECT id, kind, submission_id, benchmark_sha256, against_id FROM verifications"
    assert select_all(empty, query) == [("v-1", "replay", "s-1", "abc", None)]
    query = "SELECT id, verification_id, claimed_by, log_tail FROM attempts"
    assert select_all(empty, query) == [("a-1", "v-1", None, None)]
    assert select_all(empty, "SELECT name, user_id FROM workers") == [("w", None)]
    assert select_all(empty, "SELECT attempt_id FROM replay_events") == [("a-1",)]
    if empty.is_sqlite:
        assert select_all(empty, "PRAGMA foreign_key_check") == []
        assert select_all(empty, "PRAGMA foreign_keys") == [(1,)]


def test_going_back_keeps_the_replays_and_drops_what_has_no_submission(empty: Database) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty, "0044")
    insert_rows(empty, CALIBRATION_ROWS)
    command.downgrade(alembic_config(empty), "0002")

    assert select_all(empty, "SELECT id, submission_id FROM verifications") == [("v-1", "s-1")]
    assert select_all(empty, "SELECT id FROM attempts") == [("a-1",)]
    assert select_all(empty, "SELECT attempt_id FROM replay_events") == [("a-1",)]
    migrate(empty)
    assert select_all(empty, "SELECT benchmark_sha256 FROM verifications") == [("abc",)]


def test_going_back_drops_latencies_and_no_other_verification(empty: Database) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty, "0044")
    insert_rows(empty, CALIBRATION_ROWS.replace("'calibration'", "'latency'"))
    insert_rows(empty, "UPDATE submissions SET measured_latency_ms = 0.25")
    command.downgrade(alembic_config(empty), "0007")

    assert select_all(empty, "SELECT id FROM verifications") == [("v-1",)]
    assert select_all(empty, "SELECT id FROM attempts") == [("a-1",)]
    assert select_all(empty, "SELECT attempt_id FROM replay_events") == [("a-1",)]
    migrate(empty)
    query = "SELECT id, status, measured_latency_ms FROM submissions"
    assert select_all(empty, query) == [("s-1", "verified", None)]


def test_going_back_drops_the_energy_and_no_submission(empty: Database) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty)
    query = "SELECT id, status, energy_joules FROM submissions"
    assert select_all(empty, query) == [("s-1", "verified", None)]
    insert_rows(empty, "UPDATE submissions SET energy_joules = 5430.5")
    command.downgrade(alembic_config(empty), "0011")

    assert select_all(empty, "SELECT id, status FROM submissions") == [("s-1", "verified")]
    migrate(empty)
    assert select_all(empty, query) == [("s-1", "verified", None)]


def test_going_back_forgets_what_versions_changed_and_keeps_the_versions(empty: Database) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS + BOARD_ROWS)
    migrate(empty)
    insert_rows(empty, "INSERT INTO board_changes VALUES ('digits', 7, 's-1')")
    command.downgrade(alembic_config(empty), "0013")
    migrate(empty)

    assert select_all(empty, "SELECT * FROM boards") == [("digits", 7)]
    assert select_all(empty, "SELECT * FROM board_changes") == []
    assert select_all(empty, "SELECT id FROM submissions") == [("s-1",)]


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
        "verifications": [{"id": "v1", "submission_id": "s1", "requested_by": 1, "seeds": [5, 6]}],
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
    migrate(empty, "0002")
    after = rows(empty)
    added = {
        "submissions": {"archive": False, "organisation": None, "submitted_on": None},
        "runs": {"batch_size": None, "convergence": None},
    }
    for table in before:
        more = added.get(table, {})
        assert after[table] == [row | more for row in before[table]], table
    with empty.engine.begin() as connection:  # What only the later schema has a word for.
        connection.execute(
            text("UPDATE runs SET best_quality = NULL, batch_size = 64 WHERE id = 2")
        )
        connection.execute(text("UPDATE submissions SET organisation = 'ACME'"))
    command.downgrade(alembic_config(empty), "0001")

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
    with pytest.raises(
        RuntimeError, match=r"(\(empty\)|no file of the database).*server\.admin migrate"
    ):
        create_app(settings)
    migrate(empty)
    require_current_schema(empty)


def test_the_administrators_command_migrates_and_makes_tokens(tmp_path: Path) -> None:
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
    assert "holds no token" in refused.err
    assert run("token", "--user", "ada", "--role", "king").code == 2


def test_going_back_drops_the_price_book_and_the_sessions_and_nothing_else(
    empty: Database,
) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty, "0012")
    insert_rows(empty, CONSOLE_ROWS)
    before = rows(empty)
    assert len(before.pop("prices")) == len(before.pop("console_sessions")) == 1
    for submission in before["submissions"]:
        assert submission.pop("energy_joules") is None
    command.downgrade(alembic_config(empty), "0009")

    assert rows(empty) == before
    migrate(empty, "0012")
    again = rows(empty)
    for submission in again["submissions"]:
        assert submission.pop("energy_joules") is None
    assert again == before | {"prices": [], "console_sessions": []}


ACCOUNT_ROWS = """
INSERT INTO users (id, name, created_at) VALUES (1, 'olivia', :now);
INSERT INTO users (id, name, created_at) VALUES (2, 'walter', :now);
INSERT INTO users (id, name, created_at) VALUES (3, 'carol', :now);
INSERT INTO users (id, name, created_at) VALUES (4, 'retired', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at)
VALUES (1, 1, 'submitter', 'a', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at)
VALUES (2, 1, 'organiser', 'b', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at) VALUES (3, 2, 'worker', 'c', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at) VALUES (4, 3, 'worker', 'd', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at)
VALUES (5, 3, 'submitter', 'e', :now);
INSERT INTO tokens (id, user_id, role, token_sha256, created_at, revoked_at)
VALUES (6, 4, 'organiser', 'f', :now, :now);
INSERT INTO console_sessions (id_sha256, token_id, created_at, last_seen_at, notices)
VALUES ('def', 2, :now, :now, '[]')
"""


def test_a_user_gets_the_highest_role_of_their_tokens_and_every_token_all_its_scopes(
    empty: Database,
) -> None:
    migrate(empty, "0012")
    insert_rows(empty, ACCOUNT_ROWS)
    before = rows(empty)
    migrate(empty)

    roles = select_all(empty, "SELECT name, role FROM users ORDER BY id")
    assert roles == [
        ("olivia", "organiser"), ("walter", "worker"), ("carol", "submitter"),
        ("retired", "submitter"),
    ]  # fmt: skip
    tokens = {row["id"]: row["scopes"] for row in rows(empty)["tokens"]}
    assert tokens == {
        1: ["read", "submit", "tokens"],
        2: ["read", "submit", "organise", "tokens"],
        3: ["read", "work"],
        4: ["read", "work"],
        5: ["read", "submit", "tokens"],
        6: ["read", "submit", "organise", "tokens"],
    }
    assert select_all(empty, "SELECT token_id FROM console_sessions") == [(2,)]
    insert_rows(empty, "UPDATE users SET disabled_at = :now WHERE name = 'walter'")
    command.downgrade(alembic_config(empty), "0012")

    # The earlier schema knows no disabled user, so their tokens are revoked.
    walters = before["tokens"][2]
    walters["revoked_at"] = walters["created_at"]
    assert rows(empty) == before


QUOTA_ROWS = """
INSERT INTO quotas (subject_kind, subject, measure, amount, reason, set_by, set_at)
VALUES ('user', 'ada', 'submissions_per_day', 5, 'r', 1, :now);
INSERT INTO charges (verification_id, user_id, gpu_seconds_reserved, created_at)
VALUES ('v-1', 1, 12.5, :now);
UPDATE attempts SET accelerators = 8
"""


def test_going_back_drops_the_quotas_and_no_submission_or_attempt(empty: Database) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty)
    query = "SELECT id, accelerators FROM attempts"
    assert select_all(empty, query) == [("a-1", None)]
    insert_rows(empty, QUOTA_ROWS)
    command.downgrade(alembic_config(empty), "0012")

    assert not {"quotas", "charges"} & tables(empty)
    assert select_all(empty, "SELECT id, status FROM submissions") == [("s-1", "verified")]
    migrate(empty)
    assert select_all(empty, query) == [("a-1", None)]


def restricted(
    found: dict[str, list[dict[str, Any]]], earlier: dict[str, list[dict[str, Any]]]
) -> dict[str, list[dict[str, Any]]]:
    """What of the rows an earlier schema has a table and a column for."""
    return {
        table: [
            {name: value for name, value in row.items() if name in (earlier[table] or [row])[0]}
            for row in found[table]
        ]
        for table in earlier
    }


PHASE_ROWS = """
INSERT INTO benchmark_phases (id, benchmark_id, opens_at, frozen_sha256, reason, set_by, set_at)
VALUES (1, 'digits', :now, 'abc', 'the first round', 1, :now);
UPDATE submissions SET embargoed = true, withdrawn_at = :now, withdrawn_by = 'ada',
  withdrawn_because = 'by mistake'
"""


def test_what_was_published_is_neither_hidden_nor_withdrawn_and_going_back_keeps_it(
    empty: Database,
) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty, "0013")
    before = rows(empty)
    migrate(empty, "0014")
    query = "SELECT id, status, embargoed, withdrawn_at FROM submissions"
    published = [("s-1", "verified", False, None)]
    assert select_all(empty, query) == published
    assert restricted(rows(empty), before) == before
    insert_rows(empty, PHASE_ROWS)
    command.downgrade(alembic_config(empty), "0013")

    assert rows(empty) == before
    migrate(empty, "0014")
    assert select_all(empty, query) == published
    assert select_all(empty, "SELECT id FROM benchmark_phases") == []


def test_going_back_drops_the_notices_and_nothing_else(empty: Database) -> None:
    migrate(empty, "0002")
    insert_rows(empty, OLD_ROWS)
    migrate(empty, "0017")
    insert_rows(empty, NOTICE_ROWS)
    before = rows(empty)
    script = ScriptDirectory.from_config(alembic_config(empty)).get_revision("0017")
    command.downgrade(alembic_config(empty), str(script.down_revision))

    left = tables(empty)
    assert set(before) - left == {
        "notice_events", "webhooks", "mail_subscriptions", "deliveries"
    }  # fmt: skip
    assert rows(empty) == {name: found for name, found in before.items() if name in left}
    migrate(empty, "0017")
    assert rows(empty) == {name: found if name in left else [] for name, found in before.items()}
