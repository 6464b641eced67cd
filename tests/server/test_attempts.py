"""An attempt's life: claim, events, report, lease, limit; each step counted once."""

import json
import math
import re
from dataclasses import asdict, replace
from datetime import timedelta

import pytest
from sqlalchemy import select

from finishline.rules.verification.messages import Failure
from server.base.database import utc_now
from server.base.http import CURRENT
from server.base.models import Attempt, ReplayEventRow, Token, Verification
from server.operations import limits
from server.verifications.sweep import end_overdue, expire_leases
from tests.support.boards import rows_of
from tests.support.build import build_report, claim_headers
from tests.support.workers import say_hello, send_to

LATE = timedelta(hours=1)


def evaluation(sequence, quality=50.0):
    seen = {"seconds": 0.1 * sequence, "epoch": float(sequence), "samples": 1152 * sequence}
    told = {"sequence": sequence, "run": 0, "kind": "evaluation", "quality": quality}
    return seen | told


def stored_events(database, attempt_id):
    sequence = ReplayEventRow.sequence
    query = select(sequence).where(ReplayEventRow.attempt_id == attempt_id).order_by(sequence)
    with database.read() as session:
        return list(session.scalars(query))


DIED = Failure("infrastructure", "child_died", "the child died", "nothing to do")


def test_a_claim_gives_the_attempt_to_one_worker(replay):
    grant = replay.claim()

    assert grant.status_code == 200
    # digits.toml: lease_seconds = 8.
    assert (grant.json()["fence"], grant.json()["lease_seconds"]) == (1, 8.0)
    assert replay.claim(worker="walter-2").status_code == 409
    view = replay.view()
    assert (view["state"], view["attempts"][0]["state"]) == ("running", "running")
    assert view["attempts"][0]["worker"] == "walter-1"
    assert replay.post(grant.json(), []).json() == {"proceed": True, "reason": None}


def test_the_id_of_an_attempt_that_waits_is_nobodys_to_read(replay, client, olivia):
    attempt_id = replay.attempt_id
    verification = f"/verifications/{replay.verification_id}"
    submission = f"/submissions/{replay.submission_id}"
    for view in (
        verification, submission, f"/api/v1{verification}", f"/api/v1{submission}",
        "/api/v1/queue", "/workers",
    ):  # fmt: skip
        assert attempt_id not in client.get(view).text + olivia.get(view).text, view
    assert replay.view()["attempts"][0]["id"] is None
    replay.claim()
    assert replay.view()["attempts"][0]["id"] == attempt_id


def test_a_claim_names_its_worker(replay, client, walter, make_person):
    say_hello(client, walter)
    wilma = make_person("wilma", "worker")
    address = f"/api/v1/attempts/{replay.attempt_id}/claim"
    body = {"worker": "walter-1", "protocol": 1}

    bad = walter.post(address, {})
    assert bad.status_code == 422
    assert bad.json()["problems"][0]["field"] == "body.worker"
    assert replay.claim("nothing").status_code == 404
    assert wilma.post(address, body).status_code == 403
    send_to(replay.database, replay.attempt_id, "walter-1")
    assert replay.view()["state"] == "queued"
    assert walter.post(address, body).status_code == 200


def test_a_claims_token_is_needed_for_its_posts(replay, client, walter, database):
    grant = replay.claim().json()
    address = f"/api/v1/attempts/{replay.attempt_id}/evaluations"

    by_worker_token = walter.headers | {"Finishline-Fence": "1"}
    answer = client.post(address, json={"events": []}, headers=by_worker_token)
    assert answer.status_code == 409
    stales = [{"token": "fla_wrong"}, {"fence": 0}, {"fence": 2}]
    for stale in stales:
        assert replay.post(grant | stale, [evaluation(0)]).status_code == 409
    assert stored_events(database, replay.attempt_id) == []
    for stale in stales:
        assert replay.train(grant | stale).status_code == 409
    without_fence = {"Authorization": f"Bearer {grant['token']}"}
    answer = client.post(address, json={"events": []}, headers=without_fence)
    assert answer.status_code == 422
    assert "Finishline-Fence" in answer.json()["problems"][0]["field"]
    assert replay.post(grant | {"attempt_id": "nothing"}, []).status_code == 404
    assert replay.view()["state"] == "running"


