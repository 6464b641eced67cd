"""The way of a submission to its verdict on SQLite and PostgreSQL, and steps taken at once.

On PostgreSQL several transactions write at the same time, so these are the tests of its locks.
"""

import json
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import replace
from datetime import timedelta
from functools import partial

import pytest
from sqlalchemy import func, select

from finishline.rules.statistics.aggregate import olympic_mean
from server.base.database import utc_now
from server.base.models import PoolRun
from server.verifications.sweep import end_overdue, expire_leases
from tests.support.boards import rows_of
from tests.support.both_databases import ON_POSTGRESQL, at_once, wait_until_blocked
from tests.support.build import Replay
from tests.support.streams import stream_report, streamed
from tests.support.workers import greet_as_servers, say_hello

RUN_STARTED = {"sequence": 0, "run": 0, "kind": "run_started"}


@pytest.fixture(params=["sqlite", "postgresql"])
def database_url(request):
    return request.getfixturevalue(f"{request.param}_url")


def codes(answers):
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return sorted(answer.status_code for answer in answers)


def test_a_submission_is_replayed_and_ranked(replay, client, database, make_report):
    assert client.get("/api/v1/queue").json()["waiting"] == 1
    lost = replay.claim().json()["attempt_id"]
    replay.change(lost, lease_expires_at=utc_now() - timedelta(hours=1))
    assert (expire_leases(database), end_overdue(database)) == (1, 0)
    grant = replay.claim().json()
    assert replay.post(grant, [{"sequence": 0, "run": 0, "kind": "phase"}]).status_code == 200
    assert client.get("/workers").status_code == 200
    report = make_report(replay.seeds())
    assert replay.report(grant, report).json()["outcome"] == "verified"

    assert replay.status() == "verified"
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    assert (entry["rank"], entry["status"]) == (1, "verified")
    # What ranks is the time of the sealed runs.
    view = replay.view()
    assert (view["state"], bool(view["reasons"])) == ("done", True)
    assert view["ended_at"] is not None
    assert [run["seed"] for run in view["report"]["runs"]] == view["seeds"]
    measured = olympic_mean([run.tta_seconds for run in report.runs], dropped=1)
    assert entry["tta_seconds"] == entry["measured_seconds"] == pytest.approx(measured)
    assert (entry["evidence"], entry["claimed_seconds"]) == ("measured", pytest.approx(0.944))
    curve = client.get(f"/api/v1/submissions/{replay.submission_id}/runs/0/curve").json()
    assert len(curve["evaluations"]) == 8
    verification = f"/verifications/{replay.verification_id}"
    submission = f"/submissions/{replay.submission_id}"
    for page in ("/", "/benchmarks/digits", submission, verification, "/workers"):
        assert client.get(page).status_code == 200
    assert client.get("/api/v1/queue").json()["waiting"] == 0
    events = client.get(f"/api/v1/verifications/{replay.verification_id}/events").text
    assert events.count("event: replay") == len(streamed(report))
    assert client.get("/api/v1/submissions?limit=1").json()["next_cursor"] is None


def test_the_first_submissions_of_all_come_at_once(digits_submission, submit, client):
    """Each would write the benchmark's definition and the board's first version."""
    answers = at_once(*[lambda: submit(deepcopy(digits_submission))] * 5)

    assert codes(answers) == [201] * 5
    board = client.get("/api/v1/leaderboards/digits").json()
    assert (board["total"], board["version"]) == (5, 5)


def test_one_key_at_once_is_one_submission(digits_submission, submit, client, stored_files):
    answers = at_once(*[lambda: submit(digits_submission, key="key-1")] * 5)

    assert codes(answers) == [201] * 5
    assert len({answer.json()["id"] for answer in answers}) == 1
    assert sum("idempotent-replayed" in answer.headers for answer in answers) == 4
    assert len(client.get("/api/v1/submissions").json()["submissions"]) == 1
    assert not [path for path in stored_files() if path.startswith("incoming/")]


def test_other_submissions_leave_no_file(digits_submission, submit, make_log, stored_files):
    other = deepcopy(digits_submission)
    other.logs["run_0.log"] = make_log(999)
    answers = at_once(*[lambda p=p: submit(p, key="key-1") for p in (digits_submission, other)])

    assert codes(answers) == [201, 409]
    assert len(stored_files()) == 4  # One JSON and three logs.


def test_verifications_asked_for_at_once_are_one(digits_submission, submit, client, olivia):
    submission_id = submit(digits_submission).json()["id"]
    address = f"/api/v1/submissions/{submission_id}/verifications"
    answers = at_once(*[lambda: olivia.post(address)] * 4)

    assert codes(answers) == [201, 409, 409, 409]
    assert len(client.get("/api/v1/verifications").json()["verifications"]) == 1


