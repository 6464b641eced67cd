"""Erasure of a person: their name is nowhere afterwards, and every hash and proof still checks."""

import json
import re

import pytest
from sqlalchemy import text

from server.base.models import Base, Receiver, User
from server.commands.check import check_server
from server.operations.export import export
from server.people.accounts import create_token
from tests.server.conftest import list_stored_files
from tests.support.addresses import addresses
from tests.support.boards import rows_of
from tests.support.both_databases import database_url, on_sqlite  # noqa: F401
from tests.support.build import Person
from tests.support.pages import ORIGIN, sign_in
from tests.support.proofs import predicate_in
from tests.support.services import services_of

NAME = "qwyjibo.smith"
LIKE = f"{NAME}-junior"
# Names that readers saw, one after the other.
FIRST_SHOWN, SHOWN = "Quimby Q. Jibo-Smith", "Zsófia Qwy O'Jibo"
MAIL = "q.smith@uni.example"
# Stored JSON may escape a letter, and pages an apostrophe.
WORD = re.compile(rf"{re.escape(NAME)}(?!-junior)|{re.escape(MAIL)}|{FIRST_SHOWN}|fia Qwy O")


@pytest.fixture
def person(make_person, database):
    made = make_person(NAME, "organiser")
    make_person(LIKE, "submitter")
    with database.write() as session:
        user = session.query(User).filter(User.name == NAME).one()
        user.email, user.issuer, user.subject = MAIL, "https://x.example", "17"
    return made


@pytest.fixture
def traces(person, client, digits_submission, submit, replay, olivia, ada):
    def post(path, body, by=person, method="POST"):
        answer = by.ask(method, f"/api/v1{path}", body)
        assert answer.is_success, (path, answer.text)
        return answer.json() if answer.content else {}

    hook = {"url": "https://hooks.example/a", "kinds": ["submission.accepted"]}
    post("/webhooks", hook)
    post("/webhooks", hook | {"scope": "all"}, olivia)
    post("/me", {"display_name": FIRST_SHOWN}, method="PATCH")
    sent = submit(digits_submission, by=person, batch_size=128).json()["id"]
    again = submit(digits_submission, by=person, batch_size=32).json()["id"]
    asked = post(f"/submissions/{sent}/verifications", {"reason": f"{NAME} asks, and {LIKE}"})
    replay.submission_id, replay.verification_id = sent, asked["id"]
    assert replay.train().is_success
    post(f"/submissions/{again}/withdrawal", {"reason": f"by {NAME}."})
    post("/me", {"display_name": SHOWN}, method="PATCH")
    pause = {"paused": True, "reason": f"{NAME}'s wish, once {FIRST_SHOWN}"}
    post("/workers/walter-1", pause, method="PATCH")
    quota = {"submissions_per_day": 7, "reason": f"asked by {NAME}"}
    post(f"/quotas/{NAME}", quota, ada, "PUT")
    post("/tokens", {"user": NAME, "role": "submitter", "label": f"of {NAME}"}, ada)
    post(f"/users/{NAME}", {"email": MAIL}, ada, "PATCH")
    post("/invitations", {"name": "grace"})
    client.post("/console/sign-in", data={"token": person.secret}, headers=ORIGIN)
    client.cookies.clear()
    return {
        "benchmark_id": "digits",
        "index": 0,
        "name": "walter-1",
        "submission_id": sent,
        "second": again,
        "verification_id": asked["id"],
        "rerun": asked["id"],
    }


def erase(by, name, *, typed=None):
    return by.post(f"/api/v1/users/{name}/erasure", {"name": typed or name})


def stored_texts(database):
    with database.engine.connect() as connection:
        return {
            table.name: json.dumps(
                [list(row) for row in connection.execute(text(f"SELECT * FROM {table.name}"))],  # noqa: S608
                default=str,
                ensure_ascii=False,
            )
            for table in Base.metadata.sorted_tables
        }


def found_in_routes(client, known, by):
    headers = by.headers | {"Accept": "text/html, */*"}
    proof = f"/api/v1/verifications/{known['verification_id']}/proof?format=dsse"
    return {
        path
        for path, address in addresses(client, known)
        if not path.endswith("/events") and WORD.search(client.get(address, headers=headers).text)
    } | ({proof} if WORD.search(json.dumps(predicate_in(client.get(proof)))) else set())