def test_an_event_has_the_moment_at_which_its_first_post_was_read(replay, database, monkeypatch):
    """Its post waits for a thread and for the database, and a later one may be written before."""
    grant, moment = replay.claim().json(), utc_now()
    later, latest = (moment + timedelta(seconds=number) for number in (1, 2))

    def post(at, *events):
        monkeypatch.setattr(limits, "note_read", lambda: setattr(CURRENT.get(), "read_at", at))
        assert replay.post(grant, list(events)).json() == {"proceed": True, "reason": None}

    post(later, evaluation(0), evaluation(1), evaluation(2))
    post(latest, evaluation(0), evaluation(3), evaluation(3))
    post(moment, evaluation(0), evaluation(1, quality=60.0))

    with database.read() as session:
        rows = session.scalars(select(ReplayEventRow).order_by(ReplayEventRow.sequence)).all()
        assert [row.sequence for row in rows] == [0, 1, 2, 3]
        # Another quality is no word that came sooner.
        assert [row.created_at for row in rows] == [moment, later, later, latest]
        assert rows[1].event["quality"] == 50.0


def test_an_event_or_a_report_that_is_none_is_422(replay, database, client):
    grant = replay.claim().json()
    phase, evaluated = ({"sequence": 0, "run": 0, "kind": kind} for kind in ("phase", "evaluation"))
    for event in (
        *(phase | {"sequence": number} for number in (-1, 2**31, 2**70)),
        phase | {"run": 2**70}, phase | {"kind": "strange"}, {"run": 0, "kind": "phase"},
        evaluated | {"quality": math.nan}, evaluated | {"seconds": math.inf},
        evaluated | {"quality": "high"},
    ):  # fmt: skip
        assert replay.post(grant, [event]).status_code == 422, event
    assert stored_events(database, replay.attempt_id) == []

    def send(report):
        address = f"/api/v1/attempts/{grant['attempt_id']}/report"
        headers = claim_headers(grant) | {"Content-Type": "application/json"}
        return client.post(address, content=json.dumps(report), headers=headers)

    for runs in (None, [{}], "x"):
        assert send({"runs": runs}).status_code == 422, runs
    # A number that nobody could read again is refused.
    report = asdict(build_report(replay.seeds()))
    first = report["runs"][0]["evaluations"][0]
    honest = dict(first)
    numbers = [(name, number) for name in ("quality", "seconds") for number in (math.nan, math.inf)]
    counts = [("samples", number) for number in (math.nan, math.inf, 2**53, 2**80)]
    for name, number in (*numbers, *counts):
        first |= honest | {name: number}
        assert send(report).status_code == 422, (name, number)
    assert replay.view()["state"] == "running"
    for name in ("quality", "seconds"):  # A double holds it.
        first |= honest | {name: 2**80}
        send(report)
        assert client.get("/").status_code == 200


def test_a_heartbeat_renews_the_lease(replay, database):
    grant = replay.claim().json()

    def is_whole():
        with database.read() as session:
            left = session.get_one(Attempt, grant["attempt_id"]).lease_expires_at - utc_now()
        return timedelta(seconds=6) < left <= timedelta(seconds=8)

    assert is_whole()
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() + timedelta(seconds=1))
    replay.post(grant, [])
    assert is_whole()
    assert expire_leases(database) == 0


