"""The loop that sends what is due, with a broker that only notes what it was given."""

import logging
import threading
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import insert, select
from sqlalchemy.exc import OperationalError

from perf.dispatch import furthest_from_next
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.models import Attempt, Verification, WorkerRow
from server.verifications.dispatch import Dispatcher, seconds_ahead
from server.verifications.sweep import end_waited
from tests.support.processes import wait_for

LATE = timedelta(hours=1)


@dataclass
class NotingBroker:
    sent: list[tuple[str, str]] = field(default_factory=list)
    error: Exception | None = None
    tries: int = 0

    def send_attempt(self, attempt_id, worker):
        self.tries += 1
        if self.error is not None:
            raise self.error
        self.sent.append((attempt_id, worker))

    def close(self):
        """Nothing to close."""


@pytest.fixture
def broker():
    return NotingBroker()


@pytest.fixture
def dispatcher(database, settings, broker):
    return Dispatcher(database, broker, settings)


@pytest.fixture
def verification_of(database):
    def find(attempt_id):
        with database.read() as session:
            return session.get_one(Attempt, attempt_id).verification_id

    return find


@pytest.mark.parametrize(
    ("heard", "state", "ended"),
    [(LATE, "idle", 0), (LATE, "stopping", 0), (timedelta(days=8), "idle", 1)],
)
def test_attempt_ends_after_a_week_without_a_worker(heard, state, ended, replay, hello, database):
    now = utc_now()
    hello(state=state)
    with database.write() as session:
        session.get_one(WorkerRow, "walter-1").last_seen_at = now - heard
    assert end_waited(database) == 0
    replay.change(replay.attempt_id, asked_at=now - timedelta(days=7, minutes=1))

    assert end_waited(database) == ended
    assert replay.view()["state"] == ("failed" if ended else "queued")


def test_worker_is_sent_an_attempt_once(replay, dispatcher, broker, hello, database, settings):
    hello()
    dispatcher.run_once()
    Dispatcher(database, broker, settings).run_once()
    assert broker.sent == [(replay.attempt_id, "walter-1")]

    assert replay.claim().status_code == 200
    replay.change(replay.attempt_id, send_after=utc_now() - LATE)
    dispatcher.run_once()
    assert len(broker.sent) == 1


def test_worker_that_polls_is_sent_nothing(replay, dispatcher, broker, hello):
    hello(polls=True)
    dispatcher.run_once()
    assert broker.tries == 0
    assert replay.claim().status_code == 200


def test_lease_brings_the_whole_job(replay):
    job = replay.claim().json()["job"]
    assert job["attempt_id"] == replay.attempt_id
    assert job["verification_id"] == replay.verification_id
    assert job["submission_id"] == replay.submission_id
    assert [each["seed"] for each in job["trainings"]] == replay.seeds()
    assert (job["benchmark_id"], job["trainings"][0]["package"]) == ("digits", "digits")
    assert (job["clock"], job["division"], job["latency"]) == ("mlperf", "closed", None)
    assert (job["run_limit_seconds"], job["target"]["fixed_stop"]) == (60.0, False)
    assert job["trainings"][0]["settings"]["batch_size"] == 64
    assert job["target"]["value"] == 97.5
    assert job["control_points"]


def test_board_that_changes_meanwhile_is_settled_again(replay, database, settings, broker):
    settled = []

    def settle(*, every):
        settled.append(True)
        if len(settled) == 1:
            with database.write() as session:
                raise_board_version(session, "digits")
        return True

    dispatcher = Dispatcher(database, broker, settings, settle_boards=settle)
    for _ in range(3):
        dispatcher.run_once()
    assert len(settled) == 2


@pytest.mark.parametrize(("own_class", "sent_to"), [((), "walter-1"), (("w-2",), "w-2")])
def test_own_class_comes_before_another(own_class, sent_to, replay, dispatcher, broker, hello):
    hello(hardware_class="cpu-other")
    for name in own_class:
        hello(name)
    dispatcher.run_once()

    assert broker.sent == [(replay.attempt_id, sent_to)]


def test_nothing_is_sent_without_a_living_worker(replay, dispatcher, broker, hello, database):
    dispatcher.run_once()
    hello(state="stopping")
    dispatcher.run_once()
    hello()
    with database.write() as session:
        session.get_one(WorkerRow, "walter-1").last_seen_at = utc_now() - LATE
    dispatcher.run_once()
    assert broker.sent == []

    hello()
    dispatcher.run_once()
    assert len(broker.sent) == 1


