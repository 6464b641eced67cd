"""Withdrawing a submission: who may, what it leaves, what stays."""

import csv
import io
from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import Database
from server.base.models import AuditRecord, Token

pytestmark = pytest.mark.usefixtures("claims_are_numbered", "shown_claims")

REASON = {"reason": "trained on the <test> set"}


@pytest.fixture
def withdraw(client: TestClient, alice: Any) -> Callable[..., Any]:
    """Withdraws a submission as alice, or as somebody else."""

    def send(submission_id: str, *, by: Any = None, body: Any = REASON) -> Any:
        address = f"/api/v1/submissions/{submission_id}/withdrawal"
        return client.post(address, json=body, headers=(by or alice).headers)

    return send


def board(client: TestClient, query: str = "") -> dict[str, Any]:
    """The entries of the digits board, by submission."""
    found = client.get(f"/api/v1/leaderboards/digits{query}").json()
    return {entry["submission_id"]: entry for entry in found["entries"]}


@pytest.mark.usefixtures("shown_claims")
def test_a_withdrawn_submission_ranks_nowhere_and_stays_readable(
    replay: Any,
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    withdraw: Callable[..., Any],
    make_report: Callable[..., Any],
    alice: Any,
    olivia: Any,
) -> None:
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    first, second = replay.submission_id, submit(digits_submission).json()["id"]
    assert set(board(client)) == {first, second}
    assert first in client.get("/feed.atom").text
    assert replay.verification_id in client.get("/").text
    assert replay.verification_id in client.get("/feed.atom").text
    records = client.get("/api/v1/benchmarks/digits/records").text
    assert first in records

    answer = withdraw(first)
    assert answer.status_code == 200, answer.text
    assert answer.json()["withdrawal"]["by"] == "alice"
    assert set(board(client)) == {second}
    assert set(board(client, "?withdrawn=show")) == {first, second}
    shown = board(client, "?withdrawn=show")[first]
    assert (shown["rank"], shown["unranked_reason"], shown["withdrawn"]) == (
        None,
        "withdrawn",
        True,
    )
    assert board(client, "?withdrawn=show&target=90")[first]["rank"] is None
    text = client.get("/api/v1/leaderboards/digits.csv?withdrawn=show").text
    rows = {row["submission_id"]: row["withdrawn"] for row in csv.DictReader(io.StringIO(text))}
    assert rows == {first: "True", second: "False"}
    assert first not in client.get("/api/v1/benchmarks/digits/records").text
    for address in (
        "/feed.atom",
        "/",
        "/benchmarks/digits",
        "/api/v1/benchmarks/digits/convergence",
    ):
        assert first not in client.get(address).text, address
    assert replay.verification_id not in client.get("/").text + client.get("/feed.atom").text
    assert "not ranked: withdrawn" in client.get("/benchmarks/digits?withdrawn=show").text

    page = client.get(f"/submissions/{first}").text
    assert "trained on the &lt;test&gt; set" in page
    assert "Withdraw this submission" not in page
    listed = {item["id"]: item for item in client.get("/api/v1/submissions").json()["submissions"]}
    assert listed[first]["withdrawal"]["reason"] == REASON["reason"]
    assert listed[first]["result"] == client.get(f"/api/v1/submissions/{first}").json()["result"]
    runs = client.get("/api/v1/benchmarks/digits/runs.json").json()["runs"]
    assert {run["submission_id"]: run["withdrawn"] for run in runs} == {first: True, second: False}
    assert client.get(f"/api/v1/submissions/{first}/runs/0/log").status_code == 200
    assert client.get(f"/api/v1/verifications/{replay.verification_id}/proof").status_code == 200
    assert "withdrawn" in client.get(f"/submissions/{first}/badge.svg").text
    assert "withdrawn" in client.get(f"/compare?ids={first},{second}").text

    back = f"/api/v1/submissions/{first}/reinstatement"
    assert client.post(back, json=REASON, headers=alice.headers).status_code == 403
    assert client.post(back, json=REASON, headers=olivia.headers).status_code == 200
    assert set(board(client)) == {first, second}
    assert client.post(back, json=REASON, headers=olivia.headers).status_code == 409


