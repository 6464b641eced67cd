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
from server.base.models import Delivery, Webhook
from tests.support.both_databases import database_url, on_sqlite  # noqa: F401
from tests.support.copies import serving
from tests.support.processes import free_port, wait_for

# After each failure, in seconds, but for a tenth more or less: a day and some in all.
PLAIN_WAITS = (5.0, 300.0, 1800.0, 7200.0, 18_000.0, 36_000.0, 36_000.0)


def ping(hooks, by, hook):
    """Ask for a test message."""
    answer = hooks.client.post(f"/api/v1/webhooks/{hook['id']}/test", headers=by.headers)
    assert answer.status_code == 202, answer.text
    return answer.json()


def let_time_pass(hooks):
    """The next try of whatever waits is due."""
    with hooks.database.write() as session:
        session.execute(update(Delivery).values(due_at=utc_now() - timedelta(seconds=1)))


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


def test_a_receiver_that_fails_twice_and_then_works_gets_one_message(
    hooks, receiver, alice, settings
):
    receiver.answers = [500, 302]
    receiver.headers = {"Location": receiver.url + "/elsewhere"}
    hook = hooks.make(alice, receiver.url)
    sent = ping(hooks, alice, hook)
    for tries in (1, 2):
        hooks.run(lambda tries=tries: len(hooks.log(alice, hook)[0]["tries"]) == tries)
        (waiting,) = hooks.log(alice, hook)
        assert waiting["state"] == "waiting"
        # 5 seconds after the first failure, 5 minutes after the second, give or take a tenth.
        wanted = {1: 5.0, 2: 300.0}[tries]
        assert wanted * 0.9 <= _seconds_between(waiting, waiting) <= wanted * 1.1
        let_time_pass(hooks)
    late = figures(settings)
    assert (late["waiting"], late["delivered"]) == (1, 0)
    own = f"/api/v1/webhooks/{hook['id']}"
    assert hooks.client.get(own, headers=alice.headers).json()["failing_since"] is not None
    assert 1.0 <= late["overdue"] < 60.0
    hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")
    assert figures(settings) == {"waiting": 0, "delivered": 1, "failed": 0, "overdue": 0}
    assert hooks.client.get(own, headers=alice.headers).json()["failing_since"] is None

    (delivered,) = hooks.log(alice, hook)
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
    """What does not depend on which database it is."""

    def test_a_replaced_secret_signs_beside_the_other_for_a_day(self, hooks, receiver, alice):
        hook = hooks.make(alice, receiver.url)
        address = f"/api/v1/webhooks/{hook['id']}/secret"
        fresh = hooks.client.post(address, headers=alice.headers).json()["secret"]
        assert fresh != hook["secret"]
        ping(hooks, alice, hook)
        hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")
        with hooks.database.write() as session:
            session.get_one(Webhook, hook["id"]).previous_until = utc_now() - timedelta(seconds=1)
        ping(hooks, alice, hook)
        hooks.run(lambda: len(receiver.posts) == 2)

        both, after = receiver.posts
        assert signed_by(fresh, both)
        assert signed_by(hook["secret"], both)
        assert signed_by(fresh, after)
        assert not signed_by(hook["secret"], after)

    def test_one_that_fails_for_a_day_is_given_up_and_its_hook_switched_off(
        self, hooks, receiver, alice
    ):
        hook = hooks.make(alice, receiver.url)
        ping(hooks, alice, hook)
        receiver.answers = [503] * 8
        for tries in range(1, 9):
            hooks.run(lambda tries=tries: len(hooks.log(alice, hook)[0]["tries"]) == tries)
            if tries == 7:
                day_ago = utc_now() - timedelta(hours=25)
                with hooks.database.write() as session:
                    session.get_one(Webhook, hook["id"]).failing_since = day_ago
            if tries < 8:
                let_time_pass(hooks)

        (given_up,) = hooks.log(alice, hook)
        assert given_up["state"] == "failed"
        address = f"/api/v1/webhooks/{hook['id']}"
        view = hooks.client.get(address, headers=alice.headers).json()
        assert view["disabled_because"].startswith("Deliveries have failed since")
        refused = hooks.client.post(f"{address}/test", headers=alice.headers)
        assert refused.status_code == 409
        resent = f"{address}/deliveries/{given_up['id']}/resend"
        assert hooks.client.post(resent, headers=alice.headers).status_code == 409
        on = hooks.client.post(f"{address}/enable", headers=alice.headers).json()
        assert (on["disabled_at"], on["failing_since"]) == (None, None)
        assert hooks.client.post(resent, headers=alice.headers).status_code == 202
        hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")
        ids = {post.headers["webhook-id"] for post in receiver.posts}
        assert ids == {given_up["message_id"]}

    def test_one_that_is_gone_is_switched_off_and_one_that_asks_is_left_in_peace(
        self, hooks, make_receiver, alice
    ):
        gone, busy = make_receiver(), make_receiver()
        gone.answers, busy.answers = [410], [429]
        busy.headers = {"Retry-After": "3600"}
        first, second = hooks.make(alice, gone.url), hooks.make(alice, busy.url)
        ping(hooks, alice, first)
        ping(hooks, alice, second)
        hooks.run(lambda: all(hooks.log(alice, hook)[0]["tries"] for hook in (first, second)))

        address = f"/api/v1/webhooks/{first['id']}"
        view = hooks.client.get(address, headers=alice.headers).json()
        assert view["disabled_because"] == "It returned 410 Gone."
        (asked,) = hooks.log(alice, second)
        assert _seconds_between(asked, asked) == pytest.approx(3600)

    def test_while_it_fails_a_webhook_gets_one_try_at_a_time(self, hooks, receiver, alice, replay):
        hook = hooks.make(alice, receiver.url)
        receiver.answers = [500]
        replay.claim()
        ping(hooks, alice, hook)
        hooks.run(lambda: any(item["tries"] for item in hooks.log(alice, hook)))

        first, second = sorted(hooks.log(alice, hook), key=lambda item: len(item["tries"]))
        assert (first["tries"], len(second["tries"])) == ([], 1)
        # Nobody has claimed it: it waits as long as the one that failed.
        assert 4.5 <= _seconds_between(second, first) <= 5.5
        assert len(receiver.posts) == 1
        let_time_pass(hooks)
        hooks.run(lambda: {item["state"] for item in hooks.log(alice, hook)} == {"delivered"})

    def test_a_failure_that_comes_late_takes_nothing_back(self, hooks, receiver, make_loop, alice):
        hook = hooks.make(alice, receiver.url)
        receiver.answers = [200, 500]  # The second post is answered first.
        receiver.gate = late = threading.Event()
        ping(hooks, alice, hook)
        slow = make_loop()
        slow.run_once()
        wait_for(lambda: receiver.posts, seconds=20, what="the first post")
        receiver.gate = None
        let_time_pass(hooks)  # So long that another server may try.
        hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")
        late.set()
        wait_for(lambda: not slow._under_way, seconds=20, what="the first answer")

        assert receiver.answers == []
        (delivered,) = hooks.log(alice, hook)
        assert delivered["state"] == "delivered"
        assert [made["status"] for made in delivered["tries"]] == [200]

    def test_little_of_a_long_answer_is_read_and_less_is_kept(self, hooks, receiver, alice):
        receiver.text = b"\xff\0<b>" + b"x" * 3_000_000
        hook = hooks.make(alice, receiver.url)
        ping(hooks, alice, hook)
        hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")

        kept = hooks.log(alice, hook)[0]["tries"][0]["answer"]
        assert kept == "\ufffd\ufffd<b>" + "x" * 495

    def test_a_slow_receiver_holds_up_nobody(self, hooks, make_receiver, alice, bob):
        slow = make_receiver()
        slow.gate = threading.Event()
        quick = make_receiver()
        slow_hooks = [hooks.make(alice, f"{slow.url}/{n}") for n in range(12)]
        for hook in slow_hooks:
            ping(hooks, alice, hook)
        hook = hooks.make(bob, quick.url)
        ping(hooks, bob, hook)
        try:
            hooks.run(lambda: quick.posts and len(slow.posts) >= 3)
            # Three of the eight places, however many webhooks one person has.
            assert len(slow.posts) == 3
        finally:
            slow.gate.set()
        hooks.run(lambda: len(slow.posts) == 12)

    def test_messages_to_one_webhook_go_one_after_the_other(self, hooks, receiver, alice, replay):
        hook = hooks.make(alice, receiver.url)
        receiver.gate = threading.Event()
        replay.claim()
        ping(hooks, alice, hook)
        try:
            hooks.run(lambda: receiver.posts)
            for _ in range(3):
                hooks.loop.run_once()
            assert len(hooks.loop._under_way) == 1
        finally:
            receiver.gate.set()
        hooks.run(lambda: len(receiver.posts) == 2)

    def test_what_ended_long_ago_is_forgotten_with_its_event(
        self, hooks, receiver, alice, row_counts
    ):
        hook = hooks.make(alice, receiver.url)
        ping(hooks, alice, hook)
        hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")
        ping(hooks, alice, hook)
        with hooks.database.write() as session:
            session.execute(update(Delivery).values(created_at=utc_now() - timedelta(days=31)))
        hooks.loop._prune_at = utc_now()
        hooks.loop.run_once()

        counts = row_counts()
        # The one that waits is kept however old it is.
        assert (counts["deliveries"], counts["notice_events"]) == (1, 1)


