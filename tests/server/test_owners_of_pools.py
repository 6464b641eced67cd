"""How many owners' workers stand behind a measured time, and the records that this takes."""

from typing import Any

from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.database import Database
from server.base.models import Pool, Submission, User, WorkerRow
from server.people.audit import Administrator
from server.verifications.pool_runs import follow_owners
from server.verifications.worker_probes import confirm_worker
from tests.server.test_cross_checks import checks_of, train, workers  # noqa: F401  fixtures

BOARD = "/api/v1/leaderboards/digits"
RECORDS = "/api/v1/benchmarks/digits/records"


def row(client: TestClient) -> dict[str, Any]:
    (entry,) = client.get(BOARD).json()["entries"]
    return dict(entry)


def closed_records(client: TestClient) -> dict[str, Any]:
    divisions = client.get(RECORDS).json()["divisions"]
    return next(dict(one) for one in divisions if one["division"] == "closed")


def test_two_owners_stand_behind_a_time_that_another_owner_checked(
    replay: Any,
    workers: Any,  # noqa: F811
    train: Any,  # noqa: F811
    database: Database,
    client: TestClient,
) -> None:
    people = workers("anna", "bert")
    train(replay.verification_id, people["anna"])
    assert row(client)["owners"] == 0  # Nothing is measured yet.
    train(checks_of(database, replay.verification_id)[0], people["bert"])

    entry = row(client)
    assert (entry["evidence"], entry["owners"], entry["by_organisers"]) == ("measured", 2, False)
    view = client.get(f"/api/v1/submissions/{replay.submission_id}").json()
    assert (view["owners"], view["by_organisers"]) == (2, False)
    page = client.get("/benchmarks/digits").text
    assert "checked by 2 owners" in page
    assert "checked by 2 owners" in client.get(f"/submissions/{replay.submission_id}").text
    lines = client.get(f"{BOARD}.csv").text.splitlines()
    assert dict(zip(lines[0].split(","), lines[1].split(","), strict=True))["owners"] == "2"
    (record,) = closed_records(client)["records"]
    assert record["submission_id"] == replay.submission_id


def test_an_organisers_worker_alone_is_named_and_holds_records(
    replay: Any,
    workers: Any,  # noqa: F811
    train: Any,  # noqa: F811
    database: Database,
    client: TestClient,
) -> None:
    people = workers("anna")
    with database.write() as session:
        session.get_one(WorkerRow, "anna-1").confirmed_by = None
    train(replay.verification_id, people["anna"])

    entry = row(client)
    assert (entry["owners"], entry["by_organisers"]) == (1, True)
    assert "organisers&#39; worker" in client.get("/benchmarks/digits").text
    assert len(closed_records(client)["records"]) == 1


def test_one_owners_workers_alone_hold_no_record_until_an_organisers_stands_behind_them(
    replay: Any,
    workers: Any,  # noqa: F811
    train: Any,  # noqa: F811
    database: Database,
    client: TestClient,
) -> None:
    people = workers("anna")
    with database.write() as session:
        session.get_one(WorkerRow, "anna-1").confirmed_by = None
    train(replay.verification_id, people["anna"])
    anna = select(User).where(User.name == "anna")
    with database.write() as session:  # As if it had been her own worker from the start.
        session.get_one(WorkerRow, "anna-1").confirmed_by = session.scalars(anna).one().id
        session.flush()
        follow_owners(session, session.scalars(select(Pool)).one())

    entry = row(client)
    assert (entry["rank"], entry["owners"], entry["by_organisers"]) == (1, 1, False)
    assert "one owner" in client.get("/benchmarks/digits").text
    division = closed_records(client)
    assert division["records"] == []
    (without,) = division["not_records"]
    assert (without["submission_id"], without["holder"]) == (replay.submission_id, None)
    assert without["reason"] == (
        "measured only by one owner's workers: a record needs an organiser's worker "
        "or workers of two owners"
    )
    with database.write() as session:
        session.get_one(WorkerRow, "anna-1").confirmed_at = None
        confirm_worker(session, Administrator(), "anna-1", reason=None)
    (record,) = closed_records(client)["records"]
    with database.read() as session:
        assert session.get_one(Submission, record["submission_id"]).pool_id is not None
        pool = session.scalars(select(Pool)).one()
        assert record["date"] == pool.attested_at.isoformat() > pool.measured_at.isoformat()
