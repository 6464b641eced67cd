"""Speed-ups: a measured package is trained in turn with the reference, when nothing else waits."""

from dataclasses import replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from finishline.rules.benchmarks.definition_tables import TrainingPolicy
from finishline.rules.verification.messages import BoxWord
from finishline.rules.verification.speed_up import side_of_run
from server.base.database import utc_now
from server.base.models import Attempt, Verification, WorkerRow
from server.verifications.overdue import end_waited, expire_leases, make_room
from tests.server.test_entries import (
    ENVIRONMENT,
    ENVIRONMENT_SHA256,
    FILES,
    Entries,
    paced_report,
)
from tests.support.build import claim_headers
from tests.support.workers import WORKER_SYSTEM, say_hello

TORCH, TORCH_SHA256 = "torch-2.99-cpu", "7" * 64


@pytest.fixture
def entries(client, database, walter):
    """A server with a worker that has the environments of entries and of the reference."""
    found = Entries(client, database, walter)
    box = BoxWord("anyone", None, {ENVIRONMENT: ENVIRONMENT_SHA256, TORCH: TORCH_SHA256})
    say_hello(client, walter, box=box)
    return found


def report_pairs(entries, lease, *, reference, misses=False):
    """Train in turn: the reference so many times as long, in its first run below the target."""
    with entries.database.read() as session:
        trainings = list(session.get_one(Attempt, lease["attempt_id"]).verification.trainings)
        report = paced_report(
            trainings, lambda run: reference if side_of_run(run.index) == "reference" else 1.0
        )
    if misses:
        first, *others = report.runs
        rows = [replace(row, quality=90.0, second_half=90.0) for row in first.evaluations]
        missed = replace(first, status="not_reached", tta_seconds=None, evaluations=rows)
        report = replace(report, runs=[missed, *others])
    answer = entries.report(lease, report)
    assert answer.status_code == 200, answer.text


def test_a_measured_package_is_trained_in_turn_with_the_reference_and_shows_its_speed_up(
    entries, alice, bob, client
):
    entry_id = entries.hand_in(alice).json()["id"]
    other = entries.hand_in(bob, FILES | {"notes.md": b"Another one.\n"}).json()["id"]
    entries.measure(entry_id)
    verification_id = entries.measurement(entry_id)
    shown = client.get(f"/api/v1/verifications/{verification_id}").json()
    assert (shown["kind"], shown["state"], shown["runs_planned"]) == ("speed_up", "queued", 12)

    # It is charged to nobody, and starts when nothing else waits.
    with entries.database.read() as session:
        assert session.get_one(Verification, verification_id).gpu_seconds_reserved is None
    quota = client.get("/api/v1/me/quota", headers=alice.headers).json()["quotas"][1]
    assert (quota["measure"], quota["reserved"]) == ("gpu_seconds_per_month", 0)
    assert len(entries.sent()) == 1
    with entries.database.read() as session:
        sent = session.scalars(select(Attempt).where(Attempt.sent_to > "")).unique().all()
        waiting = [each.verification.submission_id for each in sent if each.state == "queued"]
    assert waiting == [other]

    lease = entries.lease(entry_id)
    path = f"/api/v1/attempts/{lease['attempt_id']}/training"
    grant = client.get(path, headers=claim_headers(lease)).json()
    by_environment = {each["environment"]: each for each in grant["packages"].values()}
    assert by_environment[TORCH]["environment_sha256"] == TORCH_SHA256
    assert "class Training" in by_environment[TORCH]["files"]["train.py"]
    assert by_environment[ENVIRONMENT]["files"] == {n: t.decode() for n, t in FILES.items()}

    report_pairs(entries, lease, reference=3.0)
    shown = client.get(f"/api/v1/verifications/{verification_id}").json()
    assert shown["outcome"] == "verified", shown["reasons"]
    found = shown["speed_up"]
    assert found["pairs"] == 6
    assert found["low"] < 3.0 < found["high"]
    entry = client.get(f"/api/v1/submissions/{entry_id}").json()
    assert entry["package"]["speed_up"] == found
    assert entry["status"] == "verified"
    (row,) = client.get("/api/v1/leaderboards/digits").json()["entries"][:1]
    figures = ("speed_up", "speed_up_low", "speed_up_high", "speed_up_pairs")
    assert [row[name] for name in figures] == list(found.values())
    interval = f"{found['low']:.2f} to {found['high']:.2f}, 6 pairs"
    pages = (
        "/benchmarks/digits",
        f"/submissions/{entry_id}",
        f"/submissions/{entry_id}?tab=system",
        f"/verifications/{verification_id}",
    )
    for page in pages:
        text = client.get(page).text
        assert interval in text, page
        assert "speed-up" in text.lower(), page


def test_a_missed_target_takes_an_earlier_speed_up_away(entries, alice, olivia, client):
    entry_id = entries.hand_in(alice).json()["id"]
    entries.measure(entry_id)
    report_pairs(entries, entries.lease(entry_id), reference=1.0)
    own = client.get(f"/api/v1/submissions/{entry_id}").json()["package"]["speed_up"]
    assert own["low"] <= 1.0 <= own["high"]

    path = f"/api/v1/submissions/{entry_id}/verifications"
    refused = client.post(path, json={"kind": "speed_up"}, headers=alice.headers)
    assert refused.status_code == 403
    again = client.post(path, json={"kind": "speed_up"}, headers=olivia.headers)
    assert again.status_code == 201, again.text
    report_pairs(entries, entries.lease(entry_id), reference=1.0, misses=True)

    shown = client.get(f"/api/v1/verifications/{again.json()['id']}").json()
    assert (shown["outcome"], shown["speed_up"]) == ("inconclusive", None)
    assert "the reference missed the target in 1 of its 6 runs" in shown["reasons"][0]["message"]
    assert client.get(f"/api/v1/submissions/{entry_id}").json()["package"]["speed_up"] is None
    assert "these runs tell none" in client.get(f"/submissions/{entry_id}?tab=system").text


