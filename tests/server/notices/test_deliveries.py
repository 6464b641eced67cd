"""Deliveries: signed, tried again, by one server at a time, at least once whatever dies."""

import base64
import hashlib
import hmac
import os
import re
import subprocess
import sys
import threading
from datetime import datetime, timedelta

import pytest
from sqlalchemy import update

from server.base.database import utc_now
from server.base.models import Message, Receiver
from server.notices.outbox import claim
from tests.support.admin import environment_of
from tests.support.both_databases import at_once, database_url, on_sqlite  # noqa: F401
from tests.support.copies import serving
from tests.support.processes import free_port, wait_for

# After each failure, in seconds, but for a tenth more or less: a day and some in all.
PLAIN_WAITS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)


def let_time_pass(hooks):
    with hooks.database.write() as session:
        session.execute(update(Message).values(due_at=utc_now() - timedelta(seconds=1)))


def figures(settings):
    """Webhooks' deliveries by their state, and how late the latest is, as a new server shows it."""
    with serving(settings) as client:
        text = client.get("/metrics").text
    states = r'^finishline_deliveries\{channel="webhook",state="(\w+)"\} (.+)$'
    found = {state: float(value) for state, value in re.findall(states, text, re.MULTILINE)}
    (overdue,) = re.findall(r"^finishline_delivery_overdue_seconds (.+)$", text, re.MULTILINE)
    return found | {"overdue": float(overdue)}


def signed_by(secret, post):
    """Whether a post carries the signature of a secret, worked out from the specification alone."""
    key = base64.b64decode(secret.split("_", 1)[1])
    content = b".".join(
        [post.headers["webhook-id"].encode(), post.headers["webhook-timestamp"].encode(), post.body]
    )
    expected = base64.b64encode(hmac.new(key, content, hashlib.sha256).digest()).decode()
    return f"v1,{expected}" in post.headers["webhook-signature"].split(" ")


def test_a_receiver_that_fails_twice_gets_one_message(hooks, receiver, alice, settings):
    receiver.answers = [500, 302]
    receiver.headers = {"Location": receiver.url + "/elsewhere"}
    hook = hooks.make(alice, receiver.url)
    sent = hooks.ping(alice, hook)
    for tries in (1, 2):
        assert hooks.tried(alice, hook, tries)["state"] == "waiting"
        let_time_pass(hooks)
    late = figures(settings)
    assert (late["waiting"], late["delivered"]) == (1, 0)
    assert hooks.read(alice, hook)["failing_since"] is not None
    assert 1.0 <= late["overdue"] < 60.0
    delivered = hooks.delivered(alice, hook)
    assert figures(settings) == {"waiting": 0, "delivered": 1, "failed": 0, "overdue": 0}
    assert hooks.read(alice, hook)["failing_since"] is None

    assert [made["status"] for made in delivered["tries"]] == [500, 302, 200]
    assert delivered["tries"][2]["answer"] == "thank you"
    assert delivered["tries"][2]["milliseconds"] > 0
    assert delivered["due_at"] is None
    assert {post.headers["webhook-id"] for post in receiver.posts} == {sent["message_id"]}
    assert [post.path for post in receiver.posts] == ["/hook"] * 3
    assert {post.event["type"] for post in receiver.posts} == {"webhook.test"}
    assert all(signed_by(hook["secret"], post) for post in receiver.posts)
    assert not signed_by("whsec_" + base64.b64encode(b"x" * 32).decode(), receiver.posts[0])