def test_another_class_gets_it_when_its_own_is_gone(replay, dispatcher, broker, hello, database):
    def send_again():
        replay.change(replay.attempt_id, send_after=utc_now() - timedelta(seconds=1))
        dispatcher.run_once()
        return [worker for _, worker in broker.sent]

    for worker, hardware_class in (("w-3", "gpu-z"), ("walter-1", "cpu-test"), ("w-2", "cpu-a")):
        hello(worker, hardware_class=hardware_class)
    dispatcher.run_once()
    assert send_again() == ["walter-1"] * 2
    hello(state="busy")
    assert send_again() == ["walter-1"] * 2  # It waits for its own class while that is there.
    with database.write() as session:
        session.get_one(WorkerRow, "walter-1").last_seen_at = utc_now() - LATE
    *first, last = send_again()
    assert (first, last in ("w-2", "w-3")) == (["walter-1"] * 2, True)


def test_broker_out_of_reach_loses_nothing(replay, dispatcher, broker, hello, olivia):
    hello()
    body = {"benchmark": "digits", "batch_sizes": [64], "runs": 12, "reason": "more to send"}
    assert olivia.post("/api/v1/calibrations", body).status_code == 201
    broker.error = ConnectionError("refused")
    dispatcher.run_once()
    assert (broker.tries, replay.view()["attempts"][0]["state"]) == (1, "queued")

    broker.error = None
    replay.change(replay.attempt_id, send_after=utc_now())
    dispatcher.run_once()
    assert [attempt_id for attempt_id, _ in broker.sent] == [replay.attempt_id]


def test_the_server_draws_the_worker_and_another_may_not_claim(replay, dispatcher, broker, hello):
    names = [f"w-{number}" for number in range(3)]
    for name in names:
        hello(name)
    address = f"/api/v1/attempts/{replay.attempt_id}/claim"
    early = replay.worker.post(address, {"worker": "w-1", "protocol": 1})
    assert early.status_code == 409  # Nobody was drawn yet.
    drawn = set()
    while len(drawn) < len(names):  # Every one of them is drawn sooner or later.
        dispatcher.run_once()
        drawn.add(broker.sent[-1][1])
        replay.change(replay.attempt_id, send_after=utc_now() - timedelta(seconds=1))
    assert drawn == set(names)

    mine = broker.sent[-1][1]
    other = next(name for name in names if name != mine)
    refused = replay.claim(worker=other)
    assert (refused.status_code, replay.view()["state"]) == (409, "queued")
    assert f"was not sent to {other}" in refused.json()["detail"]
    assert replay.claim(worker=mine).status_code == 200


def test_each_free_worker_is_sent_one_and_submitters_take_turns(
    replay, dispatcher, broker, hello, client, bob, ask_another, verification_of
):
    alices = [replay.verification_id, ask_another(), ask_another()]
    bobs = [ask_another(bob), ask_another(bob)]
    for number in range(3):
        hello(f"w-{number}")
    dispatcher.run_once()
    dispatcher.run_once()
    sent = [verification_of(attempt_id) for attempt_id, _ in broker.sent]
    assert sent == [alices[0], bobs[0], alices[1]]

    shown = client.get("/api/v1/queue").json()["classes"][0]["waiting"]
    places = [item["verification_id"] for item in shown]
    assert (set(places[:3]), places[3:]) == (set(sent), [bobs[1], alices[2]])
    hello("w-3")
    dispatcher.run_once()
    assert verification_of(broker.sent[-1][0]) == bobs[1]


def test_what_no_worker_may_take_hides_nothing(replay, dispatcher, broker, hello, database):
    hello()
    earlier = utc_now() - timedelta(hours=1)
    with database.write() as session:
        worker = session.get_one(WorkerRow, "walter-1")
        worker.confirmed_by = worker.user_id  # A head-to-head goes to organisers' workers alone.
        attempt = session.get_one(Attempt, replay.attempt_id)
        rows = {
            type(row): {column.key: getattr(row, column.key) for column in row.__table__.c}
            for row in (attempt.verification, attempt)
        }
        for number in range(20):
            own = {Verification: {"id": f"v{number}", "kind": "head_to_head"}}
            own[Attempt] = {"id": f"a{number}", "verification_id": f"v{number}"}
            own[Attempt] |= {"asked_at": earlier}
            for kind, columns in rows.items():
                session.execute(insert(kind), [columns | own[kind]])
    dispatcher.run_once()

    assert broker.sent == [(attempt.id, "walter-1")]


def test_lost_message_is_sent_again_after_a_pause(replay, dispatcher, broker, hello, ask_another):
    hello()
    dispatcher.run_once()
    ask_another()
    dispatcher.run_once()
    assert len(broker.sent) == 1
    replay.change(replay.attempt_id, send_after=utc_now() - timedelta(seconds=1))
    dispatcher.run_once()
    dispatcher.run_once()
    assert [attempt_id for attempt_id, _ in broker.sent] == [replay.attempt_id] * 2