def test_name_is_gone_and_proofs_check(traces, client, database, settings, person, ada, tmp_path):
    services = services_of(client)
    before = {name for name, found in stored_texts(database).items() if WORD.search(found)}
    assert before >= {
        "users", "audit_log", "submissions", "workers", "evidence", "outbox",
        "verifications", "tokens",
    }  # fmt: skip
    assert found_in_routes(client, traces, ada) >= {
        "/submissions/{submission_id}", "/api/v1/leaderboards/{benchmark_id}", "/api/v1/audit",
        "/api/v1/users", "/api/v1/workers/{name}", "/api/v1/quotas", "/api/v1/submissions",
        f"/api/v1/verifications/{traces['verification_id']}/proof?format=dsse",
    }  # fmt: skip
    head = client.get("/api/v1/audit/head").json()
    with database.read() as session:
        former = f"former-{session.query(User).filter(User.name == NAME).one().id}"

    answer = erase(ada, NAME)

    assert answer.status_code == 200, answer.text
    assert answer.json()["name"] == former
    left = {name for name, found in stored_texts(database).items() if WORD.search(found)}
    assert left == set()
    assert found_in_routes(client, traces, ada) == set()
    assert not [name for name in list_stored_files(settings) if WORD.search(name)]
    export(services, tmp_path / "exports")
    for path in (tmp_path / "exports").rglob("*"):
        assert not path.is_file() or not WORD.search(path.read_bytes().decode("latin-1")), path
    # Who is called nearly so keeps their name, where both stood in one text too.
    assert LIKE in stored_texts(database)["users"]
    reason = client.get(f"/api/v1/verifications/{traces['verification_id']}").json()["reason"]
    assert reason == f"{former} asks, and {LIKE}"
    board = rows_of(client.get("/api/v1/leaderboards/digits").json())
    assert former in {entry["submitter"] for entry in board}
    assert client.get(f"/submitters/{former}").status_code == 200
    # The chain is whole, an earlier head is still in it, and each proof checks.
    checked = ada.get("/api/v1/audit/check").json()
    assert (checked["whole"], checked["problems"]) == (True, [])
    assert checked["redacted"] > 3
    log = ada.get("/api/v1/audit?limit=1000").json()["records"]
    assert head["sha256"] in {record["sha256"] for record in log}
    findings = check_server(services, files=True, proofs=True)
    assert findings.faults == []
    proof = client.get(f"/api/v1/verifications/{traces['verification_id']}/proof?format=dsse")
    assert predicate_in(proof)["submission"]["submitter"] == former


def test_nothing_of_theirs_opens_anything_afterwards(traces, database, person, ada):
    assert erase(ada, NAME).status_code == 200
    assert person.get("/api/v1/me").status_code == 401
    with database.read() as session:
        assert {(user.issuer, user.subject) for user in session.query(User)} == {(None, None)}
        assert [hook.scope for hook in session.query(Receiver)] == ["all"]
    links = ada.get("/api/v1/invitations").json()["invitations"]
    assert {link["state"] for link in links} == {"revoked"}
    # Nobody can be taken for them, nor for another who was erased.
    for name in ("former-1", "Former-99"):
        body = {"name": name}
        assert ada.post("/api/v1/users", body).status_code == 422
    former = ada.get("/api/v1/users?q=former").json()["users"][0]["name"]
    assert erase(ada, former).status_code == 409


def test_a_record_changed_otherwise_is_still_found(traces, client, database, ada, olivia):
    erase(ada, NAME)
    with pytest.raises(Exception, match="only ever added to"), database.write() as session:
        session.execute(text("UPDATE audit_log SET actor = 'x'"))
    grace = ada.post("/api/v1/users", {"name": "grace"})
    assert grace.status_code == 201
    # The record of an erasure may be redacted itself, by that of its admin.
    with database.write() as session:
        other = create_token(session, user_name="adam", role="admin", expires_in=None)
    adam = Person("adam", other.secret, client)
    assert erase(adam, "ada").status_code == 200
    assert adam.get("/api/v1/audit/check").json()["whole"]
    with database.write() as session:
        name = "audit_log_refuses"
        if session.get_bind().dialect.name == "postgresql":
            session.execute(text(f"ALTER TABLE audit_log DISABLE TRIGGER {name}"))
        else:
            session.execute(text(f"DROP TRIGGER {name}_update"))
        redacted = "SELECT min(id) FROM audit_log WHERE actor LIKE 'former-%'"
        number = session.execute(text(redacted)).scalar_one()
        session.execute(text(f"UPDATE audit_log SET reason = 'x' WHERE id = {number}"))  # noqa: S608
    checked = adam.get("/api/v1/audit/check").json()
    assert not checked["whole"]
    assert f"record {number}" in checked["problems"][0]


@on_sqlite
def test_only_another_admin_erases_and_names_the_person_twice(alice, olivia, ada):
    assert erase(olivia, "alice").status_code == 403
    assert erase(ada, "ada").status_code == 409
    assert erase(ada, "alice", typed="bob").status_code == 422
    assert erase(ada, "nobody").status_code == 404
    assert alice.get("/api/v1/me").status_code == 200
    assert erase(ada, "alice").status_code == 200
    assert erase(ada, "alice").status_code == 404


@on_sqlite
def test_a_person_asks_and_an_admin_decides(client, alice, ada):
    def send(path, **form):
        return client.post(path, data=form, headers=ORIGIN)

    sign_in(client, alice)
    assert "You asked to be erased" in send("/account/erasure").text
    client.cookies.clear()
    sign_in(client, ada)
    assert "Asks to be erased" in client.get("/console/users").text
    assert "alice asked to be erased" in client.get("/console/users/alice").text
    refused = send("/console/users/alice/erase", erased_name="alicia")
    assert "Nothing was erased" in refused.text
    done = send("/console/users/alice/erase", erased_name="alice")
    assert "This account is former-" in done.text
    assert "alice" not in client.get("/console/users").text
    assert "Asks to be erased" not in client.get("/console/users").text