@on_sqlite
class TestOnOneDatabase:
    def test_one_that_fails_for_a_day_is_given_up(self, hooks, receiver, alice):
        hook = hooks.make(alice, receiver.url)
        hooks.ping(alice, hook)
        receiver.answers = [503] * 8
        waits = []
        for tries in range(1, 8):
            waits.append(_seconds_until_due(hooks.tried(alice, hook, tries)))
            let_time_pass(hooks)
        with hooks.database.write() as session:
            session.get_one(Receiver, hook["id"]).failing_since = utc_now() - timedelta(hours=25)
        given_up = hooks.tried(alice, hook, 8)

        assert sum(PLAIN_WAITS) == 99_305  # 27.6 hours.
        # A tenth more or less each, so that messages that failed together don't return together.
        shares = [wait / plain for wait, plain in zip(waits, PLAIN_WAITS, strict=True)]
        assert all(0.9 <= round(share, 2) <= 1.1 for share in shares)
        assert len({round(share, 3) for share in shares}) > 1
        assert given_up["state"] == "failed"
        view = hooks.read(alice, hook)
        assert view["disabled_because"].startswith("Deliveries have failed since")

        def ask(path):
            address = f"/api/v1/webhooks/{hook['id']}/{path}"
            return hooks.client.post(address, headers=alice.headers)

        resend = f"deliveries/{given_up['id']}/repeat"
        assert [ask(path).status_code for path in ("test", resend)] == [409, 409]
        address = f"/api/v1/webhooks/{hook['id']}"
        on = hooks.client.patch(address, json={"enabled": True}, headers=alice.headers).json()
        assert (on["disabled_at"], on["failing_since"]) == (None, None)
        assert ask(resend).status_code == 202
        hooks.delivered(alice, hook)
        ids = {post.headers["webhook-id"] for post in receiver.posts}
        assert ids == {given_up["message_id"]}

    @pytest.mark.parametrize(("asked", "wait"), [("3600", 3600), ("172800", 86_400)])
    def test_one_that_asks_is_left_in_peace(self, hooks, receiver, alice, asked, wait):
        receiver.answers, receiver.headers = [429], {"Retry-After": asked}
        hook = hooks.make(alice, receiver.url)
        hooks.ping(alice, hook)
        waiting = hooks.tried(alice, hook, 1)
        assert _seconds_until_due(waiting) == pytest.approx(wait, abs=1)
        receiver.answers = [410]
        let_time_pass(hooks)
        hooks.tried(alice, hook, 2)
        assert hooks.read(alice, hook)["disabled_because"] == "It returned 410 Gone."

    def test_a_failure_that_comes_late_takes_nothing_back(self, hooks, receiver, make_loop, alice):
        hook = hooks.make(alice, receiver.url)
        receiver.answers = [200, 500]  # The second post is answered first.
        receiver.gate = late = threading.Event()
        hooks.ping(alice, hook)
        slow = make_loop()
        slow.run_once()
        wait_for(lambda: receiver.posts, seconds=20, what="the first post")
        receiver.gate = None
        let_time_pass(hooks)  # So long that another server may try.
        hooks.delivered(alice, hook)
        late.set()
        wait_for(lambda: not slow._busy, seconds=20, what="the first answer")

        assert receiver.answers == []
        (delivered,) = hooks.log(alice, hook)
        assert delivered["state"] == "delivered"
        assert [made["status"] for made in delivered["tries"]] == [200]

    def test_little_of_a_long_answer_is_read_and_less_is_kept(self, hooks, receiver, alice):
        receiver.text = b"\xff\0<b>" + b"x" * 3_000_000
        hook = hooks.make(alice, receiver.url)
        address = f"/api/v1/webhooks/{hook['id']}/secret"
        fresh = hooks.client.post(address, headers=alice.headers).json()["secret"]
        hooks.ping(alice, hook)

        kept = hooks.delivered(alice, hook)["tries"][0]["answer"]
        assert kept == "\ufffd\ufffd<b>" + "x" * 495
        # The latest secret signs, and no other.
        assert signed_by(fresh, receiver.posts[0])
        assert not signed_by(hook["secret"], receiver.posts[0])

    def test_messages_to_one_webhook_wait(self, hooks, receiver, make_receiver, alice, bob, replay):
        hook, quick = hooks.make(alice, receiver.url), make_receiver()
        receiver.gate = threading.Event()
        replay.claim()
        hooks.ping(alice, hook)
        hooks.ping(bob, hooks.make(bob, quick.url))
        try:
            hooks.run(lambda: receiver.posts and quick.posts)
            for _ in range(3):
                hooks.loop.run_once()
            assert len(receiver.posts) == 1
        finally:
            receiver.gate.set()
        hooks.run(lambda: len(receiver.posts) == 2)

    def test_what_ended_long_ago_is_forgotten(self, hooks, receiver, alice, row_counts):
        hook = hooks.make(alice, receiver.url)
        hooks.ping(alice, hook)
        hooks.delivered(alice, hook)
        hooks.ping(alice, hook)
        with hooks.database.write() as session:
            session.execute(update(Message).values(created_at=utc_now() - timedelta(days=31)))
        hooks.loop._prune_at = utc_now()
        hooks.loop.run_once()

        counts = row_counts()
        # The one that waits is kept however old it is.
        assert counts["outbox"] == 1


