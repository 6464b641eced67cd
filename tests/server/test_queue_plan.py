"""One plan of the queue serves all who ask, and another is made as soon as the queue changes."""

from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from sqlalchemy import insert, select

from finishline.rules.verification.fair_queue import Waiting, fair_order
from server.base.database import Database
from server.base.models import Attempt, User, Verification
from server.base.viewer import ORGANISER
from server.verifications import forecast as plan
from server.verifications.queue import read_place, read_queue
from server.verifications.work import waiting_attempts

ALIVE_SECONDS = 60.0


@pytest.fixture
def plans(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many attempts were placed by each plan that was made; one is kept for long."""
    made: list[int] = []

    def noted(session: Any) -> Any:
        found = waiting_attempts(session)
        made.append(len(found))
        return found

    monkeypatch.setattr(plan, "KEEP_SECONDS", 600.0)
    monkeypatch.setattr(plan, "waiting_attempts", noted)
    return made


@pytest.fixture
def waiting(replay: Any, database: Database) -> dict[str, Attempt]:
    """Thirty attempts beside the first one, of several submitters, by verification."""
    with database.write() as session:
        users = list(session.scalars(select(User.id)))
        of_first = {Verification: replay.verification_id, Attempt: replay.attempt_id}
        columns = {
            table: {c.key: getattr(session.get_one(table, key), c.key) for c in table.__table__.c}
            for table, key in of_first.items()
        }
        like = columns[Attempt]
        ids = [f"w{number}" for number in range(30)]
        session.execute(insert(Verification), [columns[Verification] | {"id": i} for i in ids])
        own = [
            {
                "id": f"a{name}",
                "verification_id": name,
                "submitter_id": users[number**2 % len(users)],
                "by_organiser": number % 3 == 0,
                "asked_at": like["asked_at"] + timedelta(seconds=number * 7 % 30),
            }
            for number, name in enumerate(ids)
        ]
        session.execute(insert(Attempt), [like | each for each in own])
    with database.read(ORGANISER) as session:
        return {row.verification_id: row for row in session.scalars(select(Attempt)).unique()}


def test_every_place_is_by_fair_order_and_told_from_one_plan(
    waiting: dict[str, Attempt],
    database: Database,
    plans: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    order = fair_order(
        Waiting(row.id, row.submitter_id or 0, row.by_organiser, row.asked_at)
        for row in waiting.values()
    )
    verifications = {row.id: name for name, row in waiting.items()}
    places = []
    for one in order:
        with database.read() as session:
            place = read_place(session, verifications[one.attempt_id], alive_seconds=ALIVE_SECONDS)
        assert place is not None
        line, item = place
        assert (line.waiting_count, line.under_embargo, line.waiting) == (31, 0, [item])
        places.append(item)
    assert [item.position for item in places] == list(range(1, 32))
    assert plans == [31]

    monkeypatch.setattr(plan, "KEEP_SECONDS", 0.0)
    with database.read() as session:
        queue = read_queue(session, alive_seconds=ALIVE_SECONDS)
    assert queue.classes[0].waiting == places
    assert (queue.waiting, plans) == (31, [31, 31])


def test_a_change_of_the_queue_is_seen_at_once(
    replay: Any,
    waiting: dict[str, Attempt],
    client: TestClient,
    olivia: Any,
    plans: list[int],
) -> None:
    def place() -> tuple[str, int]:
        queue = client.get("/api/v1/queue").json()
        (line,) = queue["classes"]
        assert f"of {line['waiting_count']}" in client.get(f"/verifications/{last}").text
        return line["waiting"][0]["verification_id"], line["waiting_count"]

    listed = client.get("/api/v1/queue").json()["classes"][0]["waiting"]
    first, second, last = (listed[index]["verification_id"] for index in (0, 1, -1))
    assert place() == (first, 31)
    assert plans == [31]
    cancelled = client.post(f"/api/v1/verifications/{first}/cancel", headers=olivia.headers)
    assert cancelled.status_code == 200, cancelled.text
    assert place() == (second, 30)
    paused = client.post(
        "/api/v1/queue/pause", json={"reason": "new cooling"}, headers=olivia.headers
    )
    assert paused.status_code == 200, paused.text
    assert "new cooling" in client.get(f"/verifications/{last}").text
    assert "Place in the queue" not in client.get(f"/verifications/{first}").text
    assert plans == [31, 30, 30]
