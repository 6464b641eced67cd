"""A board says of a verified entry whether its time was confirmed, as its page does."""

import csv
import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.app import create_app
from server.settings import Settings
from tests.support.pages import BROWSER, words_of

BOARD = "/api/v1/leaderboards/digits"


@pytest.fixture
def finish(replay: Any, make_report: Callable[..., Any]) -> Callable[..., None]:
    """Has the replay end in a report from a system of a hardware class."""

    def end(hardware_class: str | None = None, **changes: Any) -> None:
        report = make_report(replay.seeds(), **changes)
        if hardware_class is not None:
            system = replace(report.system, hardware_class=hardware_class)
            report = replace(report, system=system)
        answer = replay.report(replay.claim().json(), report)
        assert answer.status_code == 200, answer.text

    return end


@pytest.fixture
def rerun(replay: Any, olivia: Any) -> Callable[..., None]:
    """Asks for another verification; `decide` publishes its verdict."""

    def ask() -> None:
        answer = replay.client.post(
            f"/api/v1/submissions/{replay.submission_id}/verifications", headers=olivia.headers
        )
        assert answer.status_code == 201, answer.text
        replay.verification_id = answer.json()["id"]

    return ask


@pytest.fixture
def publish(replay: Any, olivia: Any) -> Callable[[], None]:
    """Publishes the verdict of the latest verification."""

    def decide() -> None:
        answer = replay.client.post(
            f"/api/v1/verifications/{replay.verification_id}/decide",
            json={"decision": "publish", "reason": "a quiet host"},
            headers=olivia.headers,
        )
        assert answer.status_code == 200, answer.text

    return decide


@pytest.fixture
def told(replay: Any, client: TestClient, settings: Settings) -> Callable[[], tuple[str, Any]]:
    """The status and `time_confirmed` of the one entry, which all forms of the board agree on."""

    def read() -> tuple[str, Any]:
        (entry,) = client.get(BOARD).json()["entries"]
        said = entry["time_confirmed"]
        (row,) = csv.DictReader(io.StringIO(client.get(f"{BOARD}.csv").text))
        assert row["time_confirmed"] == ("" if said is None else str(said))
        board = client.get("/benchmarks/digits", headers=BROWSER).text
        page = client.get(f"/submissions/{replay.submission_id}", headers=BROWSER).text
        assert ("· epochs agree" in words_of(board)) is (said is False)
        assert ("its time was not compared" in words_of(page)) is (said is False)
        records = client.get("/api/v1/benchmarks/digits/records").json()["divisions"]
        kept = [True] if said else []  # What was not measured holds no record.
        assert [r["time_confirmed"] for d in records for r in d["records"]] == kept
        submission = client.get(f"/api/v1/submissions/{replay.submission_id}").json()
        assert submission["time_confirmed"] is said
        # A process that has nothing in memory says the same.
        with TestClient(create_app(settings, dispatch=False)) as other:
            assert other.get(BOARD).text == client.get(BOARD).text
        return entry["status"], said

    return read


def test_a_board_follows_the_published_verdict_about_the_time(
    replay: Any,
    client: TestClient,
    finish: Callable[..., None],
    rerun: Callable[[], None],
    publish: Callable[[], None],
    told: Callable[[], tuple[str, Any]],
) -> None:
    assert told() == ("verifying", None)
    finish("gpu-elsewhere")
    assert told() == ("verified", False)
    before = client.get(BOARD).json()["version"]

    rerun()
    assert told() == ("verified", False)
    finish()
    assert told() == ("verified", False)  # Until an organiser publishes it.
    publish()
    assert told() == ("verified", True)
    assert client.get(BOARD).json()["version"] > before
    _, verdicts = client.get("/", headers=BROWSER).text.split('id="verdicts"')
    latest, earlier = verdicts.split('class="lines"')[1:]
    assert ("convergence only" in latest, "convergence only" in earlier) == (False, True)

    rerun()
    finish(qualities=[90.0] * 12)
    publish()
    assert told() == ("rejected", None)


def test_a_rerun_that_is_cancelled_leaves_what_was_confirmed(
    replay: Any,
    client: TestClient,
    olivia: Any,
    finish: Callable[..., None],
    rerun: Callable[[], None],
    told: Callable[[], tuple[str, Any]],
) -> None:
    finish("gpu-elsewhere")
    rerun()
    cancelled = client.post(
        f"/api/v1/verifications/{replay.verification_id}/cancel", headers=olivia.headers
    )

    assert cancelled.status_code == 200, cancelled.text
    assert told() == ("verified", False)
