"""Owners of workers: barred from their boards, paused where they fail, and held by organisers."""

from datetime import timedelta
from functools import cache

import pytest
from sqlalchemy import select

from server.base.database import utc_now
from server.base.models import Attempt, User, WorkerRow
from server.verifications.queue import take_due
from server.verifications.sweep import expire_leases
from tests.support.workers import greet_as_servers


@pytest.fixture
def greet(hello, make_person):
    person_of = cache(lambda name: make_person(name, "worker"))

    def say(name, state="idle"):
        assert hello(name, person=person_of(name), state=state).is_success

    return say


def drawn(replay):
    """Every worker that is drawn for the latest attempt in twenty draws."""
    found = set()
    for _ in range(20):
        with replay.database.write() as session:
            found.update(one.worker for one in take_due(session))
            attempt = session.get_one(Attempt, replay.attempt_id)
            attempt.sent_to, attempt.send_after = None, attempt.created_at
    return found


def test_rivals_do_not_replay(replay, greet, submit, digits_submission, bob, make_person):
    carol = make_person("carol", "submitter")
    greet("walter")
    assert submit(digits_submission, by=bob).status_code == 201
    greet("bob")  # A rival of the claim that waits.
    greet("alice")  # The claimant.
    digits_submission.claim["system"] |= {"hardware_class": "another"}
    assert submit(digits_submission, by=carol).status_code == 201
    greet("carol")  # She competes on another class.
    assert drawn(replay) == {"walter"}
    greet("walter", "busy")
    assert drawn(replay) == set()  # It waits for the worker that is there.
    greet("walter", "stopping")
    assert drawn(replay) == {"bob", "alice", "carol"}


def test_a_member_of_a_rivals_organisation_is_a_rival(replay, greet, client, ada):
    greet("walter")
    greet("wilma")
    made = client.post("/api/v1/organisations", json={"name": "Lab"}, headers=ada.headers).json()
    with replay.database.write() as session:
        for user in session.scalars(select(User).where(User.name.in_(("alice", "wilma")))):
            user.organisation_id = made["id"]
    assert drawn(replay) == {"walter"}


def test_a_failed_attempt_does_not_go_back_to_that_owner_while_there_is_another(replay, greet):
    greet("walter")
    greet("wilma")
    assert drawn(replay) == {"walter", "wilma"}
    lose_attempts(replay, "walter", 1)
    greet("walter")
    assert drawn(replay) == {"wilma"}
    greet("wilma", "stopping")
    assert drawn(replay) == {"walter"}


WHY = "3 of the last 3 attempts of its owner's workers failed"


def add_workers(replay, *names, confirmed_by):
    """Walter's workers, confirmed by an organiser, or by the server where none is named."""
    for name in names:
        greet_as_servers(replay.database, name)
    with replay.database.write() as session:
        people = {user.name: user.id for user in session.query(User).all()}
        for row in session.query(WorkerRow).all():
            row.user_id, row.confirmed_by = people["walter"], people.get(confirmed_by)


def lose_attempts(replay, worker, times):
    for _ in range(times):
        assert replay.claim(worker=worker).status_code == 200
        replay.change(replay.attempt_id, lease_expires_at=utc_now() - timedelta(seconds=1))
        assert expire_leases(replay.database) == 1


def held(replay, name):
    with replay.database.read() as session:
        row = session.get_one(WorkerRow, name)
        return row.held, row.held_because


@pytest.fixture
def lost(replay):
    add_workers(replay, "walter-1", "walter-2", confirmed_by="olivia")
    lose_attempts(replay, "walter-1", 2)
    assert held(replay, "walter-1") == (None, None)
    lose_attempts(replay, "walter-1", 1)
    return replay


def test_three_failures_in_ten_pause_an_owner(lost, client, olivia, order):
    assert held(lost, "walter-1") == held(lost, "walter-2") == ("paused", WHY)
    log = client.get("/api/v1/audit", headers=olivia.headers).json()
    told = [one for one in log["records"] if one["action"] == "worker.pause"]
    assert {(one["actor"], one["subject_id"], one["reason"]) for one in told} == {
        ("failures", "walter-1", WHY),
        ("failures", "walter-2", WHY),
    }

    for name in ("walter-1", "walter-2"):
        assert order(f"/api/v1/workers/{name}", RESUME).is_success
    lost.ask_again(olivia)
    lose_attempts(lost, "walter-1", 2)
    assert held(lost, "walter-1") == (None, None), "failures before a resumption are forgiven"


