"""An owner whose workers fail again and again is paused, and the organisers are told."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import utc_now
from server.base.models import User, WorkerRow
from server.verifications.overdue import expire_leases
from tests.server.conftest import WORKER_SYSTEM, Person

WHY = "3 of the last 3 attempts of its owner's workers failed"


def add_workers(replay: Any, *names: str, confirmed_by: str | None) -> None:
    """Walter's workers, confirmed by an organiser, or by the server where none is named."""
    with replay.database.write() as session:
        people = {user.name: user.id for user in session.query(User).all()}
        for name in names:
            session.add(
                WorkerRow(
                    name=name,
                    user_id=people["walter"],
                    hardware_class=WORKER_SYSTEM.hardware_class,
                    state="idle",
                    system={},
                    first_seen_at=utc_now(),
                    last_seen_at=utc_now(),
                    confirmed_at=utc_now(),
                    confirmed_by=None if confirmed_by is None else people[confirmed_by],
                )
            )


def lose_attempts(replay: Any, worker: str, times: int) -> None:
    for _ in range(times):
        assert replay.claim(worker=worker).status_code == 200
        replay.change(replay.attempt_id, lease_expires_at=utc_now() - timedelta(seconds=1))
        with replay.database.write() as session:
            assert expire_leases(session) == 1


def held(replay: Any, name: str) -> tuple[str | None, str | None]:
    with replay.database.read() as session:
        row = session.get_one(WorkerRow, name)
        return row.held, row.held_because


@pytest.fixture
def lost(replay: Any) -> Any:
    """Three attempts lost by one of two workers of an owner who is no organiser."""
    add_workers(replay, "walter-1", "walter-2", confirmed_by="olivia")
    lose_attempts(replay, "walter-1", 2)
    assert held(replay, "walter-1") == (None, None)
    lose_attempts(replay, "walter-1", 1)
    return replay


def test_three_failures_in_ten_pause_all_workers_of_an_owner(
    lost: Any, client: TestClient, olivia: Person
) -> None:
    assert held(lost, "walter-1") == held(lost, "walter-2") == ("paused", WHY)
    log = client.get("/api/v1/audit", headers=olivia.headers).json()
    told = [one for one in log["records"] if one["action"] == "worker.pause"]
    assert {(one["actor"], one["subject_id"], one["reason"]) for one in told} == {
        ("failures", "walter-1", WHY),
        ("failures", "walter-2", WHY),
    }


def test_failures_before_a_resumption_are_forgiven(
    lost: Any, client: TestClient, olivia: Person
) -> None:
    for name in ("walter-1", "walter-2"):
        answer = client.post(
            f"/api/v1/workers/{name}/resume", json={"reason": "mended"}, headers=olivia.headers
        )
        assert answer.status_code == 200, answer.text
    verification = client.post(
        f"/api/v1/submissions/{lost.submission_id}/verifications",
        json={"reason": "again"},
        headers=olivia.headers,
    ).json()
    lost.verification_id = verification["id"]
    lose_attempts(lost, "walter-1", 2)
    assert held(lost, "walter-1") == (None, None)


def test_a_worker_of_the_organisers_is_left_to_them(replay: Any) -> None:
    add_workers(replay, "walter-1", confirmed_by=None)
    lose_attempts(replay, "walter-1", 3)
    assert held(replay, "walter-1") == (None, None)
