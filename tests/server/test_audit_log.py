"""The audit log on both databases: what goes in, that it stays, and who may read it."""

import json
from functools import partial

import pytest
from sqlalchemy import text
from sqlalchemy.exc import DatabaseError

from finishline.cli.commands.proof import write_log
from finishline.cli.main import main
from finishline.rules.proof.hash_chain import FIRST_PREVIOUS
from server.people.audit import Administrator, Subject, record
from tests.support.both_databases import at_once, database_url, on_sqlite  # noqa: F401


@pytest.fixture
def log(olivia):
    def read(**query):
        answer = olivia.get("/api/v1/audit", params=query)
        assert answer.status_code == 200, answer.text
        return list(reversed(answer.json()["records"]))

    return read


def check(client, person):
    return person.get("/api/v1/audit/check").json()


def write(database, subject):
    with database.write() as session:
        record(
            session, Administrator(), "test", Subject("thing", subject), reason="ü",
            after={"x": 0.1, "n": 2.0**60},
        )  # fmt: skip


def test_tokens_and_verifications_are_logged_with_who_and_why(replay, client, alice, olivia, log):
    made = olivia.post("/api/v1/tokens", {"user": "alice", "role": "submitter"}).json()
    for _ in range(2):  # Revoking twice changes nothing, and is told once.
        olivia.delete(f"/api/v1/tokens/{made['id']}")
    replay.cancel(olivia)
    records = log()

    assert [(r["action"], r["subject_kind"], r["subject_id"], r["reason"]) for r in records] == [
        ("verification.request", "submission", replay.submission_id, "record claim"),
        ("token.create", "token", str(made["id"]), None),
        ("token.revoke", "token", str(made["id"]), None),
        ("verification.cancel", "verification", replay.verification_id, None),
    ]
    assert {r["actor"] for r in records} == {"olivia"}
    assert records[2]["before"]["revoked_at"] is None
    assert records[2]["after"]["revoked_at"] is not None
    assert made["token"] not in json.dumps(records)
    found = check(client, olivia)
    assert (found["whole"], found["records"], found["problems"]) == (True, 4, [])
    assert client.get("/api/v1/audit/head").json() == found["head"]
    assert found["head"]["sha256"] == records[-1]["sha256"]


def test_what_is_rolled_back_is_not_logged_and_an_empty_log_has_a_head(database, client):
    with database.write() as session:
        record(session, Administrator(), "x", Subject("a", "b"), after={})
        session.rollback()

    assert client.get("/api/v1/audit/head").json() == {"id": 0, "sha256": FIRST_PREVIOUS}


def test_the_database_itself_refuses_to_change_or_delete_a_record(database, client, olivia):
    write(database, "1")
    statements = ["UPDATE audit_log SET actor = 'eve'", "DELETE FROM audit_log"]
    if not database.is_sqlite:
        statements.append("TRUNCATE audit_log")
    for statement in statements:
        with (
            pytest.raises(DatabaseError, match="only ever added to"),
            database.write() as session,
        ):
            session.execute(text(statement))

    assert check(client, olivia)["records"] == 1


def test_a_change_behind_the_triggers_back_is_found(database, client, olivia):
    for subject in ("1", "2", "3"):
        write(database, subject)
    drop = (
        "DROP TRIGGER audit_log_refuses_update"
        if database.is_sqlite
        else "DROP TRIGGER audit_log_refuses ON audit_log"
    )
    with database.write() as session:
        session.execute(text(drop))
        session.execute(text("UPDATE audit_log SET actor = 'eve' WHERE id = 2"))
    found = check(client, olivia)

    assert found["whole"] is False
    assert ["record 2.sha256" in problem for problem in found["problems"]] == [True]


def test_records_written_at_once_make_one_chain(database, client, olivia):
    def run(number):
        for turn in range(3):
            write(database, f"{number}.{turn}")

    assert at_once(*(partial(run, number) for number in range(8))) == [None] * 8
    found = check(client, olivia)

    assert (found["whole"], found["records"]) == (True, 24), found


def test_a_database_in_another_timezone_reads_the_same_hashes(database, client, olivia):
    write(database, "1")
    if not database.is_sqlite:
        with database.write() as session:
            name = session.scalar(text("SELECT current_database()"))
            session.execute(text(f"ALTER DATABASE \"{name}\" SET timezone TO 'Asia/Kathmandu'"))
        database.close()
    write(database, "2")

    assert check(client, olivia)["whole"] is True


@on_sqlite
def test_the_log_is_paged_newest_first(database, olivia, log):
    for number in range(5):
        write(database, str(number))
    page = olivia.get("/api/v1/audit", params={"limit": 2}).json()

    assert ([r["id"] for r in page["records"]], page["next_before"]) == ([5, 4], 4)
    assert [r["id"] for r in log(limit=3, before=4)] == [1, 2, 3]
    last = olivia.get("/api/v1/audit", params={"before": 4}).json()
    assert last["next_before"] is None
    for query in ({"limit": 0}, {"limit": 1001}, {"before": 0}, {"before": "x"}):
        answer = olivia.get("/api/v1/audit", params=query)
        assert answer.status_code == 422


@on_sqlite
def test_an_exported_log_is_checked_offline(database, log, tmp_path, capsys):
    for subject in ("1", "2", "3"):
        write(database, subject)
    records, path = log(), tmp_path / "log.json"
    write_log(path, records)
    head = records[-1]["sha256"]
    assert main(["proof", "--log", str(path), "--head", head]) == 0
    capsys.readouterr()
    assert main(["proof", "--log", str(path), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "whole": True, "records": 3, "head": {"id": 3, "sha256": head}, "redacted": 0,
        "problems": [],
    }  # fmt: skip
    write_log(path, records[:2])
    assert main(["proof", "--log", str(path)]) == 0
    capsys.readouterr()
    assert main(["proof", "--log", str(path), "--head", head, "--json"]) == 1
    cut_off = json.loads(capsys.readouterr().out)
    assert (cut_off["whole"], cut_off["records"], len(cut_off["problems"])) == (False, 2, 1)
    assert main(["proof", "--log", str(path), "--head", head]) == 1
    assert "is not in the log: the log was cut off" in capsys.readouterr().out
    write_log(path, [records[0], records[1] | {"reason": "another"}])
    assert main(["proof", "--log", str(path)]) == 1
    assert "record 2.sha256: it was changed" in capsys.readouterr().out


@on_sqlite
def test_the_feed_has_the_head_of_the_log(client, ada):
    for name in ("first", "second"):
        made = ada.post("/api/v1/organisations", {"name": name})
        assert made.status_code == 201, made.text
        head = client.get("/api/v1/audit/head").json()["sha256"]

        assert client.get("/audit.atom").text.count(f"SHA-256 {head}.") == 1
