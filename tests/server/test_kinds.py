"""Sealed runs of another kind than a replay: without a submission, and with settings by run."""

from collections.abc import Callable
from typing import Any

import pytest
from fastapi.testclient import TestClient

from finishline.api.verifications import ASKED_FOR
from finishline.rules.verification.job import Purpose, Request, draw, trainings_of
from finishline.rules.verification.messages import Failure, Training
from finishline.rules.verification.purposes import PURPOSES
from finishline.rules.verification.verdict import Verdict
from server.base.database import Database, utc_now
from server.base.models import Calibration, JobTraining, User, Verification
from server.base.settings import Settings
from server.benchmarks.queries import keep_definition
from server.verifications.dispatch import take_due
from server.verifications.queueing import queue_attempt
from tests.support.services import services_of

SETTINGS = [{"batch_size": 32.0}, {"batch_size": 128.0}]


@pytest.fixture
def calibration(
    replay: Any, client: TestClient, database: Database, settings: Settings, olivia: Any
) -> Any:
    """The fixture `replay`, turned to a calibration of two runs that has no submission."""
    digits = services_of(client).benchmarks["digits"]
    with database.write() as session:
        keep_definition(session, digits, settings.benchmarks_dir)
        organiser = session.query(User).filter_by(name="olivia").one().id
        session.add(
            Calibration(
                id="c-1",
                benchmark_id="digits",
                benchmark_sha256=digits.sha256,
                version=1,
                state="running",
                requested_by=organiser,
                batch_sizes=[32, 128],
                runs=1,
                created_at=utc_now(),
            )
        )
        session.flush()
        verification = Verification(
            id="calibration-1",
            kind="calibration",
            calibration_id="c-1",
            benchmark_sha256=digits.sha256,
            requested_by=organiser,
            state="queued",
            seal="0" * 64,
            nonce="1" * 64,
            runs=2,
            trainings=[
                JobTraining(
                    index=index,
                    package="digits",
                    settings=SETTINGS[index],
                    seed=7 + index,
                    stop_at="end",
                    measure=["tta"],
                )
                for index in range(2)
            ],
            control_points=[],
            max_attempts=2,
            lease_seconds=8.0,
            limit_seconds=240.0,
            reasons=[],
            created_at=utc_now(),
        )
        session.add(verification)
        session.flush()
        queue_attempt(session, verification, number=1)
    client.post(f"/api/v1/verifications/{replay.verification_id}/cancel", headers=olivia.headers)
    replay.verification_id = "calibration-1"
    return replay


def test_a_job_says_what_each_run_trains_and_that_it_goes_on_to_the_end(
    calibration: Any,
    database: Database,
    client: TestClient,
    walter: Any,
    make_report: Callable[..., Any],
) -> None:
    hello = {"system": vars(make_report([]).system), "state": "idle"}
    client.post("/api/v1/workers/hello", json=hello, headers=walter.headers)
    with database.write() as session:
        (sending,) = take_due(session, alive_seconds=20.0)

    job = sending.job
    assert (job.purpose, job.submission_id) == ("calibration", None)
    assert {training.stop_at for training in job.trainings} == {"end"}
    assert [training.settings["batch_size"] for training in job.trainings] == [32.0, 128.0]
    assert [training.settings["momentum"] for training in job.trainings] == [0.9, 0.9]
    assert (job.seeds, job.control_points, job.division) == ([7, 8], [], "closed")
    assert sending.queue == "replay.walter-1"


def test_a_report_is_kept_and_judges_nobody(
    calibration: Any, make_report: Callable[..., Any]
) -> None:
    past_the_target = [60.0, 97.6, 97.4, 98.2]
    report = make_report(calibration.seeds(), qualities=past_the_target)
    answer = calibration.report(calibration.claim().json(), report).json()

    assert (answer["state"], answer["outcome"]) == ("done", None)
    view = calibration.view()
    assert (view["kind"], view["submission_id"], view["benchmark"]) == (
        "calibration",
        None,
        "digits",
    )
    assert view["hyperparameters"] == SETTINGS
    assert len(view["report"]["runs"]) == 2
    assert calibration.status() == "claimed"


def test_the_settings_of_its_runs_are_secret_until_the_end(calibration: Any) -> None:
    assert calibration.view()["hyperparameters"] is None


def test_a_calibration_that_fails_or_is_cancelled_says_nothing_of_anybody(
    calibration: Any, client: TestClient, olivia: Any, make_report: Callable[..., Any]
) -> None:
    failure = Failure("rules", "data_set_differs", "another data set", "install the right one")
    report = make_report([])
    object.__setattr__(report, "failure", failure)
    calibration.report(calibration.claim().json(), report)

    view = calibration.view()
    assert (view["state"], view["outcome"]) == ("failed", None)
    assert "another data set" in view["reasons"][0]["message"]
    cancel = f"/api/v1/verifications/{calibration.verification_id}/cancel"
    assert client.post(cancel, headers=olivia.headers).status_code == 409


def test_a_running_calibration_can_be_cancelled(
    calibration: Any, client: TestClient, olivia: Any
) -> None:
    cancel = f"/api/v1/verifications/{calibration.verification_id}/cancel"

    assert client.post(cancel, headers=olivia.headers).json()["state"] == "cancelled"


def test_pages_and_lists_show_what_has_no_submission(
    calibration: Any, client: TestClient, make_report: Callable[..., Any]
) -> None:
    address = f"/verifications/{calibration.verification_id}"
    assert "the reference is trained to its end" in client.get(address).text
    assert "· calibration</small>" in client.get("/").text
    calibration.report(calibration.claim().json(), make_report(calibration.seeds()))

    page = client.get(address).text
    assert "The reference was measured in 2 runs." in page
    assert client.get(f"{address}/charts/replay.json").status_code == 200
    assert address not in client.get("/").text  # It gives no verdict about anybody.
    listed = client.get("/api/v1/verifications").json()["verifications"]
    assert [item["kind"] for item in listed] == ["calibration", "replay"]
    events = client.get(f"/api/v1/verifications/{calibration.verification_id}/events").text
    assert "event: end" in events


def plan_ablation(request: Request) -> list[Training]:
    """Plan one training of the reference with another batch size than the claim's."""
    return trainings_of(draw(request.entropy, runs=1), request.package, {"batch_size": 32.0})


def test_a_new_purpose_costs_its_rules_alone(
    replay: Any,
    client: TestClient,
    olivia: Any,
    make_report: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ablation = Purpose(
        "ablation",
        plan_ablation,
        judge=lambda _case: Verdict("verified", ()),
        why_not=lambda _benchmark, _claims: None,
        unable="cannot have an ablation",
    )
    monkeypatch.setitem(PURPOSES, "ablation", ablation)
    monkeypatch.setattr("finishline.api.verifications.ASKED_FOR", (*ASKED_FOR, "ablation"))
    answer = client.post(
        f"/api/v1/submissions/{replay.submission_id}/verifications",
        json={"kind": "ablation"},
        headers=olivia.headers,
    )
    assert answer.status_code == 201, answer.text
    replay.verification_id = answer.json()["id"]
    assert replay.report(replay.claim().json(), make_report(replay.seeds())).status_code == 200

    view = replay.view()
    assert (view["kind"], view["runs_planned"]) == ("ablation", 1)
    assert (view["outcome"], view["published"]) == ("verified", False)
    assert replay.status() == "verifying"  # Its replay has not ended.
    assert client.get(f"/verifications/{replay.verification_id}").status_code == 200