def test_a_silent_worker_is_fenced_off_and_another_attempt_is_queued(replay, database):
    old = replay.claim().json()
    replay.post(old, [evaluation(0)])
    replay.change(old["attempt_id"], lease_expires_at=utc_now() - LATE)

    assert expire_leases(database) == 1
    assert expire_leases(database) == 0
    view = replay.view()
    assert view["state"] == "queued"
    assert [(a["number"], a["state"]) for a in view["attempts"]] == [(1, "lost"), (2, "queued")]
    failure = view["attempts"][0]["failure"]
    assert (failure["kind"], failure["code"]) == ("infrastructure", "worker_lost")
    # The old worker wakes up again.
    assert replay.post(old, [evaluation(1)]).status_code == 409
    assert replay.train(old).status_code == 409
    assert replay.claim(old["attempt_id"]).status_code == 409
    assert stored_events(database, old["attempt_id"]) == [0]
    # The new one ends it: one result, of the second attempt.
    new = replay.claim().json()
    assert replay.train(new).json()["outcome"] == "verified"
    assert [a["state"] for a in replay.view()["attempts"]] == ["lost", "done"]


@pytest.mark.parametrize("end", ["lost", "failed"])
def test_verification_fails_after_its_last_attempt(end, replay, database, make_report):
    failed = replace(make_report([]), failure=DIED)
    for _ in range(3):  # digits.toml: max_attempts = 3
        grant = replay.claim().json()
        if end == "failed":
            replay.report(grant, failed)
        else:
            replay.change(grant["attempt_id"], lease_expires_at=utc_now() - LATE)
            assert expire_leases(database) == 1

    view = replay.view()
    assert [a["state"] for a in view["attempts"]] == [end] * 3
    last = "request it again once the workers run"
    next_steps = [attempt["failure"]["next_step"] for attempt in view["attempts"]]
    assert [step == last for step in next_steps] == [False, False, True]
    assert (view["state"], view["outcome"]) == ("failed", "inconclusive")
    (reason,) = view["reasons"]
    assert (reason["code"], reason["message"].endswith(last[1:])) == ("infrastructure", True)
    assert view["ended_at"] is not None
    assert replay.status() == "claimed"


def test_a_report_sent_twice_is_answered_the_same(replay, row_counts, make_report):
    grant = replay.claim().json()
    report = make_report(replay.seeds())
    first = replay.report(grant, report)
    after_first = replay.view(), row_counts()
    second = replay.report(grant, report)

    assert (first.status_code, second.status_code) == (200, 200)
    assert second.json() == first.json()
    assert (replay.view(), row_counts()) == after_first
    assert replay.post(grant, [evaluation(0)]).status_code == 409


@pytest.mark.parametrize(
    "change",
    [
        lambda seeds: [*seeds[:-1], seeds[-1] + 1],
        lambda seeds: seeds[::-1],
        lambda seeds: seeds[:-1],
        lambda seeds: [*seeds, 7],
        lambda seeds: [],
        lambda _seeds: [1],
    ],
    ids=["another seed", "another order", "one run less", "one run more", "no runs", "made up"],
)
def test_a_report_of_other_seeds_is_422_and_decides_nothing(change, replay, make_report):
    grant = replay.claim().json()
    told = change(replay.seeds())
    response = replay.report(grant, make_report(told))

    assert response.status_code == 422
    untold = {seed for seed in replay.seeds() if seed > 9} - set(told)
    assert [seed for seed in untold if str(seed) in response.text] == []
    assert replay.view()["state"] == "running"
    assert replay.train(grant).status_code == 200