def test_lost_attempt_is_replaced_at_once(replay, dispatcher, broker, hello, ask_another):
    hello("w-1")
    first = replay.claim().json()["attempt_id"]
    ask_another()
    replay.change(first, lease_expires_at=utc_now() - LATE)
    dispatcher.run_once()

    assert broker.sent == [(replay.attempt_id, "w-1")]
    assert replay.attempt_id != first
    assert [a["state"] for a in replay.view()["attempts"]] == ["lost", "queued"]


def test_a_disturbed_training_takes_its_submitters_next_turn_and_no_other(
    replay, dispatcher, broker, hello, bob, ask_another, verification_of, database
):
    alices = [replay.verification_id, ask_another()]
    bobs = [ask_another(bob) for _ in range(3)]
    hello()
    for share in (0.5, 1.0, 1.0, 1.0, 1.0, 1.0):
        dispatcher.run_once()
        attempt_id, _ = broker.sent[-1]
        replay.verification_id = verification_of(attempt_id)
        assert replay.train(cpu_share=share).is_success
    with database.read() as session:
        started = [verification_of(attempt_id) for attempt_id, _ in broker.sent]
        attempts = session.scalars(select(Attempt)).unique().all()
        assert furthest_from_next(attempts) == 0

    assert started == [alices[0], bobs[0], alices[0], bobs[1], alices[1], bobs[2]]


def test_the_loop_wakes_when_a_worker_is_free_and_when_something_waits(
    replay, dispatcher, broker, hello, client, olivia, monkeypatch, ask_another
):
    # No interval ends within this test: what is sent is sent because the loop was woken.
    monkeypatch.setattr(dispatcher._settings, "dispatch_interval_seconds", 3600.0)
    dispatcher.start()
    try:
        hello(confirmed=False)
        confirm = {"json": {"confirmed": True}, "headers": olivia.headers}
        client.patch("/api/v1/workers/walter-1", **confirm)
        wait_for(lambda: len(broker.sent) == 1, seconds=10, what="a confirmation to wake it")
        grant = replay.claim().json()
        ask_another()
        replay.train(grant)
        wait_for(lambda: len(broker.sent) == 2, seconds=10, what="a report to wake it")
        hello("w-2")
        ask_another()
        wait_for(lambda: len(broker.sent) == 3, seconds=10, what="a request to wake it")
    finally:
        dispatcher.stop()


def test_an_idle_server_takes_no_write_lock(database, dispatcher, monkeypatch):
    def refuse():
        raise AssertionError("a write transaction")

    monkeypatch.setattr(database, "write", refuse)
    dispatcher.run_once()


def test_loop_survives_a_failed_round(replay, dispatcher, broker, hello, monkeypatch, caplog):
    hello()
    away = OperationalError("SELECT 1", {}, Exception())
    away.__cause__ = Exception("connection refused")
    rounds, over = iter([away, None]), threading.Event()
    caplog.set_level(logging.INFO, "finishline.periodic")
    run_once = dispatcher.run_once

    def sometimes():
        if (error := next(rounds, None)) is not None:
            raise error
        run_once()
        over.set()

    monkeypatch.setattr(dispatcher, "run_once", sometimes)
    dispatcher.start()
    assert over.wait(20)
    dispatcher.stop()

    assert len(broker.sent) == 1
    told = [line for line in caplog.records if line.name == "finishline.periodic"]
    assert [(line.getMessage(), line.exc_info) for line in told] == [
        ("dispatch failed (connection refused); trying again until it works", None),
        ("dispatch works again", None),
    ]


def test_a_process_with_another_time_ends_no_lease(replay, dispatcher, broker, hello):
    hello()
    grant = replay.claim(worker="walter-1").json()
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - LATE)
    dispatcher.clock_ahead_seconds = -3.0
    dispatcher.run_once()
    assert replay.view()["attempts"][0]["state"] == "running"

    dispatcher.clock_ahead_seconds = 1.0
    dispatcher.run_once()
    assert replay.view()["attempts"][0]["state"] == "lost"


@pytest.mark.parametrize(("there", "ahead"), [(7, 3.0), (10, 0.0), (11, 0.0), (15, -3.0)])
def test_a_clock_is_off_by_more_than_it_took_to_read_the_other(there, ahead):
    noon = datetime(2030, 1, 1, 12, tzinfo=UTC)
    since, until = noon + timedelta(seconds=10), noon + timedelta(seconds=12)
    assert seconds_ahead(noon + timedelta(seconds=there), since=since, until=until) == ahead
