"""Workers that wait for a confirmation."""

from functools import partial

import pytest

from finishline.rules.verification.messages import Node
from server.base.errors import ConflictError
from server.people.audit import Administrator
from server.verifications.queue import take_due
from server.verifications.workers import confirm_worker, is_organisers_worker
from tests.support.pages import BROWSER

WORKERS, CLASSES = "/api/v1/workers", "/api/v1/hardware-classes"


@pytest.fixture
def hello(hello):
    """Says hello, and waits for an organiser's confirmation."""
    return partial(hello, confirmed=False)


@pytest.fixture
def confirm(client, olivia):
    """Confirms a worker, as olivia."""

    def ask(name="walter-1", *, by=olivia):
        return client.patch(f"{WORKERS}/{name}", json={"confirmed": True}, headers=by.headers)

    return ask


@pytest.fixture
def probe(client, walter):
    """Tells a canary of a worker."""

    def tell(gflops, worker="walter-1", moment="start"):
        canary = {"gflops": gflops, "configuration": "numpy matmul", "how": "best of 0.5 s"}
        body = {"worker": worker, "moment": moment, "canary": canary}
        return client.post(f"{WORKERS}/probes", json=body, headers=walter.headers).json()

    return tell


def test_an_unconfirmed_worker_is_sent_nothing(replay, hello, confirm, client):
    def sent():
        with replay.database.write() as session:
            return [one.worker for one in take_due(session)]

    assert hello().status_code == 200
    assert sent() == []
    assert client.get(WORKERS).json()["workers"][0]["state"] == "unconfirmed"
    assert "No connected worker is confirmed" in replay.view()["waiting_for"]

    assert confirm().json()["worker"]["state"] == "idle"
    assert sent() == ["walter-1"]
    assert confirm().status_code == 409


def test_only_organisers_confirm_and_it_is_in_the_audit_log(
    hello, confirm, client, walter, alice, olivia
):
    hello()
    assert confirm("nobody").status_code == 404
    assert confirm().status_code == 200
    (entry,) = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][:1]
    assert (entry["action"], entry["subject_id"]) == ("worker.confirm", "walter-1")


def test_the_first_worker_registers_its_class_and_others_must_fit(hello, confirm, client):
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


def test_another_worker_on_such_a_machine_of_its_owner_is_confirmed_with_the_first(
    hello, confirm, client, make_person
):
    def states():
        workers = client.get(WORKERS).json()["workers"]
        return {worker["name"]: worker["state"] for worker in workers}

    hello()
    hello("walter-2")
    confirm()
    hello("walter-3", software={"torch": "2.13"})
    hello("walter-4", processor="another one")
    hello("mallory-1", person=make_person("mallory", "worker"))

    assert states() == {
        "walter-1": "idle",
        "walter-2": "unconfirmed",  # It was here before: an organiser has seen it as it is.
        "walter-3": "idle",
        "walter-4": "unconfirmed",
        "mallory-1": "unconfirmed",
    }


def test_another_allocation_of_such_hosts_is_confirmed_with_the_first(hello, confirm, client):
    def nodes(*names, accelerator="H100"):
        return [Node(name, "EPYC", 96, 1024.0, accelerator, 8) for name in names]

    hello(nodes=nodes("node-1", "node-2"))
    confirm()
    hello("walter-2", nodes=nodes("node-3", "node-4"))
    hello("walter-3", nodes=nodes("node-5", "node-6", accelerator="A100"))
    shown = {one["name"]: one for one in client.get(WORKERS).json()["workers"]}
    states = {name: one["state"] for name, one in shown.items()}
    assert states == {"walter-1": "idle", "walter-2": "idle", "walter-3": "unconfirmed"}
    assert [node["name"] for node in shown["walter-2"]["system"]["nodes"]] == ["node-3", "node-4"]
    assert "node-3, node-4" in client.get("/workers/walter-2").text


def test_a_worker_of_a_processors_class_has_as_many_processors(hello, confirm):
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
    hello, confirm, probe, client
):
    for _ in range(2):  # The second says nothing new.
        answer = hello().json()
        assert (answer["roof_wanted"], answer["unconfirmed"]) == (False, True)
    confirm()
    assert hello().json()["unconfirmed"] is False
    assert hello().json()["roof_wanted"] is True
    probe(100.0, moment="roof")
    assert hello().json()["roof_wanted"] is False
    # That tells nothing of how fast it is later on.
    assert client.get(WORKERS).json()["workers"][0]["canary"] is None
    for page in ("/workers", "/workers/walter-1"):
        assert "does not measure itself" in client.get(page, headers=BROWSER).text


def test_a_faster_machine_under_the_name_is_as_wrong_as_a_slower_one(hello, confirm, probe, client):
    for name in ("walter-1", "walter-2"):
        hello(name)
        confirm(name)
    assert probe(100.0)["drifted"] is False
    assert client.get(CLASSES).json()["hardware_classes"][0]["roof"] == 100.0
    for gflops, drifted in ((110.0, False), (111.0, True), (90.0, False), (89.0, True)):
        answer = probe(gflops, "walter-2")
        assert answer["drifted"] is drifted, answer
    assert "11.0 % slower than hardware class cpu-test" in answer["message"]


def test_a_worker_that_the_server_itself_confirms_becomes_the_organisers(
    hello, confirm, database, walter
):
    hello()
    with database.write() as session, pytest.raises(ConflictError, match="is not somebody's"):
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="somebody")
    confirm()
    with database.write() as session:
        assert not is_organisers_worker(session, "walter-1")
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="walter")
        assert is_organisers_worker(session, "walter-1")
    with database.write() as session, pytest.raises(ConflictError, match="confirmed already"):
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="walter")


def test_a_claim_of_another_machine_than_its_class_is_refused(
    hello, confirm, submit, digits_submission
):
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
    hello, confirm, submit, digits_submission
):
    hello()
    confirm()
    cloud = {"provider": "cloud", "instance": "cpu.2", "region": "north", "count": 1}
    h100 = {"accelerator": "H100", "accelerator_count": 8}
    p5 = cloud | {"instance": "p5.48xlarge"}
    own = dict(digits_submission.claim["system"])
    for instance, described, field in (
        (cloud, h100, "system.accelerator_count"),
        (p5, h100, "system.accelerator_count"),
        (p5, {"accelerator_count": 0}, "system.accelerator_count"),
        (p5, {}, "system.cloud.instance"),
    ):
        digits_submission.claim["system"] = own | {"cloud": instance} | described
        refused = submit(digits_submission)
        assert refused.status_code == 422
        (problem,) = refused.json()["problems"]
        assert problem["field"] == field
        assert "p5.48xlarge" in problem["message"] or described == h100
    digits_submission.claim["system"] = own | {"cloud": cloud}
    assert submit(digits_submission).status_code == 201
