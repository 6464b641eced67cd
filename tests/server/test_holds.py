"""Pausing, draining and resuming workers, and pausing queues: who may, and what comes of it."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database
from server.verifications.queue_order import take_due

WORKER = "/api/v1/workers/walter-1"
QUEUE = "/api/v1/queue"
ADDRESSES = (f"{WORKER}/pause", f"{WORKER}/drain", f"{WORKER}/resume", f"{QUEUE}/pause")
WHY = {"reason": "new fans"}


@pytest.fixture
def hello(client: TestClient, walter: Any, make_report: Callable[..., Any]) -> Callable[..., Any]:
    """A worker says hello; what it is answered."""

    def say(
        *, state: str = "idle", name: str = "walter-1", hardware_class: str = "cpu-test"
    ) -> Any:
        system = replace(make_report([]).system, worker=name, hardware_class=hardware_class)
        body = {"system": asdict(system), "state": state}
        answer = client.post("/api/v1/workers/hello", json=body, headers=walter.headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    return say


@pytest.fixture
def sent(database: Database) -> Callable[[], list[str]]:
    """Where one round of the dispatch loop sends what is due."""

    def choose() -> list[str]:
        with database.write() as session:
            return [sending.queue for sending in take_due(session, alive_seconds=20.0)]

    return choose


@pytest.fixture
def order(client: TestClient, olivia: Any) -> Callable[..., Any]:
    """Posts as the organiser."""

    def post(address: str, body: Any = WHY) -> Any:
        return client.post(address, json=body, headers=olivia.headers)

    return post


@pytest.mark.parametrize("address", [*ADDRESSES, f"{QUEUE}/resume"])
def test_only_organisers_hold_and_resume(
    address: str, client: TestClient, alice: Any, walter: Any
) -> None:
    assert client.post(address, json=WHY).status_code == 401
    for person in (alice, walter):
        assert client.post(address, json=WHY, headers=person.headers).status_code == 403


def test_what_is_not_there_or_not_held_is_refused(
    order: Callable[..., Any], hello: Callable[..., Any]
) -> None:
    assert [order(address).status_code for address in ADDRESSES[:3]] == [404] * 3
    absent = order(f"{QUEUE}/pause", WHY | {"hardware_class": "tpu"})
    assert absent.status_code == 404
    assert "'tpu'" in absent.json()["detail"]
    hello()
    assert "neither paused nor drained" in order(f"{WORKER}/resume").json()["detail"]
    assert order(f"{WORKER}/resume").status_code == 409
    assert order(f"{QUEUE}/resume", {"hardware_class": "cpu-test"}).status_code == 409


@pytest.mark.parametrize("body", [{}, {"reason": " "}, {"reason": "x", "until": "noon"}, []])
def test_a_hold_without_a_reason_is_422(body: Any, order: Callable[..., Any]) -> None:
    for address in (f"{WORKER}/pause", f"{WORKER}/drain", f"{QUEUE}/pause"):
        assert order(address, body).status_code == 422


def test_a_paused_worker_hears_of_it_takes_nothing_and_is_shown_with_who_and_why(
    replay: Any,
    order: Callable[..., Any],
    hello: Callable[..., Any],
    sent: Callable[[], list[str]],
    client: TestClient,
    olivia: Any,
) -> None:
    assert hello() == {"order": "work", "why": None, "roof_wanted": False}
    assert sent() == ["replay.walter-1"]
    shown = order(f"{WORKER}/pause").json()["worker"]
    assert (shown["state"], shown["held_by"], shown["held_because"]) == (
        "paused",
        "olivia",
        "new fans",
    )
    assert (hello()["order"], hello()["why"]) == ("pause", "paused by olivia: new fans")
    refused = replay.claim()
    assert refused.status_code == 409
    assert "paused by olivia: new fans" in refused.json()["detail"]
    assert sent() == []
    assert "new fans" in client.get("/workers").text
    assert "Every connected worker is paused or drained" in replay.view()["waiting_for"]
    waits = client.get(QUEUE).json()["classes"][0]
    assert (waits["workers"], waits["held"]) == (0, 1)
    assert "paused or drained" in waits["waiting"][0]["why_unknown"]

    hello(name="walter-2")
    assert sent() == ["replay.walter-2"]  # At once: the refused claim gave it back.
    assert order(f"{WORKER}/resume", {}).json()["worker"]["held"] is None
    assert hello()["order"] == "work"
    records = client.get("/api/v1/audit", headers=olivia.headers).json()["records"]
    actions = [item["action"] for item in records]
    assert actions[:2] == ["worker.resume", "worker.pause"]


def test_a_drained_worker_keeps_its_attempt_and_takes_nothing_until_it_is_resumed(
    replay: Any,
    order: Callable[..., Any],
    hello: Callable[..., Any],
    make_report: Callable[..., Any],
    sent: Callable[[], list[str]],
    client: TestClient,
) -> None:
    hello()
    grant = replay.claim().json()
    assert order(f"{WORKER}/drain").json()["worker"]["state"] == "draining"
    assert hello(state="busy")["order"] == "drain"
    assert replay.report(grant, make_report(replay.seeds())).status_code == 200
    assert hello()["order"] == "drain"
    hello(state="stopping")
    # What started it again need not know: told to drain it would end and be started for ever.
    started = hello()
    assert (started["order"], started["why"]) == ("pause", "drained by olivia: new fans")
    assert client.get(WORKER).json()["worker"]["state"] == "drained"
    assert "drained" in client.get("/workers").text
    again = {"reason": "another look"}
    order(f"/api/v1/submissions/{replay.submission_id}/verifications", again)
    assert sent() == []
    assert order(f"{WORKER}/resume", {}).json()["worker"]["held"] is None
    assert hello()["order"] == "work"
    assert sent() == ["replay.walter-1"]


def test_a_paused_worker_that_is_started_again_stays_paused(
    order: Callable[..., Any], hello: Callable[..., Any]
) -> None:
    hello()
    order(f"{WORKER}/pause")
    hello(state="stopping")
    assert hello()["order"] == "pause"


@pytest.mark.parametrize("hardware_class", ["cpu-test", None])
def test_nothing_of_a_paused_queue_starts_and_what_runs_goes_on(
    hardware_class: str | None,
    replay: Any,
    order: Callable[..., Any],
    hello: Callable[..., Any],
    sent: Callable[[], list[str]],
    client: TestClient,
) -> None:
    hello()
    hello(name="other-1", hardware_class="cpu-other")
    body = WHY | {"hardware_class": hardware_class}
    paused = order(f"{QUEUE}/pause", body).json()
    where = paused if hardware_class is None else paused["classes"][1]
    assert where["paused"]["by"] == "olivia"
    (waits,) = [item for one in paused["classes"] for item in one["waiting"]]
    assert "paused by olivia: new fans" in waits["why_unknown"]
    assert sent() == []
    refused = replay.claim()
    assert (refused.status_code, "new fans" in refused.json()["detail"]) == (409, True)
    what = "every queue is" if hardware_class is None else "the queue of cpu-test is"
    assert f"{what} paused by olivia: new fans" in replay.view()["waiting_for"]
    assert "new fans" in client.get("/workers").text

    assert order(f"{QUEUE}/resume", {"hardware_class": hardware_class}).status_code == 200
    assert sent() == ["replay.walter-1"]
    assert replay.claim().status_code == 200


def test_what_waits_for_a_paused_queue_goes_to_no_other(
    replay: Any,
    order: Callable[..., Any],
    hello: Callable[..., Any],
    sent: Callable[[], list[str]],
) -> None:
    """A pause of its class is no way to another machine."""
    hello(name="other-1", hardware_class="cpu-other")
    assert order(f"{QUEUE}/pause", WHY | {"hardware_class": "cpu-test"}).status_code == 200
    assert sent() == []
    assert order(f"{QUEUE}/resume", {"hardware_class": "cpu-test"}).status_code == 200
    assert sent() == ["replay.other-1"]


def test_a_queue_is_paused_for_a_worker_that_was_seen_and_for_an_attempt_that_waits(
    replay: Any, order: Callable[..., Any], hello: Callable[..., Any]
) -> None:
    hello(name="other-1", hardware_class="cpu-other")
    assert replay.view()["state"] == "queued"  # For cpu-test, of which no worker was ever seen.
    for hardware_class, status in (("cpu-other", 200), ("cpu-test", 200), ("cpu-none", 404)):
        body = WHY | {"hardware_class": hardware_class}
        assert order(f"{QUEUE}/pause", body).status_code == status, hardware_class
