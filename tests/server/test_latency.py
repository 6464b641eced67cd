"""Verifications of kind latency: asked for, measured, judged, shown beside the claim."""

from dataclasses import replace

import pytest
from sqlalchemy import select

from finishline.rules.verification.messages import Absence, BackendLatency
from server.base.models import Submission, User, Verification, WorkerRow
from tests.support.boards import rows_of
from tests.support.build import build_report, send_entry, taken
from tests.support.workers import greet_as_servers

SUBMISSIONS = "/api/v1/submissions"
BOARD = "/api/v1/leaderboards/digits"
ENTRY = {
    "version": "v1.0", "author": "Ada", "authorEmail": "ada@example.org", "framework": "any 1.0",
    "model": "small net", "hardware": "CPU test", "timestamp": "2019-10-15", "latency": 0.15,
    "costPerHour": 3.6, "top1Accuracy": 98.1,
}  # fmt: skip


@pytest.fixture
def enter(client, alice):
    def post(*, division="closed", **changes):
        form = {"benchmark": "digits", "division": division}
        return taken(send_entry(client, alice, ENTRY | changes, curve=None, **form))["id"]

    return post


@pytest.fixture
def ask(olivia):
    def post(submission_id, kind="latency"):
        body = {"kind": kind, "reason": "a record"}
        return olivia.post(f"{SUBMISSIONS}/{submission_id}/verifications", body)

    return post


@pytest.fixture
def measured(replay, olivia, enter, ask):
    """The fixture `replay`, turned to the latency of an inference entry."""
    replay.cancel(olivia)
    replay.submission_id = enter()
    replay.verification_id = taken(ask(replay.submission_id))["id"]
    return replay


def timed(backend, milliseconds):
    """As many items as the protocol of digits orders: 30 of warm-up and two passes over 599."""
    times = [9.0] * 30 + [milliseconds] * 1198
    return BackendLatency(backend, times, 1e-6, seconds=1.0, cpu_seconds=1.0, passes=2.0)


LATENCY = (
    timed("eager", 0.3),
    BackendLatency("compiled", absence=Absence("compile_failed", "no <b>compiler</b>")),
    timed("onnxruntime", 0.2),
)


def report_of(seeds, *latency, **system):
    report = build_report(seeds)
    spans = {"parent_seconds": 60.0, "child_seconds": 60.0}
    trained = report.runs[0]
    ledger = trained.ledger | {"idle": 60.0 - trained.evaluations[-1].seconds}
    run = replace(trained, latency=list(latency or LATENCY), ledger=ledger, **spans)
    return replace(report, runs=[run], system=replace(report.system, **system))


def finish(measured, *latency, **system):
    return measured.report(measured.claim().json(), report_of(measured.seeds(), *latency, **system))


def test_a_latency_is_one_sealed_run_whose_job_says_how_to_measure(measured, database):
    view = measured.view()
    assert (view["kind"], view["runs_planned"], view["seeds"]) == ("latency", 1, None)
    assert (view["control_points"], view["backends"], view["reason"]) == ([], [], "a record")
    with database.read() as session:
        limit = session.get_one(Verification, measured.verification_id).limit_seconds
    job = measured.claim().json()["job"]
    assert (job["purpose"], job["latency"]["items"]) == ("latency", 1000)
    assert (job["latency"]["warmup_items"], job["control_points"]) == (30, [])
    assert limit == 60 + 240 + 60


def test_a_claim_the_worker_confirms_is_verified_and_stands_on_the_board(measured, client):
    assert measured.status() == "verifying"
    version = client.get(BOARD, params={"metric": "latency"}).json()["version"]
    answer = finish(measured)
    assert (answer.status_code, answer.json()["outcome"]) == (200, "verified")

    view = measured.view()
    assert [r["code"] for r in view["reasons"]] == ["backend_absent", "latency_agrees"]
    assert measured.status() == "verified"
    board = client.get(BOARD, params={"metric": "latency"}).json()
    (entry,) = rows_of(board)
    assert (entry["latency_ms"], entry["measured_latency_ms"]) == (0.15, 0.2)
    assert board["version"] > version
    submission = client.get(f"{SUBMISSIONS}/{measured.submission_id}").json()
    assert submission["measured_latency_ms"] == 0.2
    assert [v["kind"] for v in submission["verifications"]] == ["latency"]
    # Every backend is shown with its figures, or the reason why not.
    eager, compiled, onnx = measured.view()["backends"]

    assert (eager["backend"], eager["samples"], eager["p50_ms"]) == ("eager", 1198, 0.3)
    assert (eager["p90_ms"], eager["p99_ms"], eager["passes"]) == (0.3, 0.3, 2.0)
    assert eager["missing"] == {}
    assert eager["items_per_second"] == pytest.approx(1000 / 0.3)
    # 3.6 USD an hour are 0.001 a second; 10,000 items of 0.2 ms take 2 s.
    assert onnx["cost_usd_per_10000"] == pytest.approx(0.002)
    assert (onnx["quality"], onnx["eligible"]) == (98.1, True)
    assert (compiled["absence"], compiled["p50_ms"]) == ("compile_failed", None)


def test_a_claimed_cost_of_inference_has_no_number(measured, client, enter, ask):
    measured.submission_id = enter(cost=4e-6)
    measured.verification_id = ask(measured.submission_id).json()["id"]
    finish(measured)
    by_latency, by_cost = (
        rows_of(client.get(BOARD, params={"metric": metric}).json())[0]
        for metric in ("latency", "inference_cost")
    )

    assert (by_latency["rank"], by_latency["evidence"]) == (1, "measured")
    assert by_cost["cost_usd_per_10000"] > 0
    assert (by_cost["rank"], by_cost["section"]) == (None, "claimed")
    assert by_cost["unranked_reason"] == "claimed: its latency was measured, its cost was not"


