"""Energy on the board: what the published replay measured, on the claim's own hardware class."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from finishline.rules.scoring.measurements import RunTelemetry
from finishline.rules.verification.messages import ReplayReport

pytestmark = pytest.mark.usefixtures("claims_are_numbered")

BOARD = "/api/v1/leaderboards/digits"


def measured(report: ReplayReport, *joules: float | None) -> ReplayReport:
    """The report with so many joules for its first runs, and the last of them for all others."""
    of_run = [*joules, *[joules[-1]] * len(report.runs)]
    runs = [
        replace(run, telemetry=RunTelemetry(readings=9, energy_joules=of_run[run.index]))
        for run in report.runs
    ]
    return replace(report, runs=runs)


def shown(client: TestClient) -> Any:
    (entry,) = client.get(BOARD).json()["entries"]
    return entry


def test_a_published_replay_puts_its_mean_energy_and_itself_on_the_board(
    replay: Any, client: TestClient, make_report: Callable[..., Any]
) -> None:
    assert shown(client)["verification_id"] == replay.verification_id
    report = make_report(replay.seeds())
    more = 60.0 * (len(report.runs) - 1)
    assert replay.report(replay.claim().json(), measured(report, 30.0, 60.0)).is_success

    entry = shown(client)
    assert entry["energy_joules"] == pytest.approx((30.0 + more) / len(report.runs))
    assert (entry["status"], entry["verification_id"]) == ("verified", replay.verification_id)
    assert (
        f'class="proof" href="/verifications/{replay.verification_id}"'
        in client.get("/benchmarks/digits").text
    )


@pytest.mark.parametrize("case", ["one run unmeasured", "another hardware class"])
def test_energy_that_is_not_of_the_claim_stays_absent(
    case: str, replay: Any, client: TestClient, make_report: Callable[..., Any]
) -> None:
    report = make_report(replay.seeds())
    if case == "one run unmeasured":
        report = measured(report, None, 60.0)
    else:
        system = replace(report.system, hardware_class="cpu-other")
        report = replace(measured(report, 60.0), system=system)
    assert replay.report(replay.claim().json(), report).is_success

    entry = shown(client)
    assert (entry["status"], entry["energy_joules"]) == ("verified", None)
    assert ">Energy<" not in client.get("/benchmarks/digits").text


def test_the_energy_of_a_rerun_waits_for_its_decision(
    replay: Any, client: TestClient, olivia: Any, make_report: Callable[..., Any]
) -> None:
    replay.report(replay.claim().json(), measured(make_report(replay.seeds()), 60.0))
    address = f"/api/v1/submissions/{replay.submission_id}/verifications"
    first = replay.verification_id
    replay.verification_id = client.post(address, headers=olivia.headers).json()["id"]
    replay.report(replay.claim().json(), measured(make_report(replay.seeds()), 90.0))
    assert (shown(client)["energy_joules"], shown(client)["verification_id"]) == (60.0, first)

    decision = {"decision": "publish", "reason": "a new driver"}
    client.post(
        f"/api/v1/verifications/{replay.verification_id}/decide",
        json=decision,
        headers=olivia.headers,
    )
    entry = shown(client)
    assert (entry["energy_joules"], entry["verification_id"]) == (90.0, replay.verification_id)
