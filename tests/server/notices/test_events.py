"""What is told of, to whom, and that nothing else is."""

import json
import re
from dataclasses import asdict
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from finishline.rules.measurements import Canary, WorkerProbe
from server.base.database import utc_now
from server.base.events import StatusChanged, SubmissionWithdrawn, emit
from server.base.models import Calibration, Message, Receiver, Submission, Token
from server.notices.messages import post_body
from server.people import audit
from server.verifications import calibrations
from server.verifications.sweep import expire_leases
from tests.support.boards import rows_of
from tests.support.both_databases import database_url, on_sqlite  # noqa: F401
from tests.support.statements import statements_of
from tests.support.workers import say_hello

FAR_BELOW = [10.0] * 8


def count(database, table):
    with database.read() as session:
        return session.scalar(select(func.count()).select_from(table)) or 0


def test_owner_is_told_of_each_step(hooks, receiver, alice, bob, replay, make_receiver, database):
    others, everybodys = make_receiver(), make_receiver()
    hooks.make(alice, receiver.url)
    hooks.make(bob, others.url)
    hooks.make(bob, everybodys.url, "verification.done", scope="benchmark", benchmark="digits")
    replay.finish()
    hooks.run(lambda: len(receiver.posts) == 4 and everybodys.posts)

    kinds = ["verification.started", "verification.done", "submission.verified", "record.set"]
    assert receiver.kinds == kinds
    started, done, verified, _ = (post.event for post in receiver.posts)
    assert started["data"]["attempt"] == {"number": 1, "worker": "walter-1"}
    assert started["data"]["verification"]["id"] == replay.verification_id
    assert done["data"]["verification"]["outcome"] == "verified"
    told = verified["data"]["submission"]
    assert (told["id"], told["status"]) == (replay.submission_id, "verified")
    view = replay.client.get(f"/api/v1/submissions/{replay.submission_id}").json()
    assert told["tta_seconds"] == view["result"]["tta_seconds"]
    assert verified["data"]["links"]["api"] == f"/api/v1/submissions/{replay.submission_id}"
    assert verified["timestamp"].endswith("+00:00")
    assert everybodys.kinds == ["verification.done"]
    assert others.posts == []
    # What somebody was told of stays for the log.
    assert count(database, Message) == 5