def test_a_worker_of_the_organisers_is_left_to_them(replay):
    add_workers(replay, "walter-1", confirmed_by=None)
    lose_attempts(replay, "walter-1", 3)
    assert held(replay, "walter-1") == (None, None)


def test_right_reports_from_a_busy_host_pause_nobody(replay, ask_another, make_report):
    add_workers(replay, "walter-1", confirmed_by="olivia")
    for number in range(4):
        if number:
            replay.verification_id = ask_another()
        report = make_report(replay.seeds(), cpu_share=0.5)
        assert replay.report(replay.claim().json(), report).status_code == 200
        assert replay.view()["attempts"][0]["failure"]["code"] == "host_busy"
    assert held(replay, "walter-1") == (None, None)


WORKER, QUEUE = "/api/v1/workers/walter-1", "/api/v1/queue"
PAUSE, RESUME = {"paused": True, "reason": "new fans"}, {"paused": False}


@pytest.fixture
def sent(database):
    def choose():
        with database.write() as session:
            return [one.worker for one in take_due(session)]

    return choose


@pytest.fixture
def order(client, olivia):
    def change(address, body=PAUSE):
        return client.patch(address, json=body, headers=olivia.headers)

    return change


def test_a_hold_without_a_reason_and_of_what_is_not_there_or_not_held_is_refused(order, hello):
    assert [order(WORKER, change).status_code for change in (PAUSE, RESUME)] == [404] * 2
    hello()
    assert "is not paused" in order(WORKER, RESUME).json()["detail"]
    assert order(WORKER, RESUME).status_code == 409
    assert order(QUEUE, RESUME).status_code == 409
    for body in ({}, {"paused": True}, PAUSE | {"reason": " "}, PAUSE | {"until": "noon"}, []):
        for address in (WORKER, QUEUE):
            assert order(address, body).status_code == 422, body
    assert order(WORKER, PAUSE | {"confirmed": True}).status_code == 422


def test_a_paused_worker_takes_nothing(replay, order, hello, sent, client, olivia):
    wanted = {"roof_wanted": False, "unconfirmed": False}
    assert hello().json() == {"order": "work", "why": None} | wanted
    assert sent() == ["walter-1"]
    shown = order(WORKER).json()["worker"]
    held = shown["state"], shown["held_by"], shown["held_because"]
    assert held == ("paused", "olivia", "new fans")
    assert hello().json() == {"order": "pause", "why": "paused by olivia: new fans"} | wanted
    hello(state="stopping")
    assert hello().json()["order"] == "pause", "also after it was started again"
    refused = replay.claim()
    assert refused.status_code == 409
    assert "paused by olivia: new fans" in refused.json()["detail"]
    assert sent() == []
    assert "new fans" in client.get("/workers").text
    assert "Every connected worker is paused" in replay.view()["waiting_for"]
    waits = client.get(QUEUE).json()["classes"][0]
    assert (waits["workers"], waits["held"]) == (0, 1)
    assert "is paused" in waits["waiting"][0]["why_unknown"]

    hello("walter-2")
    assert sent() == ["walter-2"]  # At once: the refused claim gave it back.
    assert order(WORKER, RESUME).json()["worker"]["held"] is None
    assert hello().json()["order"] == "work"
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    actions = [item["action"] for item in records]
    assert actions[:2] == ["worker.resume", "worker.pause"]


def test_nothing_starts_while_everything_is_paused(replay, order, hello, sent, client):
    hello()
    hello("other-1", hardware_class="cpu-other")
    paused = order(QUEUE).json()
    assert paused["paused"]["by"] == "olivia"
    (waits,) = [item for one in paused["classes"] for item in one["waiting"]]
    assert "paused by olivia: new fans" in waits["why_unknown"]
    assert sent() == []
    refused = replay.claim()
    assert (refused.status_code, "new fans" in refused.json()["detail"]) == (409, True)
    assert "every queue is paused by olivia: new fans" in replay.view()["waiting_for"]
    assert "new fans" in client.get("/workers").text

    assert order(QUEUE, RESUME).status_code == 200
    assert sent() == ["walter-1"]
    assert replay.claim().status_code == 200
