"""Quotas: read, set, and spent on submissions and on the first verification of one's own."""

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest
from sqlalchemy import select, update

from server.base.database import utc_now
from server.base.models import Attempt, Submission, Verification
from server.submissions.quotas import Spent, _room_at
from server.verifications.sweep import expire_leases
from tests.support.build import Replay
from tests.support.workers import say_hello


@pytest.fixture
def settings(settings):
    return settings.model_copy(
        update={"quota_submissions_per_day": 3, "quota_gpu_seconds_per_month": 900}
    )


def ask(client, submission_id, person, **body):
    return client.post(
        f"/api/v1/submissions/{submission_id}/verifications", json=body, headers=person.headers
    )


@pytest.fixture
def own(digits_submission, submit):
    """A submission of alice's on four accelerators, whose replay nobody has measured yet."""
    digits_submission.claim["system"] |= {"accelerator": "H200", "accelerator_count": 4}
    answer = submit(digits_submission)
    assert answer.status_code == 201, answer.text
    return answer.json()["id"]


@pytest.fixture
def seconds(client, alice):
    """Accelerator seconds that alice used, and those of them that are reserved."""

    def read():
        view = client.get("/api/v1/me/quota", headers=alice.headers).json()["quotas"][1]
        return view["used"], view["reserved"]

    return read


def change(database, verification_id, whole, **attempt):
    with database.write() as session:
        row = session.get_one(Verification, verification_id)
        row.state = whole
        for name, value in attempt.items():
            setattr(row.attempts[-1], name, value)


def test_the_estimate_is_reserved(own, client, alice, bob, olivia, seconds):
    assert ask(client, own, bob).status_code == 403
    assert ask(client, own, alice, kind="latency").status_code == 403
    asked = ask(client, own, alice, reason="for the board")
    assert asked.status_code == 201, asked.text

    # 3 runs of at most 60 s each on 4 accelerators: the benchmark was never replayed.
    assert seconds() == (3 * 60 * 4, 3 * 60 * 4)
    assert ask(client, own, alice).status_code == 409
    record = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][0]
    assert (record["actor"], record["action"]) == ("alice", "verification.request")
    assert record["reason"] == "for the board"


def test_real_seconds_replace_the_estimate(own, client, alice, olivia, database, seconds):
    verification_id = ask(client, own, alice).json()["id"]
    began = utc_now() - timedelta(seconds=80)
    change(database, verification_id, "running", state="running", started_at=began, accelerators=8)
    assert seconds() == (720.0, 720.0)
    change(database, verification_id, "running", started_at=began - timedelta(seconds=80))
    used, reserved = seconds()
    assert 1280 <= used == reserved < 1420  # It runs for longer than was expected.
    ended = {"started_at": began, "ended_at": began + timedelta(seconds=50)}
    change(database, verification_id, "done", state="done", **ended)
    assert seconds() == (400.0, 0.0)
    refused = ask(client, own, alice)
    assert refused.status_code == 403
    assert "that stands" in refused.json()["detail"]
    assert ask(client, own, olivia).status_code == 201
    assert seconds() == (400.0, 0.0)  # An organiser's is not the submitter's.


@pytest.mark.parametrize(
    ("state", "failure", "charged"),
    [
        ("failed", {"kind": "infrastructure"}, 0.0),
        ("lost", {"kind": "infrastructure"}, 0.0),
        ("cancelled", None, 0.0),
        ("failed", {"kind": "submitter"}, 200.0),
        ("failed", {"kind": "time_limit"}, 200.0),
    ],
)
def test_failed_machines_are_free(state, failure, charged, own, client, alice, database, seconds):
    verification_id = ask(client, own, alice).json()["id"]
    began = utc_now() - timedelta(seconds=50)
    ended = {"started_at": began, "ended_at": began + timedelta(seconds=50), "accelerators": 4}
    change(database, verification_id, "failed", state=state, failure=failure, **ended)
    assert seconds() == (charged, 0.0)


@pytest.mark.parametrize("by", ["alice", "olivia"])
def test_a_withdrawn_replay_goes_on(by, own, client, alice, olivia, database, seconds, request):
    person = request.getfixturevalue(by)
    verification_id = ask(client, own, alice).json()["id"]
    began = utc_now() - timedelta(seconds=50)
    change(database, verification_id, "running", state="running", started_at=began, accelerators=4)
    before = seconds()
    client.post(
        f"/api/v1/submissions/{own}/withdrawal", json={"reason": "bad"}, headers=person.headers
    ).raise_for_status()
    assert client.get(f"/api/v1/verifications/{verification_id}").json()["state"] == "running"
    assert sum(seconds()) >= sum(before) > 0