def test_head_to_heads_at_once_are_one(digits_submission, submit, client, olivia, bob):
    first = submit(digits_submission).json()["id"]
    second = submit(digits_submission, by=bob).json()["id"]

    def ask(challenger, holder):
        body = {"challenger": challenger, "holder": holder}
        return olivia.post("/api/v1/head-to-heads", body)

    turns = [lambda: ask(first, second), lambda: ask(second, first)]
    answers = at_once(*turns, *turns)

    assert codes(answers) == [201, 409, 409, 409]
    assert len(client.get("/api/v1/verifications").json()["verifications"]) == 1


def test_claims_at_once_have_one_winner(replay):
    attempt_id = replay.attempt_id
    answers = at_once(*[lambda n=n: replay.claim(attempt_id, worker=f"w-{n}") for n in range(4)])

    assert codes(answers) == [200, 409, 409, 409]
    winner = next(n for n in range(4) if answers[n].status_code == 200)
    assert replay.view()["attempts"][0]["worker"] == f"w-{winner}"


def test_one_report_sent_twice_at_once_is_one_verdict(replay, client, database, make_report):
    grant = replay.claim().json()
    version = client.get("/api/v1/leaderboards/digits").json()["version"]
    report = make_report(replay.seeds())
    stream_report(database, grant["attempt_id"], report)
    greet_as_servers(database, report.system.worker, report.system.hardware_class)
    answers = at_once(*[lambda: replay.post_report(grant, report)] * 3)

    assert codes(answers) == [200] * 3
    assert {answer.json()["outcome"] for answer in answers} == {"verified"}
    # One measures the time, and then gives the verdict.
    assert client.get("/api/v1/leaderboards/digits").json()["version"] == version + 2
    with database.read() as session:
        stored = session.scalar(select(func.count()).select_from(PoolRun))
    assert stored == len(replay.seeds()) >= 3


def test_the_same_events_posted_at_once_are_stored_once(replay, row_counts):
    grant = replay.claim().json()
    events = [{"sequence": n, "run": 0, "kind": "phase"} for n in range(50)]
    answers = at_once(*[lambda: replay.post(grant, events)] * 4)

    assert codes(answers) == [200] * 4
    assert row_counts()["replay_events"] == 50


@ON_POSTGRESQL
def test_report_and_withdrawal_wait_for_the_writer(replay, client, database, olivia, make_report):
    grant, report = replay.claim().json(), make_report(replay.seeds())
    stream_report(database, grant["attempt_id"], report)
    greet_as_servers(database, report.system.worker, report.system.hardware_class)
    address = f"/api/v1/submissions/{replay.submission_id}/withdrawal"
    withdrawal = partial(client.post, address, json={"reason": "x"}, headers=olivia.headers)
    with ThreadPoolExecutor(2) as others, database.write():
        reported = others.submit(replay.post_report, grant, report)
        wait_until_blocked(database)
        withdrawn = others.submit(withdrawal)
        wait_until_blocked(database, 2)

    assert codes([reported.result(), withdrawn.result()]) == [200, 200]
    assert replay.status() == reported.result().json()["outcome"] == "verified"


@ON_POSTGRESQL
def test_sign_ons_and_events_wait_for_no_writer(replay, client, database):
    grant = replay.claim().json()
    assert say_hello(client, replay.worker).status_code == 200
    with ThreadPoolExecutor(1) as others, database.write():
        told = others.submit(say_hello, client, replay.worker, state="busy").result(timeout=5)
        posted = others.submit(replay.post, grant, [RUN_STARTED]).result(timeout=5)
        claimed = others.submit(replay.claim)
        wait_until_blocked(database)

    assert codes([told, posted, claimed.result()]) == [200, 200, 409]


@ON_POSTGRESQL
def test_of_two_reports_with_one_curve_that_come_at_once_one_is_refused(
    replay, digits_submission, submit, database, bob, olivia, make_report
):
    both = [replay, replace(replay)]
    both[1].ask_again(olivia, submit(digits_submission, by=bob, batch_size=32).json()["id"])
    first, second = (make_report(each.seeds()) for each in both)
    second.runs[-1] = replace(
        first.runs[-1], index=second.runs[-1].index, seed=second.runs[-1].seed
    )
    grants = [each.claim(worker=f"walter-{n}").json() for n, each in enumerate(both)]
    reports = []
    for n, (grant, report) in enumerate(zip(grants, (first, second), strict=True)):
        report = replace(report, system=replace(report.system, worker=f"walter-{n}"))
        stream_report(database, grant["attempt_id"], report)
        greet_as_servers(database, report.system.worker, report.system.hardware_class)
        reports.append(partial(replay.post_report, grant, report))
    with ThreadPoolExecutor(2) as others, database.write():
        reported = [others.submit(each) for each in reports]
        wait_until_blocked(database, 2)

    answers = [each.result() for each in reported]
    assert codes(answers) == [200, 422]
    assert "those of run" in next(each.text for each in answers if each.status_code == 422)


