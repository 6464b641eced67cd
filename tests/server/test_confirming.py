"""A worker is confirmed once, for a registered hardware class, before it is sent anything."""

from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

import pytest
from fastapi.testclient import TestClient

from server.base.database import Database
from server.base.errors import ConflictError
from server.people.audit import Administrator
from server.verifications.queue_order import take_due
from server.verifications.worker_probes import confirm_worker
from server.verifications.workers import is_organisers_worker
from tests.server.conftest import WORKER_SYSTEM, Person
from tests.support.pages import BROWSER

pytestmark = pytest.mark.unconfirmed
WORKERS, CLASSES = "/api/v1/workers", "/api/v1/hardware-classes"


@pytest.fixture
def hello(client: TestClient, walter: Person) -> Callable[..., Any]:
    """Says hello as a worker of walter's."""

    def say(name: str = "walter-1", **changes: Any) -> Any:
        system = asdict(replace(WORKER_SYSTEM, worker=name, **changes))
        body = {"system": system, "state": "idle"}
        return client.post(f"{WORKERS}/hello", json=body, headers=walter.headers)

    return say


@pytest.fixture
def confirm(client: TestClient, olivia: Person) -> Callable[..., Any]:
    """Confirms a worker, as olivia."""

    def ask(name: str = "walter-1", *, by: Person = olivia) -> Any:
        return client.post(f"{WORKERS}/{name}/confirm", json={}, headers=by.headers)

    return ask


@pytest.fixture
def probe(client: TestClient, walter: Person) -> Callable[..., Any]:
    """Tells a canary of a worker."""

    def tell(gflops: float, worker: str = "walter-1", moment: str = "start") -> Any:
        canary = {"gflops": gflops, "configuration": "numpy matmul", "how": "best of 0.5 s"}
        body = {"worker": worker, "moment": moment, "canary": canary}
        return client.post(f"{WORKERS}/probes", json=body, headers=walter.headers).json()

    return tell


def test_an_unconfirmed_worker_is_sent_nothing(
    replay: Any, hello: Callable[..., Any], confirm: Callable[..., Any], client: TestClient
) -> None:
    def sent() -> list[str]:
        with replay.database.write() as session:
            return [one.queue for one in take_due(session, alive_seconds=20.0)]

    assert hello().status_code == 200
    assert sent() == []
    assert client.get(WORKERS).json()["workers"][0]["state"] == "unconfirmed"
    assert "No connected worker is confirmed" in replay.view()["waiting_for"]

    assert confirm().json()["worker"]["state"] == "idle"
    assert sent() == ["replay.walter-1"]
    assert confirm().status_code == 409


def test_only_organisers_confirm_and_it_is_in_the_audit_log(
    hello: Callable[..., Any],
    confirm: Callable[..., Any],
    client: TestClient,
    walter: Person,
    alice: Person,
    olivia: Person,
) -> None:
    hello()
    assert [confirm(by=person).status_code for person in (walter, alice)] == [403, 403]
    assert confirm("nobody").status_code == 404
    assert confirm().status_code == 200
    (entry,) = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][:1]
    assert (entry["action"], entry["subject_id"]) == ("worker.confirm", "walter-1")


def test_the_first_worker_registers_its_class_and_others_must_fit(
    hello: Callable[..., Any], confirm: Callable[..., Any], client: TestClient
) -> None:
    assert client.get(CLASSES).json() == {"hardware_classes": []}
    eight = {"hardware_class": "8x-h100", "accelerator": "H100", "accelerator_count": 8}
    hello(**eight)
    confirm()
    (shown,) = client.get(CLASSES).json()["hardware_classes"]
    assert (shown["name"], shown["accelerator_count"], shown["roof"]) == ("8x-h100", 8, None)
    assert shown["origin"] == "worker walter-1, confirmed by olivia"

    fewer = hello("walter-2", **eight | {"accelerator_count": 4})
    assert fewer.status_code == 422
    assert "hardware class 8x-h100 has 8" in fewer.json()["detail"]
    assert hello("walter-2", **eight).status_code == 200


def test_a_worker_of_a_processors_class_has_as_many_processors(
    hello: Callable[..., Any], confirm: Callable[..., Any]
) -> None:
    hello()
    confirm()
    more = hello("walter-2", processor_count=4)
    assert more.status_code == 422
    assert "system.processor_count: 4; hardware class cpu-test has 2" in more.json()["detail"]
    assert hello("walter-2", processor_count=0).status_code == 200  # Not told.

    gpu = {"hardware_class": "1x-h100", "accelerator": "H100", "accelerator_count": 1}
    hello("walter-3", **gpu)
    confirm("walter-3")
    assert hello("walter-4", **gpu, processor_count=4).status_code == 200