@pytest.mark.parametrize("milliseconds", [0.1, 0.9])
def test_a_strangers_worker_alone_decides_about_no_latency(milliseconds, measured, database):
    grant = measured.claim().json()
    eager = timed("eager", milliseconds)
    report = report_of(measured.seeds(), eager, *LATENCY[1:])
    greet_as_servers(database, report.system.worker, report.system.hardware_class)
    with database.write() as session:
        row = session.get_one(WorkerRow, report.system.worker)
        owner = session.scalars(select(User.id).where(User.name == "walter")).one()
        row.user_id = row.confirmed_by = owner
    measured.report(grant, report)
    view = measured.client.get(f"{SUBMISSIONS}/{measured.submission_id}").json()

    assert (measured.view()["outcome"], view["evidence"]) == ("inconclusive", "claimed")
    assert measured.view()["reasons"][-1]["code"] == "no_second_worker"
    with database.read() as session:
        assert session.get_one(Submission, measured.submission_id).measured_latency_ms is None


@pytest.mark.parametrize(("division", "status"), [("closed", "rejected"), ("open", "inconclusive")])
def test_a_claim_too_fast_is_not_verified(measured, enter, ask, division, status):
    measured.submission_id = enter(latency=0.1, division=division)
    measured.verification_id = ask(measured.submission_id).json()["id"]
    finish(measured)

    assert measured.status() == status
    assert measured.view()["reasons"][-1]["code"] == "latency_slower_than_claimed"


def test_what_another_hardware_class_measures_does_not_stand_beside_the_claim(measured, client):
    answer = finish(measured, hardware_class="1x-t4")

    assert answer.json()["outcome"] == "inconclusive"
    (entry,) = rows_of(client.get(BOARD, params={"metric": "latency"}).json())
    assert (entry["status"], entry["measured_latency_ms"]) == ("inconclusive", None)
    assert measured.view()["backends"][0]["p50_ms"] == 0.3


def test_a_report_that_is_not_as_ordered_is_refused_and_ends_nothing(measured):
    grant = measured.claim().json()
    few = replace(timed("eager", 0.3), milliseconds=[0.3] * 100)
    refused = measured.report(grant, report_of(measured.seeds(), few, LATENCY[1], LATENCY[2]))

    assert refused.status_code == 422
    assert "runs[0].latency.eager" in refused.text
    assert measured.view()["state"] == "running"
    good = measured.report(grant, report_of(measured.seeds()))
    assert (good.status_code, good.json()["outcome"]) == (200, "verified")


def test_the_latency_of_a_training_is_measured_and_leaves_its_status_alone(replay, client, ask):
    assert ask(replay.submission_id).status_code == 201  # Beside the replay that is under way.
    replay.train()
    assert replay.status() == "verified"
    again = client.get(f"{SUBMISSIONS}/{replay.submission_id}").json()["verifications"]
    replay.verification_id = next(v["id"] for v in again if v["kind"] == "latency")
    version = client.get(BOARD).json()["version"]
    finish(replay)

    assert client.get(BOARD).json()["version"] > version
    view = replay.view()
    assert (view["outcome"], view["reasons"][-1]["code"]) == (
        "inconclusive",
        "claim_has_no_latency",
    )
    assert replay.status() == "verified"
    (entry,) = rows_of(client.get(BOARD).json())
    assert (entry["latency_ms"], entry["measured_latency_ms"]) == (None, 0.2)


def test_one_latency_at_a_time(measured, client, ask, alice, bob, enter):
    again = ask(measured.submission_id)
    assert (again.status_code, "under way" in again.json()["detail"]) == (409, True)
    assert ask("nobody").status_code == 404
    assert ask(measured.submission_id, kind="race").status_code == 422
    other = send_entry(client, alice, ENTRY, curve=None).json()["id"]
    refused = ask(other)
    assert refused.status_code == 422
    assert "has no [latency]" in refused.json()["detail"]


def test_a_cancelled_measurement_leaves_the_verdict_there_is(measured, olivia, ask):
    def cancel(verification_id):
        path = f"/api/v1/verifications/{verification_id}/cancellation"
        assert olivia.post(path).json()["state"] == "cancelled"

    cancel(measured.verification_id)
    assert measured.status() == "claimed"
    measured.verification_id = ask(measured.submission_id).json()["id"]
    finish(measured)
    assert measured.status() == "verified"
    cancel(ask(measured.submission_id).json()["id"])
    assert measured.status() == "verified"


def test_a_second_verdict_on_a_latency_waits_for_a_decision(measured, client, ask, olivia):
    finish(measured)
    measured.verification_id = ask(measured.submission_id).json()["id"]
    slow = (timed("eager", 3.0), LATENCY[1], timed("onnxruntime", 2.0))
    finish(measured, *slow)

    assert (measured.view()["outcome"], measured.status()) == ("rejected", "verified")
    submission = client.get(f"{SUBMISSIONS}/{measured.submission_id}").json()
    assert submission["pending_decisions"] == [measured.verification_id]
    assert submission["measured_latency_ms"] == 0.2
    assert measured.decide(olivia, "publish").is_success
    submission = client.get(f"{SUBMISSIONS}/{measured.submission_id}").json()
    assert (submission["status"], submission["measured_latency_ms"]) == ("rejected", 2.0)


def test_boards_are_sorted_by_what_was_measured(measured, client, enter):
    unmeasured = enter(latency=0.01)
    finish(measured)
    order = {"metric": "latency", "sort": "measured_latency"}
    ids = [e["submission_id"] for e in rows_of(client.get(BOARD, params=order).json())]
    assert ids == [measured.submission_id, unmeasured]
