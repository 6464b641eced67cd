"""Our worker on the submitter's machine: it serves one submission and decides nothing."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from finishline.rules.proof.check import check_proof
from server.base.database import Database, utc_now
from server.base.models import AuditRecord, Pool, Token, Verification, WorkerRow
from server.verifications.overdue import end_unwitnessed
from server.verifications.queue_order import anything_to_send, take_due
from tests.server.conftest import Person, Replay
from tests.support.pages import words_of

pytestmark = pytest.mark.unconfirmed
BOARD = "/api/v1/leaderboards/digits"
OWN = "alice-laptop"


@pytest.fixture
def claimed(submit: Callable[..., Any], digits_submission: Any) -> str:
    """A claim of alice's that nobody has replayed."""
    return str(submit(digits_submission).json()["id"])


@pytest.fixture
def witness(client: TestClient, olivia: Person, claimed: str) -> dict[str, Any]:
    """The token that olivia makes for alice's submission."""
    path = f"/api/v1/submissions/{claimed}/witness-token"
    answer = client.post(path, json={"reason": "their hardware"}, headers=olivia.headers)
    assert answer.status_code == 201, answer.text
    return dict(answer.json())


@pytest.fixture
def hello(client: TestClient, make_report: Callable[..., Any]) -> Callable[..., Any]:
    """Lets a worker say hello with a token."""

    def say(secret: str, name: str = OWN) -> Any:
        system = vars(replace(make_report([]).system, worker=name))
        headers = {"Authorization": f"Bearer {secret}"}
        body = {"system": system, "state": "idle"}
        return client.post("/api/v1/workers/hello", json=body, headers=headers)

    return say


@pytest.fixture
def drawn(database: Database) -> Callable[[], list[tuple[str, str | None]]]:
    """Draws workers; each verification that is sent, and the queue it goes to."""

    def draw() -> list[tuple[str, str | None]]:
        with database.write() as session:
            return [
                (sending.job.verification_id, sending.queue)
                for sending in take_due(session, alive_seconds=60)
            ]

    return draw


@pytest.fixture
def train(
    witness: dict[str, Any], hello: Any, drawn: Any, client: TestClient, database: Database,
    make_person: Any, make_report: Any, claimed: str,
) -> Callable[..., dict[str, Any]]:  # fmt: skip
    """Has alice's machine train what is witnessed."""

    def run(**report: Any) -> dict[str, Any]:
        assert hello(witness["token"]).status_code == 200
        assert drawn() == [(witness["verification_id"], f"replay.{OWN}")]
        holder = Person("alice", witness["token"])
        replay = Replay(client, database, holder, claimed, witness["verification_id"])
        made = make_report(replay.seeds(), **report)
        made = replace(made, system=replace(made.system, worker=OWN))
        grant = replay.claim(worker=OWN)
        assert grant.status_code == 200, grant.text
        sent = replay.report(grant.json(), made)
        assert sent.status_code == 200, sent.text
        return dict(replay.view())

    return run


def row(client: TestClient) -> dict[str, Any]:
    (entry,) = client.get(BOARD).json()["entries"]
    return dict(entry)


def test_epochs_that_agree_on_the_submitters_machine_are_witnessed_and_rank_nobody(
    train: Any, client: TestClient, database: Database, claimed: str
) -> None:
    view = train()

    assert (view["state"], view["outcome"]) == ("done", "verified")
    assert view["reasons"][-1]["code"] == "witnessed"
    entry = row(client)
    assert (entry["evidence"], entry["check"], entry["rank"]) == ("claimed", "witnessed", None)
    assert (entry["witnessed_by"], entry["status"]) == ("olivia", "claimed")
    assert "claimed · witnessed by olivia" in words_of(client.get("/benchmarks/digits").text)
    assert "itnessed by olivia" in client.get(f"/submissions/{claimed}").text
    with database.read() as session:
        assert session.scalars(select(Pool)).all() == []
    records = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
    assert [one["records"] for one in records] == [[]] * len(records)


def test_it_rejects_nobody_and_its_proof_passes(
    train: Any, client: TestClient, witness: dict[str, Any]
) -> None:
    view = train(qualities=[10.0] * 8)

    assert view["outcome"] == "inconclusive"
    assert any(reason["weight"] == "rejects" for reason in view["reasons"])
    assert (row(client)["status"], row(client)["check"]) == ("claimed", "none")
    path = f"/api/v1/verifications/{witness['verification_id']}/proof"
    document = client.get(path, params={"format": "json"}).json()
    results = {check.name: check.result for check in check_proof(document, None)}
    assert results["verdict"] == "pass"