@pytest.mark.parametrize("repetition", range(3))
def test_report_cancellation_and_reaper_agree(repetition, replay, database, olivia, make_report):
    grant = replay.claim().json()
    report = make_report(replay.seeds())
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(seconds=1))

    reap = partial(expire_leases, database)
    reported, cancelled, reaped, _ = at_once(
        lambda: replay.report(grant, report),
        lambda: replay.cancel(olivia),
        reap,
        reap,
    )

    view = replay.view()
    first = view["attempts"][0]["state"]
    ending = {"verified": "done", "claimed": "cancelled", "verifying": "queued"}
    assert view["state"] == ending[replay.status()]
    assert reported.status_code == (200 if first == "done" else 409)
    assert (view["state"] == "cancelled") == (cancelled.status_code == 200)
    assert isinstance(reaped, int)
    states = [attempt["state"] for attempt in view["attempts"]]
    assert states in (["done"], ["lost"], ["lost", "cancelled"], ["lost", "queued"])


def test_last_chunks_reported_at_once_end_it(client, database, olivia, walter, make_report):
    asked = {"benchmark": "digits", "batch_sizes": [32, 64], "runs": 1}
    start = partial(client.post, "/api/v1/calibrations", json=asked, headers=olivia.headers)
    view = start().json()
    reports = []
    for chunk in view["chunks"]:
        one = Replay(client, database, walter, None, chunk["verification_id"])
        report = make_report(one.seeds())
        grant = one.claim().json()
        stream_report(database, grant["attempt_id"], report)
        reports.append(partial(one.post_report, grant, report))

    assert codes(at_once(*reports)) == [200, 200]
    ended = client.get(f"/api/v1/calibrations/{view['id']}").json()
    assert (ended["state"], ended["runs_finished"]) == ("done", 2)
    versions = at_once(*[start] * 3)
    assert codes(versions) == [201] * 3
    assert sorted(answer.json()["version"] for answer in versions) == [2, 3, 4]


def test_hellos_and_users_at_once_are_one_each(ada, walter, make_report, row_counts):
    users = row_counts()["users"]
    hello = {"system": vars(make_report([]).system), "state": "idle", "protocol": 1}
    hellos = [lambda: walter.post("/api/v1/workers/hello", hello)] * 3
    added = [lambda: ada.post("/api/v1/users", {"name": "carol"})] * 3
    answers = at_once(*hellos, *added)

    assert codes(answers) == [200] * 3 + [201] + [409] * 2
    assert row_counts()["users"] == users + 1
    assert row_counts()["workers"] == 1


def test_a_character_no_database_stores_is_refused(client, olivia):
    headers = olivia.headers | {"Content-Type": "application/json"}
    ids = b'{"challenger": "a\\u0000", "holder": "b"}'
    asked = client.post("/api/v1/head-to-heads", content=ids, headers=headers)
    assert asked.status_code in (404, 422)
    for path in (
        "/api/v1/submissions/%00", "/api/v1/submissions?benchmark=%00",
        "/api/v1/verifications/%00", "/api/v1/verifications/%00/events", "/submissions/%00",
        "/api/v1/submissions/%ff%fe",
    ):  # fmt: skip
        response = client.get(path)
        assert response.status_code in (200, 404, 422), path
        if response.status_code != 200:
            assert response.headers["content-type"] == "application/problem+json", path


@pytest.mark.parametrize("reason", ["a\0b", "\ud800", "\U0001f600 é"])
def test_any_text_is_stored_or_refused(reason, digits_submission, submit, client, olivia):
    submission_id = submit(digits_submission).json()["id"]
    response = client.post(
        f"/api/v1/submissions/{submission_id}/verifications",
        content=json.dumps({"reason": reason}),  # ASCII, with escapes.
        headers=olivia.headers | {"Content-Type": "application/json"},
    )

    assert response.status_code in (201, 422), response.text
    if response.status_code == 201:
        assert response.json()["reason"] == reason