@on_sqlite
class TestOnOneDatabase:
    def test_a_measured_record_is_told_once(self, hooks, receiver, alice, olivia, replay):
        hooks.make(alice, receiver.url, "verification.done", "record.set")
        replay.finish(seconds_per_epoch=0.1)
        hooks.run(lambda: len(receiver.posts) == 2)
        replay.ask_again(olivia)
        replay.finish(seconds_per_epoch=0.1)
        waiting = select(Message.id).where(Message.state == "waiting").subquery()
        hooks.run(lambda: len(receiver.posts) == 3 and not count(hooks.database, waiting))

        assert receiver.kinds == ["verification.done", "record.set", "verification.done"]
        record = receiver.posts[1].event["data"]
        assert record["submission"]["id"] == replay.submission_id
        assert record["record"]["beaten"] is None
        board = rows_of(replay.client.get("/api/v1/leaderboards/digits").json())
        assert record["record"]["tta_seconds"] == pytest.approx(board[0]["measured_seconds"])

    def test_watchers_get_nothing_under_embargo(
        self, hooks, receiver, make_receiver, alice, bob, embargo, submit, digits_submission
    ):
        watchers, kind = make_receiver(), "submission.accepted"
        hooks.make(alice, receiver.url, kind)
        hooks.make(bob, watchers.url, kind, scope="benchmark", benchmark="digits")
        embargo(timedelta(hours=1))
        hidden = submit(digits_submission).json()["id"]
        embargo(None)
        shown = submit(digits_submission, batch_size=32).json()["id"]
        hooks.run(lambda: len(receiver.posts) == 2 and watchers.posts)

        assert [post.event["data"]["submission"]["id"] for post in watchers.posts] == [shown]
        own = [post.event["data"]["submission"]["id"] for post in receiver.posts]
        assert own == [hidden, shown]

    def test_nothing_is_told_of_archives(self, hooks, receiver, olivia, submit, digits_submission):
        hooks.make(olivia, receiver.url, scope="all")
        digits_submission.form = {"archive": "true"}
        digits_submission.claim |= {"organisation": "Ex", "submitted_on": "2018-04-20"}
        assert submit(digits_submission, by=olivia).status_code == 201

        assert count(hooks.database, Message) == 0

    def test_loss_and_end_are_told(self, hooks, receiver, olivia, replay, walter, make_receiver):
        owners = make_receiver()
        say_hello(replay.client, walter)
        hooks.make(olivia, receiver.url, scope="all")
        benchmark = {"scope": "benchmark", "benchmark": "digits"}
        hooks.make(olivia, owners.url, "worker.lost", "verification.lost", **benchmark)
        replay.claim()
        expire_leases(hooks.database, now=utc_now() + timedelta(hours=1))
        replay.cancel(olivia)
        hooks.run(lambda: len(receiver.posts) == 5 and owners.posts)

        assert receiver.kinds == [
            "verification.started", "verification.lost", "worker.lost", "verification.queued",
            "verification.cancelled",
        ]  # fmt: skip
        lost, out, queued = (post.event["data"] for post in receiver.posts[1:4])
        assert lost["attempt"] == {"number": 1, "worker": "walter-1"}
        assert out["worker"]["name"] == "walter-1"
        assert queued["attempt"] == {"number": 2, "worker": None}
        # A worker is the organisers' affair, not that of all who watch a benchmark.
        assert owners.kinds == ["verification.lost"]

    def test_a_rejected_rerun_is_told_when_decided(self, hooks, receiver, alice, olivia, replay):
        replay.finish()
        replay.ask_again(olivia)
        kinds = ("submission.rejected", "decision.published", "submission.verifying")
        hooks.make(alice, receiver.url, *kinds)
        replay.finish(qualities=FAR_BELOW)
        assert count(hooks.database, Message) == 0
        assert replay.decide(olivia, "publish").is_success
        hooks.run(lambda: len(receiver.posts) == 2)

        assert receiver.kinds == ["decision.published", "submission.rejected"]

    def test_calibration_and_drift_are_told(
        self, hooks, receiver, olivia, walter, replay, monkeypatch
    ):
        hooks.make(olivia, receiver.url, "calibration.adopted", "worker.drifted", scope="all")
        monkeypatch.setattr(calibrations, "why_not_adoptable", lambda *_: None)
        with hooks.database.write() as session:
            row = session.get_one(Submission, replay.submission_id)
            done = {"id": "c-1", "state": "done", "batch_sizes": [64], "runs": 1, "version": 1}
            of = {"benchmark_id": "digits", "benchmark_sha256": row.benchmark_sha256}
            session.add(Calibration(**done, **of, requested_by=row.user_id, created_at=utc_now()))
        adopted = replay.client.post(
            "/api/v1/calibrations/c-1/adoption", json={"reason": "new"}, headers=olivia.headers
        )
        assert adopted.status_code == 200, adopted.text
        say_hello(replay.client, walter)
        for gflops in (100.0, 99.0, 101.0, 80.0, 79.0):
            probe = WorkerProbe("walter-1", "before", canary=Canary(gflops, "numpy", "best"))
            told = replay.client.post(
                "/api/v1/workers/probes", json=asdict(probe), headers=walter.headers
            )
            assert told.status_code == 200, told.text
        hooks.run(lambda: len(receiver.posts) == 2)

        calibration, worker = (post.event["data"] for post in receiver.posts)
        assert calibration["calibration"]["id"] == "c-1"
        assert worker["worker"]["name"] == "walter-1"
        assert "%" in worker["worker"]["why"]

    def test_ended_users_are_told_of_nothing(self, hooks, receiver, alice, olivia, replay):
        hooks.make(olivia, receiver.url, scope="all")
        hooks.make(alice, receiver.url)
        with hooks.database.write() as session:
            session.execute(
                update(Token).where(Token.role == "organiser").values(revoked_at=utc_now())
            )
            session.get_one(Submission, replay.submission_id).user.disabled_at = utc_now()
        replay.finish()

        assert count(hooks.database, Message) == 0

    def test_what_is_rolled_back_was_never_told(self, hooks, receiver, alice, replay):
        hooks.make(alice, receiver.url)

        def rejected(session):
            submission = session.get_one(Submission, replay.submission_id)
            emit(session, StatusChanged(submission, "rejected", before="verifying"))

        def reject_and_fail():
            with hooks.database.write() as session:
                rejected(session)
                session.flush()
                raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            reject_and_fail()
        assert count(hooks.database, Message) == 0
        with hooks.database.write() as session:
            rejected(session)
        assert count(hooks.database, Message) == 1

    def test_no_listener_costs_a_question(self, alice, hooks, receiver, submit, digits_submission):
        def asked_by(model):
            digits_submission.claim["model"] = model
            with statements_of(hooks.database, re.compile("receivers|outbox").search) as sent:
                assert submit(digits_submission).status_code == 201
            return [text.partition(" ")[0] for text in sent]

        assert asked_by("first") == ["SELECT"]
        made = hooks.make(alice, receiver.url)
        assert asked_by("again") == ["SELECT", "INSERT"]
        with hooks.database.write() as session:
            hook = session.get_one(Receiver, made["id"])
            hook.disabled_at = utc_now()
        assert asked_by("and again") == ["SELECT"]

    def test_a_withdrawn_submission_can_be_told_of(self, hooks, receiver, alice, replay):
        hooks.make(alice, receiver.url, "submission.withdrawn")
        with hooks.database.write() as session:
            submission = session.get_one(Submission, replay.submission_id)
            emit(session, SubmissionWithdrawn(submission, []))
        hooks.run(lambda: receiver.posts)

        assert receiver.kinds == ["submission.withdrawn"]