def test_its_worker_is_drawn_for_nothing_else_and_confirmed_by_nobody(
    witness: dict[str, Any], hello: Any, drawn: Any, client: TestClient, database: Database,
    olivia: Person, submit: Any, digits_submission: Any, bob: Person,
) -> None:  # fmt: skip
    other = submit(digits_submission, by=bob).json()["id"]
    path = f"/api/v1/submissions/{other}/verifications"
    asked = client.post(path, json={"reason": "wanted"}, headers=olivia.headers).json()
    hello(witness["token"])
    with database.read() as session:
        assert anything_to_send(session, alive_seconds=60)
    assert drawn() == [(witness["verification_id"], f"replay.{OWN}")]
    shown = client.get(f"/api/v1/workers/{OWN}").json()["worker"]
    assert (shown["state"], shown["witness_for"]) == ("idle", witness["submission_id"])
    confirm = client.post(f"/api/v1/workers/{OWN}/confirm", json={}, headers=olivia.headers)
    assert confirm.status_code == 409
    attempt = Replay(client, database, bob, other, asked["id"]).attempt_id
    with database.write() as session:
        session.get_one(Verification, asked["id"]).attempts[-1].sent_to = OWN
    refused = client.post(
        f"/api/v1/attempts/{attempt}/claim",
        json={"worker": OWN, "hardware_class": "cpu-test"},
        headers={"Authorization": f"Bearer {witness['token']}"},
    )
    assert refused.status_code == 403
    assert "its own submission" in refused.json()["detail"]


def test_no_other_worker_is_drawn_for_it(
    witness: dict[str, Any], hello: Any, drawn: Any, walter: Person, database: Database
) -> None:
    hello(walter.secret, "walter-1")
    with database.write() as session:
        session.get_one(WorkerRow, "walter-1").confirmed_at = utc_now()

    assert drawn() == []


def test_a_name_of_another_worker_of_its_owner_is_not_taken_with_it(
    witness: dict[str, Any], hello: Any, make_person: Any
) -> None:
    assert hello(make_person("alice", "worker").secret, "gpu-7").status_code == 200
    refused = hello(witness["token"], "gpu-7")

    assert refused.status_code == 403
    assert "give this worker another FINISHLINE_WORKER_NAME" in refused.json()["detail"]


def test_the_token_ends_after_24_hours_and_what_waits_with_it(
    witness: dict[str, Any], hello: Any, database: Database, client: TestClient
) -> None:
    with database.write() as session:
        token = session.get_one(Token, witness["token_id"])
        assert token.expires_at is not None
        assert timedelta(hours=23) < token.expires_at - utc_now() <= timedelta(hours=24)
        assert end_unwitnessed(session) == 0
        token.expires_at = utc_now()
    assert hello(witness["token"]).status_code == 401
    with database.write() as session:
        assert end_unwitnessed(session) == 1
    view = client.get(f"/api/v1/verifications/{witness['verification_id']}").json()
    assert (view["state"], view["outcome"]) == ("failed", "inconclusive")
    assert row(client)["check"] == "none"


def test_it_is_logged_with_its_consequence_and_never_rotated(
    witness: dict[str, Any], database: Database, client: TestClient, olivia: Person, claimed: str
) -> None:
    with database.read() as session:
        noted = session.scalars(
            select(AuditRecord).where(AuditRecord.action == "submission.witness")
        ).one()
        assert (noted.actor, noted.subject_id) == ("olivia", claimed)
        assert "claimed, witnessed by olivia" in noted.after["consequence"]
    path = f"/api/v1/tokens/{witness['token_id']}/rotate"
    assert client.post(path, json={}, headers=olivia.headers).status_code == 409


def test_a_measured_replay_is_not_held_up_by_it(
    witness: dict[str, Any], client: TestClient, olivia: Person, claimed: str
) -> None:
    path = f"/api/v1/submissions/{claimed}"
    asked = client.post(f"{path}/verifications", json={"reason": "ours"}, headers=olivia.headers)
    assert asked.status_code == 201, asked.text
    again = client.post(f"{path}/witness-token", json={}, headers=olivia.headers)
    assert again.status_code == 409


def test_nobody_witnesses_their_own_and_no_submitter_makes_a_token(
    client: TestClient, olivia: Person, alice: Person, submit: Any, digits_submission: Any
) -> None:
    own = submit(digits_submission, by=olivia).json()["id"]
    path = f"/api/v1/submissions/{own}/witness-token"

    assert client.post(path, json={}, headers=olivia.headers).status_code == 409
    assert client.post(path, json={}, headers=alice.headers).status_code == 403
