"""A record falls to fresh runs that win a duel of ten pairs, one challenge at a time."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import select

from server.base.board_versions import raise_board_version
from server.base.database import Database
from server.base.models import Pool, Submission, User, Verification, WorkerRow
from tests.server.test_fresh_runs import fresh_of, measure  # noqa: F401  a fixture

RECORDS = "/api/v1/benchmarks/digits/records"


def closed(client: TestClient) -> dict[str, Any]:
    """The records of the closed division."""
    divisions = client.get(RECORDS).json()["divisions"]
    found: dict[str, Any] = next(one for one in divisions if one["division"] == "closed")
    return found


@pytest.fixture
def challenge(measure: Any, database: Database) -> tuple[str, str, str]:  # noqa: F811
    """A holder, a challenger whose fresh runs beat it, and the duel that the server queued."""
    holder, challenger = measure("cpu-a", 0.12), measure("cpu-b", 0.10)
    with database.write() as session:  # As if both were settings of one class of worker.
        submission = session.get_one(Submission, holder)
        submission.system = submission.system | {"hardware_class": "cpu-b"}
        session.get_one(Pool, submission.pool_id).hardware_class = "cpu-b"
    measure.pools.train(challenger, fresh_of(database, challenger).id, "cpu-b", 0.10)
    with database.read() as session:
        (duel,) = session.scalars(select(Verification).where(Verification.kind == "duel")).all()
        assert (duel.submission_id, duel.against_id) == (challenger, holder)
    return holder, challenger, duel.id


@pytest.fixture
def fight(
    challenge: tuple[str, str, str], replay: Any, make_report: Callable[..., Any]
) -> Callable[[float, float], None]:
    """Has the duel trained: seconds an epoch of the challenger, and of the holder."""

    def run(challenging: float, holding: float) -> None:
        replay.submission_id, replay.verification_id = challenge[1:]
        runs = []
        for index, seed in enumerate(replay.seeds()):
            pace = challenging if index % 4 in (0, 3) else holding
            (one,) = make_report([seed], seconds_per_epoch=pace * (1 + 0.002 * index)).runs
            runs.append(replace(one, index=index))
        system = replace(make_report([]).system, hardware_class="cpu-b")
        report = replace(make_report([]), runs=runs, system=system)
        sent = replay.report(replay.claim().json(), report)
        assert sent.status_code == 200, sent.text

    return run


def test_fresh_runs_that_beat_the_holder_have_their_duel_queued(
    challenge: tuple[str, str, str], client: TestClient
) -> None:
    holder, challenger, duel = challenge
    view = client.get(f"/api/v1/verifications/{duel}").json()

    assert (view["state"], view["runs_planned"]) == ("queued", 20)
    assert view["duel"]["order"][:4] == ["challenger", "holder", "holder", "challenger"]
    division = closed(client)
    assert [record["submission_id"] for record in division["records"]] == [holder]
    (waiting,) = division["not_records"]
    assert (waiting["submission_id"], waiting["reason"]) == (
        challenger,
        "its duel with the holder is pending",
    )


def test_a_duel_that_is_won_takes_the_record_on_its_date(
    challenge: tuple[str, str, str], fight: Any, client: TestClient
) -> None:
    holder, challenger, duel = challenge
    fight(0.10, 0.12)
    last = closed(client)["records"][-1]

    assert (last["submission_id"], last["beaten"], last["duel"]) == (challenger, holder, duel)
    assert last["p_value"] < 0.01
    assert last["evidence"] == "measured"
    assert client.get(f"/api/v1/pools/{last['pool']}").json()["submissions"] == [challenger]
    ended = client.get(f"/api/v1/verifications/{duel}").json()["ended_at"]
    assert last["date"][:19] == ended[:19]


def test_a_lost_duel_may_be_asked_for_again_after_thirty_days(
    challenge: tuple[str, str, str], fight: Any, client: TestClient, database: Database, olivia: Any
) -> None:
    holder, challenger, duel = challenge
    body = {"challenger": challenger, "holder": holder, "pairs": 10}
    fight(0.12, 0.12)
    assert len(closed(client)["records"]) == 1
    assert "must be below 0.01" in closed(client)["not_records"][0]["reason"]

    refused = client.post("/api/v1/duels", json=body, headers=olivia.headers)
    assert refused.status_code == 409
    assert f"Duel {duel} for this record was lost on" in refused.json()["detail"]
    shorter = client.post("/api/v1/duels", json=body | {"pairs": 2}, headers=olivia.headers)
    assert shorter.status_code == 201  # It decides about no record.
    cancel = f"/api/v1/verifications/{shorter.json()['id']}/cancel"
    client.post(cancel, headers=olivia.headers)
    with database.write() as session:
        session.get_one(Verification, duel).ended_at -= timedelta(days=31)  # type: ignore[operator]
    again = client.post("/api/v1/duels", json=body, headers=olivia.headers)
    assert again.status_code == 201, again.text


def test_one_challenge_of_a_record_is_open_at_a_time(
    challenge: tuple[str, str, str],
    client: TestClient,
    database: Database,
    olivia: Any,
    replay: Any,
) -> None:
    holder, _, duel = challenge
    with database.write() as session:  # Another submission of the same class.
        other = session.get_one(Submission, replay.submission_id)
        other.system = other.system | {"hardware_class": "cpu-b"}
        other_id = (
            session.scalars(
                select(Submission.id).where(Submission.id.not_in(challenge[:2]))
            ).first()
            or other.id
        )
        third = session.get_one(Submission, other_id)
        third.system = third.system | {"hardware_class": "cpu-b"}
    body = {"challenger": other_id, "holder": holder, "pairs": 10}
    refused = client.post("/api/v1/duels", json=body, headers=olivia.headers)

    assert refused.status_code == 409
    assert f"Duel {duel} challenges this record since" in refused.json()["detail"]


def test_a_duel_on_a_worker_that_is_not_the_organisers_decides_about_no_record(
    challenge: tuple[str, str, str],
    fight: Callable[[float, float], None],
    client: TestClient,
    database: Database,
    olivia: Any,
) -> None:
    holder = challenge[0]
    fight(0.10, 0.12)
    assert [one["submission_id"] for one in closed(client)["records"]][-1] == challenge[1]
    with database.write() as session:
        worker = session.get_one(WorkerRow, "walter-1")
        organiser = session.scalars(select(User).where(User.name == olivia.name)).one()
        worker.confirmed_by = organiser.id
        raise_board_version(session, "digits")
    assert [one["submission_id"] for one in closed(client)["records"]] == [holder]
