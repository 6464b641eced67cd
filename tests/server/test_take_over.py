"""Databases of earlier trees, with rows that these made, come to the tables of today whole."""

import json
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from fastapi.testclient import TestClient
from sqlalchemy import inspect, text
from sqlalchemy.exc import DatabaseError

from finishline.cli.bundles import check_bundle, keys_in
from server.app import create_app
from server.base import take_over
from server.base.database import Database
from server.base.revision import current_revision, newest_revision
from server.base.schema import alembic_config, migrate
from server.base.settings import Settings
from server.base.viewer import ORGANISER
from server.operations.backup import SQLITE_FILE
from server.verifications.proof_endpoints import sign_proof
from tests.server.test_migrations import rows
from tests.support.admin import run_admin
from tests.support.databases import load_earlier
from tests.support.services import services_of

Rows = dict[str, list[dict[str, Any]]]
# The trees: the revision of each, and how many rows its dump has at least.
EARLIER = {"f5482e6": ("0025", 250), "de9bc5a": ("0044", 250)}
# What has a place of its own since, and what was derived for features that are gone. The shapes of
# prices stay in the backup alone.
MOVED = {
    "submissions": {"archive", "organisation", "submitted_on", "source"},
    "verifications": {"seeds", "hyperparameters"},
}
WITHOUT_PLACE = {
    "submissions": {"copies", "time_confirmed"},
    "runs": {"training_sha256"},
    "prices": {"accelerator", "accelerator_count", "processor_count", "memory_gib"},
}


@pytest.fixture(params=EARLIER)
def tree(request):
    """The commit of an earlier tree."""
    return str(request.param)


@pytest.fixture
def earlier(empty_database, tree):
    """A database with rows that an earlier tree's server made."""
    load_earlier(empty_database, tree)
    return empty_database


def keys_of(database, found):
    inspector = inspect(database.engine)
    return {table: inspector.get_pk_constraint(table)["constrained_columns"] for table in found}


def test_no_row_is_lost_and_no_value_changed(earlier, tree):
    before = rows(earlier)
    keys = keys_of(earlier, before)
    assert current_revision(earlier) == EARLIER[tree][0]
    assert sum(map(len, before.values())) >= EARLIER[tree][1]
    migrate(earlier)

    after = rows(earlier)
    changed = {(table, name) for table in before for name in changes(before, after, keys, table)}
    waiting = {("attempts", "sent_to"), ("attempts", "sends")}
    assert changed - waiting == ({("tokens", "scopes")} if tree == "f5482e6" else set())
    for attempt in before["attempts"]:
        if attempt["state"] != "queued" or tree == "de9bc5a":
            assert attempt.items() <= found(after, keys, "attempts", attempt).items()


def found(after, keys, table, row):
    (same,) = [each for each in after[table] if all(each[key] == row[key] for key in keys[table])]
    return same


def changes(before, after, keys, table):
    """The columns of a table whose values changed; none may be gone without a reason."""
    assert len(after[table]) == len(before[table])
    gone = MOVED.get(table, set()) | WITHOUT_PLACE.get(table, set())
    for row in before[table]:
        same = found(after, keys, table, row)
        assert row.keys() - same.keys() <= gone
        yield from (name for name in row.keys() & same.keys() if row[name] != same[name])


def test_rows_that_moved_are_whole(earlier):
    before = rows(earlier)
    migrate(earlier)
    after = rows(earlier)

    published = [row for row in before["submissions"] if row["archive"]]
    assert len(published) == len(after["published_results"]) == 6
    for row in published:
        (moved,) = (r for r in after["published_results"] if r["submission_id"] == row["id"])
        assert moved == {
            "submission_id": row["id"],
            "organisation": "Lab",
            "published_on": row["submitted_on"],
            "source": row.get("source"),
        }
    claims = {row["id"]: row for row in before["submissions"]}
    drawn = [row for row in before["verifications"] if row["seeds"]]
    assert {row["kind"] for row in drawn} >= {"replay", "calibration", "latency"}
    for row in drawn:
        trainings = [t for t in after["job_trainings"] if t["verification_id"] == row["id"]]
        claimed = claims[row["submission_id"]]["hyperparameters"] if row["submission_id"] else None
        assert [training["seed"] for training in trainings] == row["seeds"]
        assert [t["settings"] for t in trainings] == (
            row["hyperparameters"] or [claimed] * len(row["seeds"])
        )
        assert {training["package"] for training in trainings} == {"digits"}
    runs = {row["id"]: row["runs"] for row in after["verifications"]}
    assert runs == {row["id"]: len(row["seeds"]) for row in before["verifications"]}