def test_a_message_is_claimed_once(hooks, alice):
    for number in range(6):
        hooks.ping(alice, hooks.make(alice, f"http://127.0.0.1:1/{number}"))

    def take():
        with hooks.database.write_beside() as session:
            return [each.id for each in claim(session, busy=(), limit=8)]

    taken = [one for found in at_once(*[take] * 4) for one in found]
    assert len(taken) == len(set(taken)) == 6


def test_no_two_servers_send_one_message(hooks, make_receiver, make_loop, alice, monkeypatch):
    # One that was added while they sleep is sent without waiting for their next look.
    monkeypatch.setattr("server.notices.outbox.IDLE_SECONDS", 600.0)
    receivers = [make_receiver() for _ in range(6)]
    made = [hooks.make(alice, one.url) for one in receivers]
    for hook in made:
        hooks.ping(alice, hook)
    loops = [make_loop() for _ in range(3)]
    for loop in loops:
        loop.start()

    def all_delivered():
        states = {hooks.log(alice, hook)[0]["state"] for hook in made}
        return states == {"delivered"} and all(one.posts for one in receivers)

    wait_for(all_delivered, seconds=20, what="all messages and outcomes")
    hooks.ping(alice, made[0])
    wait_for(lambda: len(receivers[0].posts) == 2, seconds=20, what="the other", pause=0.01)
    for loop in loops:
        loop.stop()

    assert [len(one.posts) for one in receivers] == [2, 1, 1, 1, 1, 1]


def test_a_try_that_died_is_made_again(hooks, receiver, make_loop, alice, monkeypatch):
    hook = hooks.make(alice, receiver.url)
    hooks.ping(alice, hook)

    died = threading.Event()

    def die(*_, **__):
        died.set()
        raise SystemExit("killed after the post, before its outcome was kept")

    monkeypatch.setattr("server.notices.outbox.settle", die)
    hooks.run(died.is_set)
    (waiting,) = hooks.log(alice, hook)
    assert (waiting["state"], waiting["tries"]) == ("waiting", [])
    monkeypatch.undo()
    other = make_loop()
    other.run_once()
    assert len(receiver.posts) == 1  # It is somebody's until the claim runs out.
    let_time_pass(hooks)
    other.run_once()
    wait_for(
        lambda: hooks.log(alice, hook)[0]["state"] == "delivered", seconds=20, what="the outcome"
    )

    first, second = receiver.posts
    assert first.headers["webhook-id"] == second.headers["webhook-id"]
    assert first.body == second.body


def _seconds_until_due(tried):
    latest = datetime.fromisoformat(tried["tries"][-1]["at"])
    return (datetime.fromisoformat(tried["due_at"]) - latest).total_seconds()


@pytest.mark.nightly
@on_sqlite
def test_a_server_killed_in_the_middle_of_a_post_loses_nothing(hooks, receiver, alice, settings):
    hook = hooks.make(alice, receiver.url)
    sent = hooks.ping(alice, hook)
    receiver.gate = threading.Event()
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(free_port())]
    environment = environment_of(settings) | {"FINISHLINE_WEBHOOK_PRIVATE_ADDRESSES": "true"}
    server = subprocess.Popen(command, env=os.environ | environment)
    try:
        wait_for(lambda: receiver.posts, seconds=30, what="the first post")
    finally:
        server.kill()
        server.wait()
        receiver.gate.set()
    let_time_pass(hooks)
    hooks.delivered(alice, hook)

    ids = [post.headers["webhook-id"] for post in receiver.posts]
    assert ids == [sent["message_id"]] * 2