def test_head_of_the_audit_log_is_told_daily(hooks, receiver, alice, olivia, client, monkeypatch):
    hooks.make(alice, receiver.url, "audit.head")

    def write_two_records():
        for _ in range(2):
            made = client.post("/api/v1/invitations", json={}, headers=olivia.headers)
            assert made.status_code == 201, made.text

    write_two_records()
    head = client.get("/api/v1/audit/head").json()
    tomorrow = utc_now() + timedelta(days=1)
    monkeypatch.setattr(audit, "utc_now", lambda: tomorrow)
    write_two_records()
    hooks.run(lambda: receiver.posts)

    (post,) = receiver.posts
    told = post.event["data"]["head"]
    assert post.event["type"] == "audit.head"
    assert (told["id"], told["sha256"]) == (head["id"], head["sha256"])


CONTENT = {
    "sentence": "<!channel> @everyone & co holds the record of digits (closed)",
    "submission": {
        "id": "3f9k2m7q1xyz", "benchmark": "digits", "division": "closed",
        "model": "<!channel> @everyone & co", "status": "verified", "tta_seconds": 0.91,
    },
    "links": {"page": "/submissions/3f9k2m7q1xyz"},
}  # fmt: skip
EVENT = Message(message_id="msg_1", kind="record.set", created_at=utc_now(), content=CONTENT)


@pytest.mark.parametrize(
    ("url", "field", "model", "more"),
    [
        ("https://hooks.slack.com/services/T0/B0/x", "text",
         "&lt;!channel&gt; @everyone &amp; co", {}),
        ("https://discord.com/api/webhooks/1/x", "content", "<!channel> @everyone & co",
         {"allowed_mentions": {"parse": []}}),
    ],
)  # fmt: skip
def test_a_chat_gets_an_event_as_a_message_that_calls_nobody(url, field, model, more):
    body = json.loads(post_body(url, EVENT, site="https://finishline.example"))
    first, *figures, page = body.pop(field).splitlines()
    assert (first, body) == (f"{model} holds the record of digits (closed)", more)
    assert "Time to accuracy: 0.91 s" in figures
    assert page == "https://finishline.example/submissions/3f9k2m7q1xyz"
    elsewhere = json.loads(post_body("https://hooks.example.org", EVENT, site=""))
    assert elsewhere["type"] == "record.set"