def test_the_tables_are_those_of_a_database_made_today(earlier, request):
    kind = "sqlite" if earlier.is_sqlite else "postgresql"
    made = Database(request.getfixturevalue(f"{kind}_url"))
    migrate(earlier)

    command.check(alembic_config(earlier))
    assert schema(earlier) == schema(made)
    if earlier.is_sqlite:
        with earlier.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA foreign_key_check").all() == []
    for table in ("audit_log", "prices"):
        with (
            pytest.raises(DatabaseError, match="only ever added to"),
            earlier.engine.begin() as connection,
        ):
            connection.execute(text(f"DELETE FROM {table}"))  # noqa: S608
    made.close()


def schema(database):
    """Columns, keys and indexes by their names; the order of columns is free."""
    inspector = inspect(database.engine)
    return {
        table: {
            "columns": {
                each["name"]: (str(each["type"]), each["nullable"], str(each["default"]))
                for each in inspector.get_columns(table)
            },
            "key": inspector.get_pk_constraint(table),
            "foreign": {str(each["name"]): each for each in inspector.get_foreign_keys(table)},
            "unique": {
                e["name"]: e["column_names"] for e in inspector.get_unique_constraints(table)
            },
            "indexes": {
                each["name"]: each["column_names"] for each in inspector.get_indexes(table)
            },
        }
        for table in inspector.get_table_names()
    }


def test_a_server_shows_every_submission_with_its_runs(earlier, tmp_path):
    before = rows(earlier)
    runs = [row["submission_id"] for row in before["runs"]]
    migrate(earlier)
    url = earlier.url.render_as_string(hide_password=False)
    settings = Settings(database_url=url, artifacts_dir=tmp_path / "artifacts")
    with TestClient(create_app(settings, dispatch=False)) as client:
        for row in before["submissions"]:
            if row["archive"] or row["embargoed"]:  # A dump has no result of an archive.
                continue
            view = client.get(f"/api/v1/submissions/{row['id']}").json()
            assert (view["status"], len(view["runs"])) == (row["status"], runs.count(row["id"]))
        assert client.get("/api/v1/leaderboards/digits").json()["entries"]


def test_proofs_of_earlier_verdicts_still_check(earlier, tmp_path):
    migrate(earlier)
    ended = [
        row["id"]
        for row in rows(earlier)["verifications"]
        if (row["kind"], row["state"]) == ("replay", "done")
    ]
    url = earlier.url.render_as_string(hide_password=False)
    settings = Settings(database_url=url, artifacts_dir=tmp_path / "artifacts")
    with TestClient(create_app(settings, dispatch=False)) as client:
        for verification_id in ended:
            proof = sign_proof(services_of(client), verification_id, ORGANISER).content
            keys = keys_in(client.get("/api/v1/keys").json())
            failed = set(check_bundle(proof, keys).failed)
            # A dump has no evaluations as they were posted.
            assert failed <= {"posted"}, verification_id
    assert ended


def test_earlier_claims_say_how_far_they_were_checked(earlier, tree):
    migrate(earlier)
    found = rows(earlier)["submissions"]

    words = {(row["status"], row["evidence"], row["check_word"]) for row in found}
    assert ("claimed", "published", None) in words
    assert {evidence for _, evidence, _ in words} <= {"published", "claimed", "measured"}
    if tree == "f5482e6":
        waiting = [row for row in rows(earlier)["attempts"] if row["state"] == "queued"]
        assert [(row["sent_to"], row["sends"]) for row in waiting] == [(None, 0)]
        openings = rows(earlier)["replay_openings"]
        reports = {row["id"]: row["report"] for row in rows(earlier)["verifications"]}
        assert openings
        for row in openings:
            assert row["seed"] == reports[row["verification_id"]]["runs"][row["run"]]["seed"]


