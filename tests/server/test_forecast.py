"""The forecast of the queue: places and expected starts."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert, select

from server.base.database import utc_now
from server.base.models import Attempt, User, Verification
from server.base.visibility import ORGANISER
from server.verifications.queue import NOTHING_ENDED, fair_order, get_queue, read_place
from tests.support.workers import say_hello


@pytest.fixture
def waiting(replay, database):
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


def test_every_place_is_by_fair_order_and_told(waiting, database):
    order = fair_order(waiting.values())
    places = []
    for one in order:
        with database.read() as session:
            place = read_place(session, one.verification_id)
        assert place is not None
        line, item = place
        assert (line.waiting_count, line.under_embargo, line.waiting) == (31, 0, [item])
        places.append(item)
    assert [item.position for item in places] == list(range(1, 32))
    with database.read() as session:
        queue = get_queue(session)
    assert queue.classes[0].waiting == places
    assert queue.waiting == 31


def test_a_change_of_the_queue_is_seen_at_once(replay, waiting, client, olivia):
    def place():
        queue = client.get("/api/v1/queue").json()
        (line,) = queue["classes"]
        assert f"of {line['waiting_count']}" in client.get(f"/verifications/{last}").text
        return line["waiting"][0]["verification_id"], line["waiting_count"]

    listed = client.get("/api/v1/queue").json()["classes"][0]["waiting"]
    first, second, last = (listed[index]["verification_id"] for index in (0, 1, -1))
    assert place() == (first, 31)
    cancelled = client.post(f"/api/v1/verifications/{first}/cancellation", headers=olivia.headers)
    assert cancelled.status_code == 200, cancelled.text
    assert place() == (second, 30)
    paused = client.patch(
        "/api/v1/queue", json={"paused": True, "reason": "new cooling"}, headers=olivia.headers
    )
    assert paused.status_code == 200, paused.text
    assert "new cooling" in client.get(f"/verifications/{last}").text
    assert "Place in the queue" not in client.get(f"/verifications/{first}").text


def test_starts_share_what_ended_lately(replay, waiting, client, database, walter):
    say_hello(client, walter)
    with database.write() as session:
        for took, name in zip((60, 300, 600), ("a", "b", "c"), strict=True):
            ended = utc_now()
            done = {"state": "done", "worker": "walter-1", "ended_at": ended}
            done |= {"started_at": ended - timedelta(seconds=took)}
            like = waiting[replay.verification_id]
            columns = {c.key: getattr(like, c.key) for c in Attempt.__table__.c}
            session.execute(insert(Attempt), columns | {"id": name, "number": 10 + took} | done)

    def starts():
        (line,) = client.get("/api/v1/queue").json()["classes"]
        now = datetime.fromisoformat(client.get("/api/v1/queue").json()["as_of"])
        found = [datetime.fromisoformat(one["expected_start"]) for one in line["waiting"]]
        return [round((each - now).total_seconds() / 60) for each in found[:4]]

    assert starts() == [0, 5, 10, 15]
    say_hello(client, walter, state="busy")
    assert starts() == [5, 10, 15, 20]
    say_hello(client, walter, worker="walter-2")
    assert starts()[:3] == [0, 2, 5]


def test_unknown_start_says_why(waiting, client, walter, olivia):
    def reason(place):
        (line,) = client.get("/api/v1/queue").json()["classes"]
        return line["waiting"][place]["why_unknown"]

    assert "No worker is connected" in reason(0)
    say_hello(client, walter)
    assert (reason(0), reason(1)) == (None, NOTHING_ENDED)
    paused = client.patch(
        "/api/v1/workers/walter-1", json={"paused": True, "reason": "dust"}, headers=olivia.headers
    )
    assert paused.status_code == 200, paused.text
    assert "Every connected worker is paused" in reason(0)
