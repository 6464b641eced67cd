"""Workers say hello; everybody sees who is there."""

import json
from collections.abc import Callable
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database, utc_now
from server.base.models import WorkerRow

WORKERS = "/api/v1/workers"


@pytest.fixture
def hello(client: TestClient, make_report: Callable[..., Any]) -> Callable[..., Any]:
    """Says hello as a person."""

    def say(person: Any, *, state: str = "idle", **changes: Any) -> Any:
        system = replace(make_report([]).system, **changes)
        headers = person.headers if person is not None else {}
        body = {"system": asdict(system), "state": state}
        return client.post(f"{WORKERS}/hello", json=body, headers=headers)

    return say


def test_a_worker_is_listed_with_its_system(
    hello: Callable[..., Any], client: TestClient, walter: Any
) -> None:
    assert hello(walter).status_code == 200

    (worker,) = client.get(WORKERS).json()["workers"]
    assert (worker["name"], worker["hardware_class"]) == ("walter-1", "cpu-test")
    assert (worker["state"], worker["alive"]) == ("idle", True)
    assert worker["system"]["software"] == {"torch": "2.13.0"}


def test_another_hello_changes_the_same_worker(
    hello: Callable[..., Any], client: TestClient, walter: Any
) -> None:
    hello(walter)
    hello(walter, state="busy", hardware_class="cpu-new")

    (worker,) = client.get(WORKERS).json()["workers"]
    assert (worker["state"], worker["hardware_class"]) == ("unconfirmed", "cpu-new")


def test_a_worker_that_went_silent_or_is_stopping_is_not_alive(
    hello: Callable[..., Any], client: TestClient, walter: Any, database: Database
) -> None:
    hello(walter, worker="silent")
    hello(walter, worker="stopping", state="stopping")
    hello(walter, worker="well")
    with database.write() as session:
        session.get_one(WorkerRow, "silent").last_seen_at = utc_now() - timedelta(hours=1)

    workers = client.get(WORKERS).json()["workers"]
    assert {worker["name"]: worker["alive"] for worker in workers} == {
        "well": True,
        "stopping": False,
        "silent": False,
    }
    assert workers[-1]["name"] == "silent"


def test_a_user_brings_so_many_workers_and_no_more(
    hello: Callable[..., Any], client: TestClient, walter: Any, database: Database
) -> None:
    assert {hello(walter, worker=f"w{number}").status_code for number in range(32)} == {200}
    refused = hello(walter, worker="w32")

    assert refused.status_code == 409
    assert "32 workers" in refused.json()["detail"]
    assert len(client.get(WORKERS).json()["workers"]) == 32
    assert hello(walter, worker="w7").status_code == 200
    with database.write() as session:  # One that went away makes room: containers change names.
        session.get_one(WorkerRow, "w0").last_seen_at = utc_now() - timedelta(days=2)
    assert hello(walter, worker="w32").status_code == 200


def test_only_a_workers_token_says_hello(
    hello: Callable[..., Any], client: TestClient, alice: Any, olivia: Any
) -> None:
    assert hello(None).status_code == 401
    assert hello(alice).status_code == 403
    assert hello(olivia).status_code == 403
    assert client.get(WORKERS).json() == {"workers": []}


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "body.system"),
        ({"system": {}, "state": "idle"}, "body.system.worker"),
        ({"system": None, "state": "idle"}, "body.system"),
    ],
)
def test_a_bad_hello_is_422(body: Any, field: str, client: TestClient, walter: Any) -> None:
    response = client.post(f"{WORKERS}/hello", json=body, headers=walter.headers)

    assert response.status_code == 422
    assert response.json()["problems"][0]["field"] == field


def test_a_hello_in_an_unknown_state_is_422(hello: Callable[..., Any], walter: Any) -> None:
    response = hello(walter, state="asleep")

    assert response.status_code == 422
    assert response.json()["problems"][0]["field"] == "body.state"


@pytest.mark.parametrize(
    "changes",
    [
        {"worker": ""},
        {"worker": "walter-1\nERROR all is lost"},
        {"worker": "w" * 201},
        {"hardware_class": "h\0"},
        {"accelerator_count": -3},
        {"accelerator_count": 10**40},
        {"memory_gib": -1.0},
        {"software": {"torch": "2" * 20_000}},
    ],
)
def test_a_hello_of_no_machine_is_422_and_keeps_nothing(
    changes: dict[str, Any], hello: Callable[..., Any], client: TestClient, walter: Any
) -> None:
    """A negative number of accelerators would give a quota back more than it has."""
    assert hello(walter, **changes).status_code == 422
    assert client.get(WORKERS).json() == {"workers": []}


@pytest.mark.parametrize("value", ["NaN", "1e999", '"\\ud800"'])
def test_what_no_json_holds_is_refused_in_a_hello(
    value: str, client: TestClient, walter: Any, make_report: Callable[..., Any]
) -> None:
    field = "processor" if "ud800" in value else "memory_gib"
    body = json.dumps({"system": asdict(make_report([]).system) | {field: "?"}, "state": "idle"})
    headers = walter.headers | {"Content-Type": "application/json"}
    sent = body.replace('"?"', value)

    assert client.post(f"{WORKERS}/hello", content=sent, headers=headers).status_code == 422


def test_a_worker_is_busy_from_claim_to_report(
    replay: Any,
    hello: Callable[..., Any],
    client: TestClient,
    walter: Any,
    make_report: Callable[..., Any],
) -> None:
    def state() -> str:
        return str(client.get(WORKERS).json()["workers"][0]["state"])

    hello(walter)
    grant = replay.claim().json()
    assert state() == "busy"
    replay.report(grant, make_report(replay.seeds()))
    assert state() == "idle"


def test_a_name_is_its_first_users(
    hello: Callable[..., Any], client: TestClient, walter: Any, make_person: Callable[..., Any]
) -> None:
    assert hello(walter).status_code == 200
    wilma = make_person("wilma", "worker")
    refused = hello(wilma, hardware_class="cpu-wilma")

    assert refused.status_code == 403
    assert "FINISHLINE_WORKER_NAME" in refused.json()["detail"]
    (worker,) = client.get(WORKERS).json()["workers"]
    assert worker["hardware_class"] == "cpu-test"
    another_token = make_person("walter", "worker")
    assert hello(another_token, state="busy").status_code == 200


def test_a_worker_from_before_names_had_owners_is_its_next_users(
    hello: Callable[..., Any], walter: Any, database: Database, make_person: Callable[..., Any]
) -> None:
    hello(walter)
    with database.write() as session:
        session.get_one(WorkerRow, "walter-1").user_id = None

    wilma = make_person("wilma", "worker")
    assert hello(wilma).status_code == 200
    assert hello(walter).status_code == 403


@pytest.mark.parametrize(
    ("name", "status", "told"),
    [
        ("Walter-1", 403, "looks like another user's, 'walter-1'"),
        ("w\u0430lter-1", 403, "looks like another user's, 'walter-1'"),
        (" walter-2", 422, "begins or ends with a space"),
        ("walter\u20602", 422, "characters"),
    ],
    ids=["case", "confusable", "space", "invisible"],
)
def test_a_name_that_looks_like_anothers_is_refused(
    name: str, status: int, told: str, hello: Callable[..., Any], walter: Any,
    make_person: Callable[..., Any],
) -> None:  # fmt: skip
    assert hello(walter).status_code == 200
    refused = hello(make_person("wilma", "worker"), worker=name)
    assert (refused.status_code, told in refused.json()["detail"]) == (status, True)
    assert hello(walter, worker="WALTER-1").status_code == 200  # One's own may be alike.