@pytest.mark.parametrize(
    ("revision", "told"),
    [
        ("0024", "from revision 0025 on.*commit cc1ca94"),
        ("0099", "does not know: a newer one made it.*restore the backup"),
        ("abc", "does not know"),
    ],
)
def test_a_revision_that_leads_nowhere_is_refused_with_what_to_do(earlier, revision, told):
    with earlier.engine.begin() as connection:
        connection.execute(text(f"UPDATE alembic_version SET version_num = '{revision}'"))  # noqa: S608
    before = rows(earlier)

    with pytest.raises(RuntimeError, match=told):
        migrate(earlier)

    assert (current_revision(earlier), rows(earlier)) == (revision, before)


def test_a_take_over_that_fails_leaves_the_database_as_it_was(earlier, tree, monkeypatch):
    before, tables = rows(earlier), schema(earlier)
    monkeypatch.setattr(take_over, "PUBLISHED", "SELECT no_such_column FROM {source}")

    with pytest.raises(DatabaseError):
        migrate(earlier)

    assert (current_revision(earlier), schema(earlier)) == (EARLIER[tree][0], tables)
    assert rows(earlier) == before


def environment(database, folder, **more):
    url = database.url.render_as_string(hide_password=False)
    names = {"DATABASE_URL": url, "ARTIFACTS_DIR": str(folder / "artifacts"), **more}
    return {f"FINISHLINE_{name}": value for name, value in names.items()}


def keep_logs(database, folder):
    """A backup looks for some logs of the database's, to be sure that the settings are its own."""
    for name in {row["log_sha256"] for row in rows(database)["runs"]}:
        path = folder / "artifacts" / name[:2] / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("a log")


def test_the_administrators_command_backs_up_first(earlier, tmp_path):
    keep_logs(earlier, tmp_path)
    before = rows(earlier)
    own = environment(earlier, tmp_path, BACKUPS_DIR=str(tmp_path / "backups"))
    done = run_admin(own, "migrate")

    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["revision"] == current_revision(earlier)
    backup = Path(told["backup"])
    assert backup.parent == tmp_path / "backups" / "before-migration"
    assert backup.stat().st_mode & 0o777 == 0o700
    if earlier.is_sqlite:
        kept = Database(f"sqlite:///{backup / SQLITE_FILE}")
        found = rows(kept)
        kept.close()
        for table in ("console_sessions", "signing_keys"):  # Left out, and added by the signing.
            del before[table], found[table]
        assert found == before
        return
    manifest = json.loads((backup / "manifest.json").read_text())
    counted = {table["name"]: table["rows"] for table in manifest["tables"]}
    for table, kept_rows in before.items():
        if table not in ("console_sessions", "signing_keys"):
            assert counted[table] == len(kept_rows), table
    columns = {c["name"] for t in manifest["tables"] if t["name"] == "submissions"
               for c in t["columns"]}  # fmt: skip
    assert columns == set(before["submissions"][0])
    assert run_admin(own, "migrate").out == json.dumps({"revision": told["revision"]}) + "\n"
    earlier.close()
    refused = run_admin(own, "restore", str(backup.parent), "--force")
    assert refused.code == 1
    assert "Restore it with the one that made it" in refused.err


def test_where_nothing_says_where_backups_go_a_database_is_left_alone(earlier, tree, tmp_path):
    keep_logs(earlier, tmp_path)
    own = environment(earlier, tmp_path)
    done = run_admin(own, "migrate")
    if earlier.is_sqlite:  # Beside the file.
        made = Path(json.loads(done.out)["backup"])
        assert made.parents[2] == Path(str(earlier.url.database)).parent
        return
    assert (done.code, current_revision(earlier)) == (1, EARLIER[tree][0])
    assert "FINISHLINE_BACKUPS_DIR" in done.err
    assert json.loads(run_admin(own, "migrate", "--no-backup").out)["revision"] == newest_revision()