def test_two_servers_never_send_one_message_twice(
    hooks, make_receiver, make_loop, alice, monkeypatch
):
    # One that was added while they sleep is sent without waiting for their next look.
    monkeypatch.setattr("server.notices.loop.IDLE_SECONDS", 600.0)
    receivers = [make_receiver() for _ in range(6)]
    made = [hooks.make(alice, one.url) for one in receivers]
    for hook in made:
        ping(hooks, alice, hook)
    loops = [make_loop() for _ in range(3)]
    for loop in loops:
        loop.start()
    wait_for(lambda: all(one.posts for one in receivers), seconds=20, what="all messages")
    wait_for(
        lambda: all(hooks.log(alice, hook)[0]["state"] == "delivered" for hook in made),
        seconds=20,
        what="all outcomes",
    )
    ping(hooks, alice, made[0])
    wait_for(lambda: len(receivers[0].posts) == 2, seconds=20, what="the other", pause=0.01)
    for loop in loops:
        loop.stop()

    assert [len(one.posts) for one in receivers] == [2, 1, 1, 1, 1, 1]


def test_a_try_that_died_is_made_again_by_another_server(
    hooks, receiver, make_loop, alice, monkeypatch
):
    hook = hooks.make(alice, receiver.url)
    ping(hooks, alice, hook)

    died = threading.Event()

    def die(*_, **__):
        died.set()
        raise SystemExit("killed after the post, before its outcome was kept")

    monkeypatch.setattr("server.notices.loop.settle", die)
    hooks.run(died.is_set)
    (waiting,) = hooks.log(alice, hook)
    assert (waiting["state"], waiting["tries"]) == ("waiting", [])
    monkeypatch.undo()
    monkeypatch.setattr("server.notices.fan_out.RECORD_WAIT", timedelta(0))
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