def test_what_has_started_goes_on_what_waits_is_cancelled_and_nothing_more_is_asked_for(
    replay: Any,
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    withdraw: Callable[..., Any],
    make_report: Callable[..., Any],
    olivia: Any,
    database: Database,
) -> None:
    other = submit(digits_submission).json()["id"]
    sides = {"challenger": other, "holder": replay.submission_id}
    duel = client.post("/api/v1/duels", json=sides, headers=olivia.headers).json()["id"]
    seeds = replay.seeds()
    grant = replay.claim().json()
    assert withdraw(replay.submission_id).status_code == 200
    assert replay.view()["state"] == "running"
    assert client.get(f"/api/v1/verifications/{duel}").json()["state"] == "cancelled"
    assert replay.report(grant, make_report(seeds)).status_code == 200
    assert set(board(client)) == {other}
    for address, body in (
        (f"/api/v1/submissions/{replay.submission_id}/verifications", {}),
        (f"/api/v1/submissions/{replay.submission_id}/verifications", {"kind": "latency"}),
        ("/api/v1/duels", sides),
    ):
        answer = client.post(address, json=body, headers=olivia.headers)
        assert answer.status_code == 409, address
        assert "withdrawn" in answer.json()["detail"]
    batch = {"submissions": [replay.submission_id], "reason": "all again"}
    answer = client.post("/api/v1/verifications/batch", json=batch, headers=olivia.headers)
    assert [item["why"] for item in answer.json()["skipped"]] == ["It is withdrawn."]
    with database.read() as session:
        kept = session.scalars(select(AuditRecord).order_by(AuditRecord.id.desc())).first()
        assert kept is not None
        assert kept.after is not None
        assert (kept.actor, kept.action) == ("alice", "submission.withdraw")
        assert kept.after["cancelled"] == [duel]


def test_only_its_submitter_and_organisers_withdraw_it(
    submit: Callable[..., Any],
    digits_submission: Any,
    client: TestClient,
    withdraw: Callable[..., Any],
    bob: Any,
    walter: Any,
    olivia: Any,
) -> None:
    submission_id = submit(digits_submission).json()["id"]
    address = f"/api/v1/submissions/{submission_id}/withdrawal"
    assert client.post(address, json=REASON).status_code == 401
    for person in (bob, walter):
        assert withdraw(submission_id, by=person).status_code == 403
    assert withdraw("nothing").status_code == 404
    for body in (
        {},
        {"reason": ""},
        {"reason": "  "},
        {"reason": "r", "undo": True},
        {"reason": 7},
    ):
        assert withdraw(submission_id, body=body).status_code == 422
    assert set(board(client)) == {submission_id}
    assert withdraw(submission_id, by=olivia).status_code == 200
    again = withdraw(submission_id)
    assert (again.status_code, again.json()["detail"]) == (
        409,
        f"Submission {submission_id} is withdrawn already.",
    )
    back = client.post(
        "/api/v1/submissions/nothing/reinstatement", json=REASON, headers=olivia.headers
    )
    assert back.status_code == 404


def test_an_organisers_token_that_may_only_submit_withdraws_nothing_of_others(
    client: TestClient, submit: Any, digits_submission: Any, make_person: Any, database: Database
) -> None:
    submission_id = submit(digits_submission).json()["id"]
    narrow = make_person("nora", "organiser")
    with database.write() as session:
        for token in session.query(Token).filter(Token.user.has(name="nora")):
            token.scopes = ["read", "submit"]
    address = f"/api/v1/submissions/{submission_id}/withdrawal"
    answer = client.post(address, json={"reason": "a try"}, headers=narrow.headers)
    assert answer.status_code == 403, answer.text
    assert client.get(f"/api/v1/submissions/{submission_id}").json()["withdrawal"] is None