def test_a_running_speed_up_makes_room_for_an_entry(entries, alice, bob, client):
    entry_id = entries.hand_in(alice).json()["id"]
    entries.measure(entry_id)
    verification_id = entries.measurement(entry_id)
    lease = entries.lease(entry_id)
    with entries.database.write() as session:
        assert make_room(session, alive_seconds=60.0) == 0  # Nothing else waits.

    other = entries.hand_in(bob, FILES | {"notes.md": b"Another one.\n"}).json()["id"]
    with entries.database.write() as session:
        assert make_room(session, alive_seconds=60.0) == 1
        assert make_room(session, alive_seconds=60.0) == 0

    told = client.post(
        f"/api/v1/attempts/{lease['attempt_id']}/evaluations",
        json={"events": []},
        headers=claim_headers(lease),
    )
    assert told.json()["proceed"] is False, told.text
    shown = client.get(f"/api/v1/verifications/{verification_id}").json()
    assert (shown["state"], len(shown["attempts"])) == ("queued", 2)
    page = client.get(f"/verifications/{verification_id}").text
    assert "attempt 1 made room for others" in page
    with entries.database.read() as session:
        assert session.get_one(Verification, entries.measurement(other)).state == "queued"


def test_one_waiting_entry_takes_one_worker_and_to_make_room_is_no_failed_attempt(
    entries, alice, bob, client
):
    first = entries.hand_in(alice).json()["id"]
    second = entries.hand_in(bob, FILES | {"notes.md": b"Another one.\n"}).json()["id"]
    for each in (first, second):
        entries.measure(each)
    speed_up = entries.measurement(first)
    entries.lease(second)
    with entries.database.write() as session:
        own = session.get_one(WorkerRow, WORKER_SYSTEM.worker)
        columns = {each.name: getattr(own, each.name) for each in WorkerRow.__table__.columns}
        session.add(WorkerRow(**columns | {"name": "other-worker"}))
        session.flush()
        (running,) = session.scalars(select(Attempt).where(Attempt.state == "running"))
        running.worker = "other-worker"
    entries.lease(first)
    waiting = entries.hand_in(bob, FILES | {"notes.md": b"A third one.\n"}).json()["id"]

    for _ in range(3):
        with entries.database.write() as session:
            assert make_room(session, alive_seconds=60.0) == 1
            assert make_room(session, alive_seconds=60.0) == 0  # One is about to be free.
        entries.lease(first)
    entries.lease(waiting)
    shown = client.get(f"/api/v1/verifications/{speed_up}").json()
    assert len(shown["attempts"]) == 4

    for failed in range(3):
        state = client.get(f"/api/v1/verifications/{speed_up}").json()["state"]
        assert state == "running", f"after {failed} failed attempts"
        assert expire_leases(entries.database, now=utc_now() + timedelta(days=1)) > 0
        if failed < 2:
            entries.lease(first)
    shown = client.get(f"/api/v1/verifications/{speed_up}").json()
    assert (shown["state"], len(shown["attempts"])) == ("failed", 6)
    assert shown["reasons"][0]["message"].startswith("after 3 attempts: ")


def test_a_speed_up_that_no_worker_comes_to_ends_after_a_week(entries, alice, client):
    entry_id = entries.hand_in(alice).json()["id"]
    entries.measure(entry_id)
    week = timedelta(days=7)

    assert end_waited(entries.database, now=utc_now() + week - timedelta(hours=1)) == 0
    assert end_waited(entries.database, now=utc_now() + week + timedelta(hours=1)) == 1

    shown = client.get(f"/api/v1/verifications/{entries.measurement(entry_id)}").json()
    assert (shown["kind"], shown["state"]) == ("speed_up", "failed")
    assert "within seven days" in shown["reasons"][0]["message"]
    assert client.get(f"/api/v1/submissions/{entry_id}").json()["status"] == "verified"


def test_a_benchmark_without_a_reference_package_has_no_speed_up_and_says_why(
    entries, alice, olivia, client, monkeypatch
):
    monkeypatch.setattr(TrainingPolicy, "has_reference", property(lambda _: False))
    entry_id = entries.hand_in(alice).json()["id"]
    entries.measure(entry_id)

    listed = client.get(f"/api/v1/submissions/{entry_id}").json()["verifications"]
    assert [each["kind"] for each in listed] == ["entry"]
    path = f"/api/v1/submissions/{entry_id}/verifications"
    answer = client.post(path, json={"kind": "speed_up"}, headers=olivia.headers)
    assert answer.status_code == 422, answer.text
    why = "digits has no reference package to train beside it"
    assert answer.json()["detail"] == (
        f"Submission {entry_id} can have no speed-up measured: {why}."
    )
    board = client.get("/benchmarks/digits").text
    assert "this benchmark has no reference package" in board
    assert "Speed-up</a>" not in board
    assert why in client.get(f"/submissions/{entry_id}?tab=system").text
