"""A cancellation hides a replay's result; it does not cut its sealed runs short."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from finishline.rules.proof.check import check_proof
from server.base.database import Database, utc_now
from server.verifications.overdue import expire_leases
from tests.support.streams import stream_report

OWN = 2


@pytest.fixture
def cancel(replay: Any, client: TestClient, olivia: Any) -> Any:
    """Cancels the replay as an organiser."""

    def send() -> Any:
        path = f"/api/v1/verifications/{replay.verification_id}/cancel"
        return client.post(path, headers=olivia.headers)

    return send


def pooled(replay: Any) -> list[Any]:
    """The runs of the submission's pool."""
    pool_id = replay.pool_id()
    return [] if pool_id is None else replay.client.get(f"/api/v1/pools/{pool_id}").json()["runs"]


def test_the_runs_under_way_are_finished_and_count(
    replay: Any, cancel: Any, make_report: Any, client: TestClient, olivia: Any
) -> None:
    grant = replay.claim().json()
    answer = cancel()
    assert answer.status_code == 200, answer.text
    assert (answer.json()["state"], answer.json()["seeds"]) == ("running", None)
    assert answer.json()["cancelled_at"] is not None
    assert replay.post(grant, []).json() == {"proceed": True, "reason": None}
    report = make_report(replay.seeds())
    sent = replay.report(grant, report)

    assert (sent.status_code, sent.json()["state"], sent.json()["outcome"]) == (
        200,
        "cancelled",
        None,
    )
    view = replay.view()
    assert (view["state"], view["outcome"], view["report"]) == ("cancelled", None, None)
    assert view["attempts"][-1]["state"] == "done"
    assert replay.status() == "claimed"
    assert [run["seconds"] for run in pooled(replay)] == [
        run.tta_seconds for run in report.runs[OWN:]
    ]
    (entry,) = client.get("/api/v1/leaderboards/digits").json()["entries"]
    assert (entry["evidence"], entry["rank"]) == ("claimed", None)
    audit = "/api/v1/audit?action=verification.cancel"
    (logged,) = client.get(audit, headers=olivia.headers).json()["records"]
    assert logged["after"]["consequence"] == "no verdict; the runs under way are finished and count"


def test_it_is_cancelled_once(replay: Any, cancel: Any) -> None:
    replay.claim()

    assert cancel().status_code == 200
    again = cancel()
    assert again.status_code == 409
    assert "cancelled already" in again.json()["detail"]


def test_nothing_more_is_tried_and_what_was_finished_counts(
    replay: Any, cancel: Any, client: TestClient, walter: Any, make_report: Any, database: Database
) -> None:
    report = make_report(replay.seeds())
    hello = {"system": vars(report.system), "state": "idle"}
    client.post("/api/v1/workers/hello", json=hello, headers=walter.headers)
    grant = replay.claim().json()
    stream_report(database, grant["attempt_id"], report)
    cancel()
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(seconds=1))
    with database.write() as session:
        assert expire_leases(session) == 1

    view = replay.view()
    assert (view["state"], [one["state"] for one in view["attempts"]]) == ("cancelled", ["lost"])
    assert replay.status() == "claimed"
    assert len(pooled(replay)) == len(report.runs) - OWN


def test_its_proof_holds(replay: Any, cancel: Any, make_report: Any) -> None:
    grant = replay.claim().json()
    cancel()
    replay.report(grant, make_report(replay.seeds()))
    path = f"/api/v1/verifications/{replay.verification_id}/proof"
    document = replay.client.get(path, params={"format": "json"}).json()

    assert "fail" not in {check.result for check in check_proof(document, None)}
    assert document["report"] is None
    assert document["attempts"][0]["posted"]


def test_one_that_waits_is_cancelled_at_once(replay: Any, cancel: Any) -> None:
    view = cancel().json()

    assert (view["state"], view["attempts"][0]["state"]) == ("cancelled", "cancelled")
    assert view["cancelled_at"] == view["ended_at"]
