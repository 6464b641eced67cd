"""GET /api/v1/verifications/{id}/race: a replay beside its ghosts."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database, utc_now
from server.verifications.overdue import expire_leases


@pytest.fixture(autouse=True)
def read_as_owner(client: TestClient, alice: Any) -> None:
    """Send alice's token where a test sends no other: strangers see no run of a claim as yet."""
    client.headers.update(alice.headers)


def evaluation(sequence: int, quality: float, run: int = 0) -> dict[str, Any]:
    place = {"seconds": 0.1 * (sequence + 1), "epoch": float(sequence + 1), "samples": 1152}
    return {
        "sequence": sequence,
        "run": run,
        "kind": "evaluation",
        "quality": quality,
        **place,
    }


def race_of(client: TestClient, verification_id: str) -> Any:
    answer = client.get(f"/api/v1/verifications/{verification_id}/race")
    assert answer.status_code == 200, answer.text
    return answer.json()


def test_a_claim_that_nobody_measured_holds_no_record_and_races_alone(
    replay: Any, client: TestClient
) -> None:
    race = race_of(client, replay.verification_id)
    (claim,) = race["ghosts"]
    assert race["why_no_record"] == "no submission holds the record of closed yet"
    assert (claim["role"], claim["is_own"]) == ("claim", True)
    # The runs take 110, 114 and 118 ms an epoch, and 4 ms more to evaluate.
    assert claim["points"][-1]["seconds"] == pytest.approx(8 * 0.118)
    assert claim["points"][-1]["quality"] == pytest.approx(98.1)
    assert [point["index"] for point in claim["points"]] == list(range(1, 9))


@pytest.fixture
def measured(replay: Any, make_report: Callable[..., Any]) -> str:
    """A claim that was measured, and so holds the record of its division."""
    sent = replay.report(replay.claim().json(), make_report(replay.seeds()))
    assert sent.status_code == 200, sent.text
    return str(replay.submission_id)


def test_the_first_that_was_measured_holds_the_record_and_races_itself(
    measured: str, replay: Any, client: TestClient
) -> None:
    record, claim = race_of(client, replay.verification_id)["ghosts"]
    assert (record["role"], record["submission_id"], record["is_own"]) == ("record", measured, True)
    assert claim["role"] == "claim"
    assert record["points"][-1]["seconds"] == pytest.approx(8 * 0.118)


def test_other_claims_race_the_holder_however_fast_they_are(
    measured: str,
    digits_submission: Any,
    make_log: Callable[..., bytes],
    submit: Callable[..., Any],
    client: TestClient,
    olivia: Any,
) -> None:
    for pace, seed in ((0.2, 200), (0.05, 300)):
        for index, name in enumerate(digits_submission.logs):
            digits_submission.logs[name] = make_log(
                seed + index, name=name, seconds_per_epoch=pace + 0.004 * index
            )
        other = str(submit(digits_submission).json()["id"])
        address = f"/api/v1/submissions/{other}/verifications"
        asked = client.post(address, headers=olivia.headers).json()["id"]
        record, claim = race_of(client, asked)["ghosts"]
        assert (record["submission_id"], record["is_own"]) == (measured, False)
        assert (claim["submission_id"], claim["is_own"]) == (other, True)


def test_runs_so_far_are_those_of_the_latest_attempt_then_the_reports(
    replay: Any, client: TestClient, database: Database, make_report: Callable[..., Any]
) -> None:
    assert race_of(client, replay.verification_id)["runs"] == []
    grant = replay.claim().json()
    finish = {"sequence": 2, "run": 0, "kind": "run_finished", "status": "reached"}
    replay.post(grant, [evaluation(0, 50.0), evaluation(1, 98.0), finish])
    replay.post(grant, [{"sequence": 3, "run": 1, "kind": "run_started"}])
    first, second = race_of(client, replay.verification_id)["runs"]
    assert first["status"] == "reached"
    assert [point["quality"] for point in first["evaluations"]] == [50.0, 98.0]
    assert (second["index"], second["status"], second["evaluations"]) == (1, None, [])
    page = client.get(f"/verifications/{replay.verification_id}?ghost=claim").text
    assert 'data-ghost="the claim"' in page
    assert 'id="evaluation-rows"' in page
    replay.change(grant["attempt_id"], lease_expires_at=utc_now() - timedelta(hours=1))
    with database.write() as session:
        expire_leases(session)
    race = race_of(client, replay.verification_id)
    assert (race["attempt"], race["runs"]) == (2, [])
    replay.report(replay.claim().json(), make_report(replay.seeds()))
    done = race_of(client, replay.verification_id)["runs"]
    assert [len(run["evaluations"]) for run in done] == [8] * len(replay.seeds())


def test_what_is_no_race_has_no_ghosts(replay: Any, client: TestClient, olivia: Any) -> None:
    assert client.get("/api/v1/verifications/nothing/race").status_code == 404
    wrong = client.get(f"/verifications/{replay.verification_id}?ghost=nobody")
    assert wrong.status_code == 422