def test_failed_machines_may_be_asked_three_times(own, client, alice, database):
    def end(answer, code):
        assert answer.status_code == 201, answer.text
        with database.write() as session:
            row = session.get_one(Verification, answer.json()["id"])
            row.state, row.outcome, row.reasons = "failed", "inconclusive", [{"code": code}]

    for _ in range(3):
        end(ask(client, own, alice), "infrastructure")
    refused = ask(client, own, alice)
    assert refused.status_code == 403
    assert "You made 3 requests" in refused.json()["detail"]
    with database.write() as session:
        session.execute(update(Verification).values(gpu_seconds_reserved=None))
    end(ask(client, own, alice), "replay_failed")
    assert "that stands" in ask(client, own, alice).json()["detail"]


def test_no_room_says_when_again(own, digits_submission, submit, client, alice, olivia, database):
    verification_id = ask(client, own, alice).json()["id"]
    other = submit(digits_submission, batch_size=32).json()["id"]
    refused = ask(client, other, alice)
    assert refused.status_code == 429
    assert 30 * 86400 - 60 <= int(refused.headers["Retry-After"]) <= 30 * 86400
    detail = refused.json()["detail"]
    assert "used 720 accelerator seconds in 30 days, 720 of them reserved" in detail
    assert "900 are allowed, and this replay will take about 720" in detail
    with database.read() as session:
        assert len(session.scalars(select(Verification)).all()) == 1
        assert session.get_one(Submission, other).status == "claimed"
    # A cancellation gives the room back; a smaller quota than the estimate never has any.
    client.post(f"/api/v1/verifications/{verification_id}/cancellation", headers=olivia.headers)
    put(client, ALICE, olivia, gpu_seconds_per_month=719)
    never = ask(client, other, alice)
    assert (never.status_code, "ask an organiser" in never.json()["detail"]) == (403, True)
    put(client, ALICE, olivia, gpu_seconds_per_month=720)
    assert ask(client, other, alice).status_code == 201


@pytest.mark.parametrize(
    ("wanted", "day"),
    [(100, None), (101, 1), (400, 1), (401, 2), (1000, 3), (1001, None)],
)
def test_there_is_room_again_when_enough_was_spent_thirty_days_ago(wanted, day):
    """Of 1,000 seconds 300, 400 and 200 were used, one after the other."""
    days = {number: datetime(2026, 3, number, tzinfo=UTC) for number in (1, 2, 3)}
    spent = [Spent(days[number], used, False) for number, used in ((1, 300), (2, 400), (3, 200))]

    found = _room_at(spent, allowed=1000, used=900, wanted=wanted)

    assert found == (None if day is None else days[day] + timedelta(days=30))


def test_a_lease_keeps_the_accelerators(own, client, alice, walter, database, seconds):
    verification_id = ask(client, own, alice).json()["id"]
    system = {"hardware_class": "gpu-h200", "accelerator": "H200", "accelerator_count": 8}
    assert say_hello(client, walter, **system).status_code == 200
    replay = Replay(client, database, walter, own, verification_id)
    assert replay.claim().status_code == 200
    with database.write() as session:
        attempt = session.get_one(Attempt, replay.attempt_id)
        assert attempt.accelerators == 8
        attempt.lease_expires_at = utc_now() - timedelta(hours=1)
    assert expire_leases(database) == 1
    assert seconds() == (720.0, 720.0)  # Lost: nothing used, and the next attempt is waited for.
    assert replay.view()["state"] == "queued"


MINE, ALL, ALICE = "/api/v1/me/quota", "/api/v1/quotas", "/api/v1/quotas/alice"


def put(client, address, person, **body):
    return client.put(address, json={"reason": "a course"} | body, headers=person.headers)


def allowed(view):
    return {use["measure"]: use["allowed"] for use in view["quotas"]}


def test_users_read_their_own_quota(client, alice, digits_submission, submit):
    submit(digits_submission)
    assert client.get(MINE, headers=alice.headers).json() == {
        "user": "alice",
        "quotas": [
            {"measure": "submissions_per_day", "allowed": 3, "used": 1.0, "reserved": 0.0,
             "room_at": None},
            {"measure": "gpu_seconds_per_month", "allowed": 900, "used": 0.0, "reserved": 0.0,
             "room_at": None},
        ],
    }  # fmt: skip


