"""The forecast of the queue: places, expected starts on a line of minutes, and their cache."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select

from server.base.models import Attempt, User, Verification
from server.base.viewer import ORGANISER
from server.verifications import forecast as plan
from server.verifications.fair_queue import Turns, Waiting, fair_order
from server.verifications.forecast import (
    Taker,
    busy_taker,
    expected_starts,
    typical_seconds,
)
from server.verifications.queue import read_place, read_queue
from server.verifications.work import Queued, Work, waiting_attempts

ALIVE_SECONDS = 60.0


@pytest.fixture
def plans(monkeypatch):
    """How many attempts were placed by each plan that was made; one is kept for long."""
    made = []

    def noted(session):
        found = waiting_attempts(session)
        made.append(len(found))
        return found

    monkeypatch.setattr(plan, "KEEP_SECONDS", 600.0)
    monkeypatch.setattr(plan, "waiting_attempts", noted)
    return made


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


def test_every_place_is_by_fair_order_and_told_from_one_plan(waiting, database, plans, monkeypatch):
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


def test_a_change_of_the_queue_is_seen_at_once(replay, waiting, client, olivia, plans):
    def place():
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


NOON = datetime(2026, 11, 20, 12, tzinfo=UTC)
REPLAY = Work("digits", "replay")
TEN_MINUTES = {(REPLAY, "cpu"): 600.0, (REPLAY, "gpu"): 60.0}


def minutes(count):
    return NOON + timedelta(minutes=count)


def test_an_attempt_takes_the_median_of_those_before_it():
    ended = [(REPLAY, "cpu", took) for took in (10.0, 100.0, 12.0)] + [(REPLAY, "gpu", 3.0)]
    assert typical_seconds(ended) == {(REPLAY, "cpu"): 12.0, (REPLAY, "gpu"): 3.0}


def queued(*wants, whose=1):
    """What waits for each class, the oldest first."""
    return [
        Queued(Waiting(f"{whose}-{number}", whose, False, minutes(number)), work, wanted)
        for number, (work, wanted) in enumerate(wants)
    ]


def foretell(waiting, takers, turns=None):
    """The names of what waits, in the order it starts, and when."""
    present = {taker.hardware_class for taker in takers}

    def may_take(hardware_class, wanted):
        return wanted in (None, hardware_class) or wanted not in present

    placed = expected_starts(
        waiting, takers, TEN_MINUTES, turns=turns or {}, may_take=may_take, now=NOON
    )
    return [(one.turn.attempt_id, expected) for one, expected in placed]


def test_each_starts_on_whichever_worker_of_its_class_is_free_first():
    busy = busy_taker(Taker("b", "cpu", NOON), REPLAY, since=minutes(-4), typical=TEN_MINUTES)
    late = busy_taker(Taker("b", "cpu", NOON), REPLAY, since=minutes(-30), typical=TEN_MINUTES)
    assert late.free_at == NOON  # What takes longer than usual may end at any moment.
    takers = [Taker("a", "cpu", NOON), busy, Taker("g", "gpu", NOON)]
    starts = foretell(queued(*[(REPLAY, "cpu")] * 4), takers)
    # a takes the first, b is free at minute 6, a again at 10, b again at 16.
    assert [each.start for _, each in starts] == [NOON, minutes(6), minutes(10), minutes(16)]


def test_submitters_take_turns_and_who_had_one_waits():
    waiting = [*queued(*[(REPLAY, "cpu")] * 3), *queued((REPLAY, "cpu"), whose=2)]
    starts = foretell(waiting, [Taker("a", "cpu", NOON)])
    assert [name for name, _ in starts] == ["1-0", "2-0", "1-1", "1-2"]
    turns = {"cpu": Turns(last={(False, 1): 1}, count=1)}
    starts = foretell(waiting, [Taker("a", "cpu", NOON)], turns)
    assert [name for name, _ in starts] == ["2-0", "1-0", "1-1", "1-2"]
    assert [each.start for _, each in starts] == [minutes(10 * place) for place in range(4)]


def test_what_was_sent_has_had_its_turn_and_goes_first():
    waiting = queued(*[(REPLAY, "cpu")] * 3)
    waiting[2] = replace(waiting[2], sent_to="a")
    starts = foretell(waiting, [Taker("a", "cpu", NOON)])
    assert [name for name, _ in starts] == ["1-2", "1-0", "1-1"]


def test_what_no_worker_of_its_class_can_take_goes_to_any():
    takers = [Taker("g", "gpu", minutes(2))]
    starts = foretell(queued((REPLAY, "tpu"), (REPLAY, None)), takers)
    assert [each.start for _, each in starts] == [minutes(2), minutes(3)]


def test_what_nobody_can_know_is_unknown_and_says_why():
    duel = Work("digits", "duel")
    first, second = foretell(queued((duel, "cpu"), (REPLAY, "cpu")), [Taker("a", "cpu", NOON)])
    assert first[1].start == NOON
    assert second[1].start is None
    assert "no head-to-head of digits on cpu has ended yet" in (second[1].why_unknown or "")
    ((_, alone),) = foretell(queued((REPLAY, "cpu")), [])
    assert (alone.start, alone.why_unknown) == (
        None,
        "no worker that could take it is connected",
    )