def test_a_failure_of_the_infrastructure_queues_another_attempt(replay, make_report, client):
    def check():
        (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
        return str(entry["check"])

    report = make_report(replay.seeds())
    report.runs[1] = replace(report.runs[1], status="failed", tta_seconds=None, failure=DIED)
    assert (check(), replay.view()["attempts"][0]["refunded"]) == ("queued", False)
    grant = replay.claim().json()
    assert check() == "running"
    answer = replay.report(grant, report).json()

    assert (answer["state"], answer["outcome"]) == ("queued", None)
    assert check() == "queued"
    first, second = replay.view()["attempts"]
    assert (first["state"], second["state"]) == ("failed", "queued")
    assert (first["failure"]["code"], first["refunded"]) == ("child_died", True)
    assert replay.status() == "verifying"


@pytest.mark.parametrize("kind", ["rules", "submitter"])
def test_a_failure_that_would_come_again_ends_the_verification_at_once(kind, replay, make_report):
    failure = Failure(kind, "data_set_differs", "another data set", "install the right one")
    report = replace(make_report([]), failure=failure)
    answer = replay.report(replay.claim().json(), report).json()

    assert (answer["state"], answer["outcome"]) == ("failed", "inconclusive")
    (attempt,) = replay.view()["attempts"]
    assert attempt["state"] == "failed"
    assert (attempt["failure"]["code"], attempt["failure"]["kind"]) == (failure.code, kind)
    assert attempt["refunded"] is False
    assert replay.status() == "claimed"


def test_a_worker_learns_of_a_cancellation_with_its_next_post(replay, database, olivia):
    with database.write() as session:  # A running replay can't be cancelled.
        session.get_one(Verification, replay.verification_id).kind = "calibration"
    grant = replay.claim().json()
    assert replay.cancel(olivia).status_code == 200

    answer = replay.post(grant, [evaluation(0)])
    assert (answer.status_code, answer.json()) == (200, {"proceed": False, "reason": "cancelled"})
    assert replay.train(grant).status_code == 409
    view = replay.view()
    assert (view["state"], view["outcome"], view["report"]) == ("cancelled", None, None)


def test_a_replay_over_its_time_is_told_to_stop_and_then_ended(replay, database):
    """digits.toml: run_limit_seconds = 60, to which 60 s for the start are allowed."""
    grant = replay.claim().json()
    assert end_overdue(database) == 0
    replay.change(grant["attempt_id"], started_at=utc_now() - timedelta(seconds=125))

    assert replay.post(grant, []).json() == {"proceed": False, "reason": "time_limit"}
    assert end_overdue(database) == 1
    view = replay.view()
    assert (view["state"], view["outcome"]) == ("failed", "inconclusive")
    failure = view["attempts"][0]["failure"]
    assert (failure["kind"], failure["code"]) == ("time_limit", "run_time_limit")
    assert replay.status() == "claimed"
    assert replay.post(grant, []).status_code == 409


def test_the_verdict_and_the_status_come_in_one_transaction(replay, monkeypatch):
    grant = replay.claim().json()

    def fail(*_):
        raise RuntimeError("the server dies here")

    with monkeypatch.context() as patched:
        patched.setattr("server.verifications.judge.follow_evidence", fail)
        with pytest.raises(RuntimeError, match="dies here"):
            replay.train(grant)
    view = replay.view()
    assert (view["state"], view["outcome"], view["report"]) == ("running", None, None)
    assert view["attempts"][0]["state"] == "running"
    assert replay.status() == "verifying"
    assert replay.train(grant).json()["outcome"] == "verified"


def test_a_failed_attempt_keeps_its_last_evaluation_and_the_end_of_the_log(replay, make_report):
    grant = replay.claim().json()
    replay.post(grant, [evaluation(1, 41.5), evaluation(2, 43.25)])
    assert replay.view()["attempts"][0]["last_evaluation"] is None  # Events tell of it meanwhile.
    report = make_report(replay.seeds()[:1])
    ended = {"status": "failed", "tta_seconds": None, "failure": DIED}
    run = replace(report.runs[0], **ended, log_tail="x" * 5000 + "the\0end")
    replay.report(grant, replace(report, runs=[run], failure=DIED))

    attempt = replay.view()["attempts"][0]
    assert attempt["last_evaluation"] == {
        "run": 0, "epoch": 2.0, "samples": 2304, "seconds": 0.2, "quality": 43.25,
    }  # fmt: skip
    assert attempt["log_tail"] == "x" * 3993 + "the\ufffdend"
    assert attempt["failure"]["next_step"] == "nothing to do"


def test_a_lost_attempt_is_refunded_and_keeps_what_was_heard_of_it(replay, database):
    untold = {"sequence": 2, "run": 0, "kind": "evaluation"}
    phase = {"sequence": 3, "run": 0, "kind": "phase", "phase": "train\0"}
    failure = asdict(Failure("time_limit", "run_time_limit", "it took too long", "ask"))
    finished = {"sequence": 4, "run": 0, "kind": "run_finished", "status": "not_reached",
                "cpu_seconds": 1.5, "failure": failure}  # fmt: skip
    heard = [run_started(0, 0), evaluation(1, 41.5), untold, phase, finished]
    assert replay.post(replay.claim().json(), heard).status_code == 200
    assert expire_leases(database, now=utc_now() + timedelta(seconds=9)) == 1

    attempt = replay.view()["attempts"][0]
    assert (attempt["refunded"], attempt["last_evaluation"]["quality"]) == (True, None)
    assert [line.split(" ", 1)[1] for line in attempt["log_tail"].splitlines()] == [
        "run 1: started",
        "run 1, epoch 1: quality 41.5 after 0.100 s",
        "run 1: quality unknown",
        "run 1: train\ufffd",
        "run 1: ended, not reached",
    ]


def run_started(sequence, run):
    return {"sequence": sequence, "run": run, "kind": "run_started"}


def test_a_run_over_its_limit_is_ended_though_its_worker_goes_on_posting(replay, database):
    grant = replay.claim().json()
    replay.post(grant, [run_started(0, 0)])
    earlier = utc_now() - timedelta(seconds=125)
    replay.change(grant["attempt_id"], started_at=earlier, run_started_at=earlier)
    started = utc_now()  # Each run has its limit to itself.
    assert replay.post(grant, [run_started(1, 1)]).json()["proceed"] is True
    assert end_overdue(database) == 0

    def overdue(seconds):
        return end_overdue(database, now=started + timedelta(seconds=seconds))

    assert overdue(119) == 0
    replay.post(grant, [evaluation(2)])
    assert overdue(125) == 1
    (attempt,) = replay.view()["attempts"]
    assert attempt["failure"]["code"] == "run_time_limit"
    assert attempt["last_evaluation"]["run"] == 0


def test_a_claim_ends_with_its_revoked_token(replay, olivia, database):
    grant = replay.claim().json()
    with database.read() as session:
        token = session.get_one(Token, session.get_one(Attempt, replay.attempt_id).claimed_by)
        assert (token.user.name, token.role) == ("walter", "worker")
    assert replay.post(grant, []).status_code == 200
    olivia.delete(f"/api/v1/tokens/{token.id}").raise_for_status()

    assert replay.post(grant, []).status_code == 409


@pytest.mark.parametrize(
    ("field", "told"),
    [("worker", "walter-2"), ("hardware_class", "cpu-of-the-claim"), ("threads", 10**7 + 1)],
)
def test_report_names_its_worker_and_a_possible_system(field, told, replay, client, make_report):
    report = make_report(replay.seeds())
    say_hello(client, replay.worker)
    grant = replay.claim().json()
    false = replace(report, system=replace(report.system, **{field: told}))

    refused = replay.report(grant, false)
    assert (refused.status_code, f"system.{field}" in refused.json()["detail"]) == (422, True)
    assert replay.view()["state"] == "running"
    assert replay.report(grant, report).status_code == 200


def test_a_page_draws_ended_runs_to_their_end_and_says_first_why_an_attempt_ended(replay):
    replay.train(qualities=[10.0] * 8)
    page = replay.client.get(f"/verifications/{replay.verification_id}").text
    table = page[page.index('<details id="attempts"') :]
    heads = re.findall(r"<th[^>]*>([^<]*)</th>", table[: table.index("</thead>")])

    assert page.count("<td>not reached</td>") == len(replay.seeds())
    assert heads[:3] == ["#", "State", "Why it ended"]