def test_an_organiser_sets_lifts_and_takes_back_a_quota_and_says_why(client, alice, olivia):
    view = put(client, ALICE, olivia, submissions_per_day=5, gpu_seconds_per_month="unlimited")
    assert view.status_code == 200
    assert allowed(view.json()) == {"submissions_per_day": 5, "gpu_seconds_per_month": None}
    listed = client.get(ALL, headers=olivia.headers).json()
    assert listed["defaults"] == {"submissions_per_day": 3, "gpu_seconds_per_month": 900}
    override = {"submissions_per_day": 5, "gpu_seconds_per_month": None}
    assert listed["overrides"] == [{"user": "alice", "quotas": override}]
    back = put(client, ALICE, olivia, gpu_seconds_per_month="default", reason="it is over")
    assert allowed(back.json()) == {"submissions_per_day": 5, "gpu_seconds_per_month": 900}
    assert allowed(client.get(ALICE, headers=olivia.headers).json()) == allowed(back.json())
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    assert [(r["action"], r["subject_id"], r["reason"]) for r in records[:2]] == [
        ("quota.set", "alice", "it is over"),
        ("quota.set", "alice", "a course"),
    ]
    assert records[0]["before"] == {"quota": override}
    assert records[0]["after"] == {"quota": {"submissions_per_day": 5}}
    put(client, ALICE, olivia, submissions_per_day="default")
    assert client.get(ALL, headers=olivia.headers).json()["overrides"] == []
    assert put(client, ALICE, olivia).status_code == 422


def test_a_bad_body_is_422_and_sets_nothing(client, olivia, alice):
    numbers = (-1, 1.5, "many", "5", True, 10**13)
    for body in (*({"submissions_per_day": n} for n in numbers), {"reason": " "}, {"hours": 1}):
        refused = put(client, ALICE, olivia, **body)
        assert refused.status_code == 422, body
        (name,) = body
        assert {problem["field"] for problem in refused.json()["problems"]} == {f"body.{name}"}
    assert client.get(ALL, headers=olivia.headers).json()["overrides"] == []


HOUR = timedelta(hours=1)


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_full_quota_says_when_there_is_room(
    digits_submission, submit, database, client, alice, bob, olivia, row_counts, stored_files
):
    first = submit(digits_submission, key="one")
    assert [submit(digits_submission).status_code for _ in range(2)] == [201, 201]
    with database.write() as session:
        rows = session.scalars(select(Submission).order_by(Submission.submitted_at))
        for row, hours in zip(rows, (20, 10, 1), strict=True):
            row.submitted_at = utc_now() - hours * HOUR
    before, files = row_counts(), stored_files()
    refused = submit(digits_submission)

    assert refused.status_code == 429
    assert 4 * 3600 - 60 <= int(refused.headers["Retry-After"]) <= 4 * 3600
    detail = refused.json()["detail"]
    assert "You have made 3 submissions in 24 hours, 3 are allowed." in detail
    mine = client.get("/api/v1/me/quota", headers=alice.headers).json()["quotas"][0]
    left = datetime.fromisoformat(mine["room_at"]) - utc_now()
    assert timedelta(hours=3.9) < left <= timedelta(hours=4)
    assert f"{mine['room_at'][:10]} {mine['room_at'][11:19]} UTC" in detail
    assert (row_counts(), stored_files()) == (before, files)
    scraped = client.get("/metrics").text
    assert 'finishline_quota_refusals_total{measure="submissions_per_day"} 1.0' in scraped

    # What was answered before is answered again; others, and who is an organiser, go on.
    again = submit(digits_submission, key="one")
    assert (again.status_code, again.json()["id"]) == (201, first.json()["id"])
    assert submit(digits_submission, by=bob).status_code == 201
    assert submit(digits_submission, by=olivia).status_code == 201
    with database.write() as session:
        session.get_one(Submission, first.json()["id"]).submitted_at -= 5 * HOUR
    assert submit(digits_submission).status_code == 201
    assert submit(digits_submission).status_code == 429


def test_archives_count_for_nobody(digits_submission, submit, database, client, alice, olivia):
    assert submit(digits_submission).status_code == 201
    with database.write() as session:
        for row in session.scalars(select(Submission)):
            row.evidence = "published"
    assert client.get(MINE, headers=alice.headers).json()["quotas"][0]["used"] == 0
    # A quota of nothing takes nothing.
    assert put(client, ALICE, olivia, submissions_per_day=0).is_success
    assert submit(digits_submission).status_code == 403


@pytest.mark.parametrize("database_url", ["sqlite", "postgresql"], indirect=True)
def test_concurrent_requests_get_no_more_than_is_allowed(digits_submission, submit, database):
    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(lambda _: submit(digits_submission), range(8)))
    assert sorted(answer.status_code for answer in answers) == [201] * 3 + [429] * 5
    with database.read() as session:
        assert len(session.scalars(select(Submission.id)).all()) == 3