@on_sqlite
def test_waits_grow_to_about_a_day_and_differ(hooks, receiver, alice):
    receiver.answers = [500] * 7
    hook = hooks.make(alice, receiver.url)
    ping(hooks, alice, hook)
    waits = []
    for tries in range(1, 8):
        hooks.run(lambda tries=tries: len(hooks.log(alice, hook)[0]["tries"]) == tries)
        (waiting,) = hooks.log(alice, hook)
        waits.append(_seconds_between(waiting, waiting))
        let_time_pass(hooks)

    assert waits[:6] == sorted(waits[:6])
    assert sum(PLAIN_WAITS) == 99_305  # 27.6 hours.
    # A tenth more or less each, so that messages that failed together do not come back together.
    shares = [wait / plain for wait, plain in zip(waits, PLAIN_WAITS, strict=True)]
    assert all(0.9 <= round(share, 2) <= 1.1 for share in shares)
    assert len({round(share, 3) for share in shares}) > 1


@on_sqlite
def test_a_receiver_that_asks_for_two_days_is_tried_again_after_a_day(hooks, receiver, alice):
    receiver.answers = [429]
    receiver.headers = {"Retry-After": "172800"}
    hook = hooks.make(alice, receiver.url)
    ping(hooks, alice, hook)
    hooks.run(lambda: hooks.log(alice, hook)[0]["tries"])

    (waiting,) = hooks.log(alice, hook)
    assert _seconds_between(waiting, waiting) == pytest.approx(86_400, abs=1)


def _seconds_between(tried, waits):
    """From the latest try of one delivery until another, or the same, is due."""
    latest = datetime.fromisoformat(tried["tries"][-1]["at"])
    return (datetime.fromisoformat(waits["due_at"]) - latest).total_seconds()


@pytest.mark.nightly
@on_sqlite
def test_a_server_killed_in_the_middle_of_a_post_loses_nothing(hooks, receiver, alice, settings):
    hook = hooks.make(alice, receiver.url)
    sent = ping(hooks, alice, hook)
    receiver.gate = threading.Event()
    command = [sys.executable, "-m", "uvicorn", "server.app:app", "--port", str(free_port())]
    server = subprocess.Popen(
        command,
        env=os.environ
        | {
            "FINISHLINE_DATABASE_URL": settings.database_url,
            "FINISHLINE_ARTIFACTS_DIR": str(settings.artifacts_dir),
            "FINISHLINE_WEBHOOK_PRIVATE_ADDRESSES": "true",
        },
    )
    try:
        wait_for(lambda: receiver.posts, seconds=30, what="the first post")
    finally:
        server.kill()
        server.wait()
        receiver.gate.set()
    let_time_pass(hooks)
    hooks.run(lambda: hooks.log(alice, hook)[0]["state"] == "delivered")

    ids = [post.headers["webhook-id"] for post in receiver.posts]
    assert ids == [sent["message_id"]] * 2