def test_a_confirmed_worker_is_asked_for_its_classs_roof_until_there_is_one(
    hello: Callable[..., Any],
    confirm: Callable[..., Any],
    probe: Callable[..., Any],
    client: TestClient,
) -> None:
    assert hello().json()["roof_wanted"] is False  # Nobody confirmed that it is of its class.
    confirm()
    assert hello().json()["roof_wanted"] is True
    probe(100.0, moment="roof")
    assert hello().json()["roof_wanted"] is False
    # That tells nothing of how fast it is later on.
    assert client.get(WORKERS).json()["workers"][0]["canary"] is None
    for page in ("/workers", "/workers/walter-1"):
        assert "does not measure itself" in client.get(page, headers=BROWSER).text


def test_a_worker_that_changes_its_class_is_confirmed_again(
    hello: Callable[..., Any], confirm: Callable[..., Any], client: TestClient
) -> None:
    hello()
    confirm()
    hello(hardware_class="cpu-other")
    assert client.get(f"{WORKERS}/walter-1").json()["worker"]["state"] == "unconfirmed"


def test_a_faster_machine_under_the_name_is_as_wrong_as_a_slower_one(
    hello: Callable[..., Any],
    confirm: Callable[..., Any],
    probe: Callable[..., Any],
    client: TestClient,
) -> None:
    for name in ("walter-1", "walter-2"):
        hello(name)
        confirm(name)
    assert probe(100.0)["drifted"] is False
    assert client.get(CLASSES).json()["hardware_classes"][0]["roof"] == 100.0
    for gflops, drifted in ((110.0, False), (111.0, True), (90.0, False), (89.0, True)):
        answer = probe(gflops, "walter-2")
        assert answer["drifted"] is drifted, answer
    assert "11.0 % slower than hardware class cpu-test" in answer["message"]


def test_a_worker_of_the_server_itself_counts_as_the_organisers(
    hello: Callable[..., Any], database: Database, walter: Person, client: TestClient
) -> None:
    hello()
    with database.write() as session, pytest.raises(ConflictError, match="is not somebody's"):
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="somebody")
    with database.write() as session:
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="walter")
        assert is_organisers_worker(session, "walter-1")


def test_a_claim_of_another_machine_than_its_class_is_refused(
    hello: Callable[..., Any],
    confirm: Callable[..., Any],
    submit: Callable[..., Any],
    digits_submission: Any,
) -> None:
    system = digits_submission.claim["system"]
    hello()
    confirm()
    digits_submission.claim["system"] = system | {"accelerator": "H100", "accelerator_count": 8}
    refused = submit(digits_submission)
    assert refused.status_code == 422
    (problem,) = refused.json()["problems"]
    assert problem["field"] == "system.accelerator_count"
    assert "0, as hardware class cpu-test has" in problem["expected"]

    digits_submission.claim["system"] = system | {"accelerator": "H100"}
    (problem,) = submit(digits_submission).json()["problems"]
    assert problem["field"] == "system.accelerator"
    assert "none, as hardware class cpu-test has" in problem["expected"]

    digits_submission.claim["system"] = system | {"processor_count": 64}
    (problem,) = submit(digits_submission).json()["problems"]
    assert problem["field"] == "system.processor_count"
    assert "2, as hardware class cpu-test has" in problem["expected"]

    untold = {name: value for name, value in system.items() if name != "processor_count"}
    digits_submission.claim["system"] = untold | {"accelerator": "n/a"}
    assert submit(digits_submission).status_code == 201


def test_a_rented_instance_described_as_another_is_refused(
    hello: Callable[..., Any],
    confirm: Callable[..., Any],
    submit: Callable[..., Any],
    digits_submission: Any,
) -> None:
    hello()
    confirm()
    cloud = {"provider": "cloud", "instance": "cpu.2", "region": "north", "count": 1}
    larger = {"cloud": cloud, "accelerator": "H100", "accelerator_count": 8}
    digits_submission.claim["system"] |= larger
    refused = submit(digits_submission)
    assert refused.status_code == 422
    assert [each["field"] for each in refused.json()["problems"]] == ["system.accelerator_count"]
