"""Workers: hellos, confirmations, measurements of themselves, and no work where these are off."""

import json
import re
from dataclasses import asdict, replace
from datetime import timedelta
from functools import partial

import pytest

from finishline.rules.measurements import Canary, Figure, ModelWork, PrecisionAudit, WorkerProbe
from finishline.rules.verification.messages import Node, ReplayReport
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.models import Submission, WorkerRow
from server.people.audit import Administrator
from server.verifications.proofs import submission_part
from server.verifications.queue import take_due
from server.verifications.workers import confirm_worker, is_organisers_worker
from tests.support.boards import rows_of
from tests.support.pages import BROWSER
from tests.support.workers import WORKER_SYSTEM

WORKERS = "/api/v1/workers"


def test_a_worker_is_listed_as_its_last_hello_says(hello, client):
    assert hello().status_code == 200

    found = worker(client)
    assert (found["name"], found["hardware_class"]) == ("walter-1", "cpu-test")
    assert (found["state"], found["alive"]) == ("idle", True)
    assert found["system"]["software"] == {"torch": "2.13.0"}
    hello(state="busy", hardware_class="cpu-new")
    found = worker(client)
    assert (found["state"], found["hardware_class"]) == ("unconfirmed", "cpu-new")


def test_a_worker_that_went_silent_or_is_stopping_is_not_alive(hello, client, database):
    hello("silent")
    hello("stopping", state="stopping")
    hello("well")
    with database.write() as session:
        session.get_one(WorkerRow, "silent").last_seen_at = utc_now() - timedelta(hours=1)

    workers = client.get(WORKERS).json()["workers"]
    alive = {worker["name"]: worker["alive"] for worker in workers}
    assert alive == {"well": True, "stopping": False, "silent": False}
    assert workers[-1]["name"] == "silent"


def test_no_worker_is_missing_or_repeated_on_pages(hello, client, database):
    for name in ("gone-1", "gone-2", "a", "b", "c.é", "d"):
        hello(name)
    with database.write() as session:
        for minutes, name in ((10, "gone-1"), (5, "gone-2")):
            moment = utc_now() - timedelta(minutes=minutes)
            session.get_one(WorkerRow, name).last_seen_at = moment
    names, cursor = [], {}
    while cursor is not None:
        page = client.get(WORKERS, params={"limit": 1} | cursor).json()
        names += [worker["name"] for worker in page["workers"]]
        cursor = {"cursor": page["next_cursor"]} if page["next_cursor"] else None
        assert hello(names[-1] if "gone" not in names[-1] else "d").is_success
        assert hello("d").is_success

    assert names == ["a", "b", "c.é", "d", "gone-2", "gone-1"]
    for wrong in ("d", "alive.", "1.\x00", "99999999999999999.d", "x" * 301):
        for path in (WORKERS, "/workers"):
            assert client.get(path, params={"cursor": wrong}).status_code == 422, wrong


def test_the_page_of_workers_has_a_hundred_and_leads_to_the_rest(hello, client, database):
    hello("w000")
    with database.write() as session:
        first = session.get_one(WorkerRow, "w000")
        columns = {each.key: getattr(first, each.key) for each in WorkerRow.__table__.columns}
        session.add_all(
            WorkerRow(**columns | {"name": f"w{number:03d}"}) for number in range(1, 101)
        )
    page = client.get("/workers").text
    (following,) = re.findall(r'href="(/workers\?cursor=[^"]+)"', page)
    rest = client.get(following).text

    assert "101 of 101 workers online" in page
    assert page.count('<a href="/workers/w') == 100
    assert re.findall(r'<a href="/workers/(w\d+)"', rest) == ["w100"]


def test_a_user_brings_so_many_workers_and_no_more(hello, client, database):
    assert {hello(f"w{number}").status_code for number in range(100)} == {200}
    refused = hello("w100")

    assert refused.status_code == 409
    assert "100 workers" in refused.json()["detail"]
    assert len(client.get(WORKERS).json()["workers"]) == 100
    assert hello("w7").status_code == 200
    with database.write() as session:  # One that went away makes room: containers change names.
        session.get_one(WorkerRow, "w0").last_seen_at = utc_now() - timedelta(days=2)
    assert hello("w100").status_code == 200


def test_a_hello_of_no_machine_is_422_and_keeps_nothing(hello, client, walter):
    """A negative number of accelerators would give a quota back more than it has."""
    for body, field in (
        ({}, "system"),
        ({"system": {}, "state": "idle"}, "system.worker"),
        ({"system": None, "state": "idle"}, "system"),
        ({"system": asdict(WORKER_SYSTEM), "state": "asleep"}, "state"),
    ):
        refused = client.post(f"{WORKERS}/hello", json=body, headers=walter.headers)
        assert refused.status_code == 422
        assert refused.json()["problems"][0]["field"] == f"body.{field}"
    for changes in (
        {"name": ""}, {"name": "walter-1\nERROR all is lost"}, {"name": "w" * 201},
        {"hardware_class": "h\0"}, {"accelerator_count": -3}, {"accelerator_count": 10**40},
        {"memory_gib": -1.0}, {"software": {"torch": "2" * 20_000}},
    ):  # fmt: skip
        assert hello(**changes).status_code == 422, changes
    headers = walter.headers | {"Content-Type": "application/json"}
    odd = (("memory_gib", "NaN"), ("memory_gib", "1e999"), ("processor", '"\\ud800"'))
    for field, value in odd:
        body = json.dumps({"system": asdict(WORKER_SYSTEM) | {field: "?"}, "state": "idle"})
        sent = body.replace('"?"', value)
        assert client.post(f"{WORKERS}/hello", content=sent, headers=headers).status_code == 422
    assert client.get(WORKERS).json()["workers"] == []


def test_a_worker_is_busy_from_claim_to_report(replay, hello, client, make_report):
    hello()
    assert worker(client)["state"] == "idle"
    grant = replay.claim().json()
    assert worker(client)["state"] == "busy"
    replay.report(grant, make_report(replay.seeds()))
    assert worker(client)["state"] == "idle"


def test_a_name_is_its_first_users(hello, client, database, make_person):
    assert hello().status_code == 200
    wilma = make_person("wilma", "worker")
    assert hello(person=wilma, hardware_class="cpu-wilma").status_code == 403
    assert worker(client)["hardware_class"] == "cpu-test"
    another_token = make_person("walter", "worker")
    assert hello(person=another_token, state="busy").status_code == 200
    with database.write() as session:  # One from before names had owners is its next user's.
        session.get_one(WorkerRow, "walter-1").user_id = None
    assert hello(person=wilma).status_code == 200
    assert hello().status_code == 403


@pytest.mark.parametrize(
    ("name", "status", "told"),
    [
        ("Walter-1", 403, "looks like another user's, 'walter-1'"),
        ("w\u0430lter-1", 403, "looks like another user's, 'walter-1'"),
        (" walter-2", 422, "begins or ends with a space"),
        ("walter\u20602", 422, "characters"),
        ("walter/2", 422, "has a slash"),
    ],
    ids=["case", "confusable", "space", "invisible", "slash"],
)
def test_a_name_that_looks_like_anothers_is_refused(name, status, told, hello, make_person):
    assert hello().status_code == 200
    refused = hello(name, person=make_person("wilma", "worker"))
    assert (refused.status_code, told in refused.json()["detail"]) == (status, True)
    assert hello("WALTER-1").status_code == 200  # One's own may be alike.


PROBES = f"{WORKERS}/probes"


@pytest.fixture
def tell(client, walter):
    """Sends a speed check of walter-1, if no other is named; the answer."""

    def say(gflops, *, configuration="numpy", person=walter, **changes):
        canary = Canary(gflops, configuration, "best of 0.5 s")
        probe = WorkerProbe(**{"worker": "walter-1", "moment": "before"} | changes, canary=canary)
        return client.post(PROBES, json=asdict(probe), headers=person.headers)

    return say


@pytest.fixture
def baseline(hello, tell):
    hello()
    for gflops in (100.0, 99.0, 101.0):
        assert tell(gflops).json()["drifted"] is False


def worker(client):
    (found,) = client.get(WORKERS).json()["workers"]
    return found


def test_the_fourth_reading_of_a_configuration_is_held_against_three(hello, tell):
    hello()
    assert [tell(100.0).json()["ratio"] for _ in range(3)] == [None, None, None]
    answer = tell(99.0).json()
    assert answer["baseline_gflops"] == 100.0
    assert answer["ratio"] == pytest.approx(0.99)
    other = tell(50.0, configuration="torch 2.14.0").json()
    assert other == {"drifted": False, "baseline_gflops": None, "ratio": None, "message": None}


def test_a_worker_off_its_baseline_is_out_until_it_is_well_again(baseline, tell, client):
    for _ in range(6):  # Readings that are off never become the baseline.
        answer = tell(90.0).json()
        assert (answer["drifted"], answer["baseline_gflops"]) == (True, 100.0)
    found = worker(client)
    assert (found["state"], found["drift"]) == ("drifted", answer["message"])
    assert found["drifted_at"] is not None
    page = client.get("/workers").text
    assert "10.0 % slower than its own baseline" in page
    assert re.search(r"90\.00\sGFLOP/s, 10\.0\s% below", page)
    assert tell(99.0).json()["drifted"] is False
    assert (worker(client)["state"], worker(client)["drift"]) == ("idle", None)


@pytest.mark.parametrize(
    ("reading", "words"),
    [(97.1, None), (96.9, "3.1 % slower"), (102.9, None), (103.1, "3.1 % faster than its own")],
)
def test_a_worker_may_be_three_percent_off(greet, confirm, tell, reading, words):
    greet()
    confirm()
    for gflops in (100.0, 99.0, 101.0):
        assert tell(gflops).json()["drifted"] is False
    answer = tell(reading).json()
    assert answer["drifted"] is (words is not None)
    assert (answer["message"] or "").startswith(words or "")


def test_a_baseline_is_the_median_of_the_first_five_readings(hello, tell):
    hello()
    answers = [tell(gflops).json() for gflops in (100.0, 101.0, 99.0, 100.5, 102.0, 98.5, 98.5)]
    baselines = [each["baseline_gflops"] for each in answers]
    assert baselines == [None, None, None, 100.0, 100.25, 100.5, 100.5]


def test_a_slow_decay_does_not_take_the_baseline_along(baseline, tell):
    readings = [tell(100.0 - 0.5 * day).json()["drifted"] for day in range(1, 9)]
    assert readings == [False] * 6 + [True] * 2  # 96.5 is the first below 97 % of 99.5 ... 100.


def test_a_drifted_worker_is_given_no_attempt(replay, baseline, tell, database):
    tell(90.0)
    assert replay.claim().status_code == 409
    assert "Every connected worker is off its baseline speed" in replay.view()["waiting_for"]
    with database.write() as session:
        assert take_due(session) == []
    tell(100.0)
    with database.write() as session:
        assert len(take_due(session)) == 1
    assert replay.claim().status_code == 200


def test_roofs_are_kept_and_shown_and_absent_ones_stay_absent(hello, client, walter):
    hello()
    probe = WorkerProbe(
        worker="walter-1",
        moment="start",
        figures={
            "gemm_fp32": Figure(0.103, "TFLOP/s", "matmul 256 x 256"),
            "all_reduce": Figure(None, "GB/s", "absent: one device"),
        },
        host={"kernel": "6.1", "governor": None},
    )
    assert client.post(PROBES, json=asdict(probe), headers=walter.headers).status_code == 200
    found = worker(client)["probe"]
    assert found["figures"]["gemm_fp32"]["value"] == 0.103
    absent = {"value": None, "unit": "GB/s", "how": "absent: one device"}
    assert found["figures"]["all_reduce"] == absent
    assert found["host"] == {"kernel": "6.1", "governor": None}
    page = client.get("/workers/walter-1").text
    assert "Matmul, fp32" in page
    assert re.search(r"0\.103\sTFLOP/s", page.replace("&nbsp;", " "))
    assert "absent: one device" in page


def test_the_history_of_a_worker_is_there_newest_first(baseline, tell, client):
    tell(98.0, moment="after", attempt_id="a-1")
    found = client.get(f"{WORKERS}/walter-1/probes").json()
    assert [probe["gflops"] for probe in found["probes"]] == [98.0, 101.0, 99.0, 100.0]
    assert (found["probes"][0]["moment"], found["probes"][0]["attempt_id"]) == ("after", "a-1")


def test_an_organiser_takes_a_worker_in_as_it_is(baseline, tell, client, olivia):
    tell(90.0)
    assert client.post(f"{WORKERS}/walter-1/baseline", headers=olivia.headers).status_code == 204
    assert worker(client)["drift"] is None
    logged = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][0]
    assert (logged["action"], logged["actor"]) == ("worker.baseline", "olivia")
    assert (logged["subject_kind"], logged["subject_id"]) == ("worker", "walter-1")
    assert logged["before"]["drift"].startswith("10.0 % slower")
    assert logged["after"]["drift"] is None
    for _ in range(3):
        assert tell(90.0).json()["drifted"] is False
    assert tell(80.0).json()["drifted"] is True


def test_only_its_own_user_tells_what_a_probe_is(hello, tell, client, walter, make_person):
    hello()
    assert tell(100.0, person=make_person("wilma", "worker")).status_code == 403
    assert tell(100.0, worker="stranger").status_code == 409
    for change in ({"moment": "noon"}, {"canary": {"gflops": "fast"}}):
        body = asdict(WorkerProbe(worker="walter-1", moment="start")) | change
        assert client.post(PROBES, json=body, headers=walter.headers).status_code == 422


def with_precision(report, lowest):
    audit = PrecisionAudit(lowest=lowest, observed={lowest: 9}, autocast=False)
    return ReplayReport(runs=report.runs, system=report.system, precision=audit)


def test_the_precision_that_a_replay_found_is_shown(replay, client, make_report):
    grant = replay.claim().json()
    assert replay.report(grant, with_precision(make_report(replay.seeds()), "bf16")).is_success
    found = client.get(f"/api/v1/submissions/{replay.submission_id}").json()
    assert (found["precision"], found["precision_measured"]) == (None, "bf16")
    (entry,) = rows_of(client.get("/api/v1/leaderboards/digits").json())
    assert entry["precision_measured"] == "bf16"
    page = client.get("/benchmarks/digits?columns=precision").text
    assert ">bf16 measured</td>" in page
    page = client.get(f"/verifications/{replay.verification_id}").text
    assert "bf16 is the narrowest type used" in page


def test_fp32_with_bf16_inside_is_rejected(digits_submission, submit, olivia, replay, make_report):
    digits_submission.claim["precision"] = "fp32"
    replay.ask_again(olivia, submit(digits_submission, batch_size=32).json()["id"])
    grant = replay.claim().json()
    replay.report(grant, with_precision(make_report(replay.seeds()), "bf16"))
    view = replay.view()
    assert view["outcome"] == "rejected"
    codes = {reason["code"]: reason["weight"] for reason in view["reasons"]}
    assert codes["precision_differs"] == "rejects"


def test_a_proof_holds_the_precision_that_was_claimed(digits_submission, submit, database):
    digits_submission.claim["precision"] = "fp32"
    submission_id = submit(digits_submission).json()["id"]
    with database.read() as session:
        part = submission_part(session, session.get_one(Submission, submission_id))
    assert part["claim"]["precision"] == "fp32"


def test_a_replay_is_compared_with_earlier_roofs(replay, client, walter, hello, make_report):
    roofs = {
        "gemm_fp32": Figure(0.1, "TFLOP/s", "best of 3"),
        "convolution_fp32": Figure(0.2, "TFLOP/s", "best of 3"),
    }
    report = replace(
        make_report(replay.seeds()),
        precision=PrecisionAudit("fp32", {"fp32": 9}, autocast=False),
        work=ModelWork(batch_size=64, step_flops=64e6, step_bytes=64e4),
    )
    worker_name = {"worker": report.system.worker}
    assert hello().status_code == 200
    assert replay.view()["utilisation"] == []
    for moment, figures in (("start", roofs), ("start", {}), ("before", {})):
        probe = WorkerProbe(**worker_name, moment=moment, figures=figures)
        assert client.post(PROBES, json=asdict(probe), headers=walter.headers).status_code == 200
    replay.report(replay.claim().json(), report)
    late = {name: Figure(9.0, "TFLOP/s", "later") for name in roofs}
    probe = WorkerProbe(**worker_name, moment="start", figures=late)
    assert client.post(PROBES, json=asdict(probe), headers=walter.headers).status_code == 200

    first = replay.view()["utilisation"][0]
    # A megaflop a sample, 1152 samples an epoch; the roof is 0.2 TFLOP/s.
    train_seconds = replay.view()["report"]["runs"][0]["evaluations"][0]["ledger"]["train"]
    assert first["achieved_flops"] == pytest.approx(1152 / train_seconds * 1e6)
    assert first["utilisation"] == pytest.approx(1152 / train_seconds * 1e6 / 0.2e12)
    assert (first["intensity"], first["missing"]) == (pytest.approx(100.0), None)


def test_a_worker_that_does_not_measure_itself_leaves_the_utilisation_absent(replay, make_report):
    work = ModelWork(batch_size=64, step_flops=64e6, step_bytes=64e4)
    replay.report(replay.claim().json(), replace(make_report(replay.seeds()), work=work))
    first = replay.view()["utilisation"][0]
    assert first["utilisation"] is None
    assert first["missing"] == "the worker has no measured roof to compare with"
    assert first["achieved_flops"] > 0


@pytest.mark.parametrize("protocol", [0, 2])
def test_worker_of_another_protocol_is_refused(protocol, replay, client, walter):
    body = {"system": asdict(WORKER_SYSTEM), "state": "idle", "protocol": protocol}
    signed_on = client.post("/api/v1/workers/hello", json=body, headers=walter.headers)
    for answer in (signed_on, replay.claim(protocol=protocol)):
        assert answer.status_code == 426
        assert answer.json()["detail"] == f"This worker speaks protocol {protocol}, expected 1."
        assert "own version" in answer.json()["hint"]
    assert client.get(WORKERS).json()["workers"] == []


CLASSES = "/api/v1/hardware-classes"


@pytest.fixture
def greet(hello):
    """As `hello`, which leaves the confirmation to an organiser."""
    return partial(hello, confirmed=False)


@pytest.fixture
def confirm(client, olivia):
    def ask(name="walter-1", *, by=olivia):
        return client.patch(f"{WORKERS}/{name}", json={"confirmed": True}, headers=by.headers)

    return ask


def test_an_unconfirmed_worker_is_sent_nothing(replay, greet, confirm, client, olivia):
    def sent():
        with replay.database.write() as session:
            return [one.worker for one in take_due(session)]

    assert greet().status_code == 200
    assert sent() == []
    assert client.get(WORKERS).json()["workers"][0]["state"] == "unconfirmed"
    assert "No connected worker is confirmed" in replay.view()["waiting_for"]

    assert confirm().json()["worker"]["state"] == "idle"
    (entry,) = client.get("/api/v1/audit", headers=olivia.headers).json()["records"][:1]
    assert (entry["action"], entry["subject_id"]) == ("worker.confirm", "walter-1")
    assert sent() == ["walter-1"]
    assert confirm().status_code == 409


def test_the_first_worker_registers_its_class_and_others_must_fit(greet, confirm, client):
    assert client.get(CLASSES).json() == {"hardware_classes": []}
    eight = {"hardware_class": "8x-h100", "accelerator": "H100", "accelerator_count": 8}
    greet(**eight)
    confirm()
    (shown,) = client.get(CLASSES).json()["hardware_classes"]
    assert (shown["name"], shown["accelerator_count"], shown["roof"]) == ("8x-h100", 8, None)
    assert shown["origin"] == "worker walter-1, confirmed by olivia"

    fewer = greet("walter-2", **eight | {"accelerator_count": 4})
    assert fewer.status_code == 422
    assert "hardware class 8x-h100 has 8" in fewer.json()["detail"]
    assert greet("walter-2", **eight).status_code == 200


def test_an_equal_machine_of_its_owner_is_confirmed(greet, confirm, client, make_person):
    def states():
        workers = client.get(WORKERS).json()["workers"]
        return {worker["name"]: worker["state"] for worker in workers}

    greet()
    greet("walter-2")
    confirm()
    greet("walter-3", software={"torch": "2.13"})
    greet("walter-4", processor="another one")
    greet("mallory-1", person=make_person("mallory", "worker"))

    assert states() == {
        "walter-1": "idle",
        "walter-2": "unconfirmed",  # It was here before: an organiser has seen it as it is.
        "walter-3": "idle",
        "walter-4": "unconfirmed",
        "mallory-1": "unconfirmed",
    }


def test_another_allocation_of_such_hosts_is_confirmed_with_the_first(greet, confirm, client):
    def nodes(*names, accelerator="H100"):
        return [Node(name, "EPYC", 96, 1024.0, accelerator, 8) for name in names]

    greet(nodes=nodes("node-1", "node-2"))
    confirm()
    greet("walter-2", nodes=nodes("node-3", "node-4"))
    greet("walter-3", nodes=nodes("node-5", "node-6", accelerator="A100"))
    shown = {one["name"]: one for one in client.get(WORKERS).json()["workers"]}
    states = {name: one["state"] for name, one in shown.items()}
    assert states == {"walter-1": "idle", "walter-2": "idle", "walter-3": "unconfirmed"}
    assert [node["name"] for node in shown["walter-2"]["system"]["nodes"]] == ["node-3", "node-4"]
    assert "node-3, node-4" in client.get("/workers/walter-2").text


def test_a_worker_of_a_processors_class_has_as_many_processors(greet, confirm):
    greet()
    confirm()
    more = greet("walter-2", processor_count=4)
    assert more.status_code == 422
    assert "system.processor_count: 4; hardware class cpu-test has 2" in more.json()["detail"]
    assert greet("walter-2", processor_count=0).status_code == 200  # Not told.

    gpu = {"hardware_class": "1x-h100", "accelerator": "H100", "accelerator_count": 1}
    greet("walter-3", **gpu)
    confirm("walter-3")
    assert greet("walter-4", **gpu, processor_count=4).status_code == 200


def test_a_confirmed_worker_is_asked_for_a_roof(greet, confirm, tell, client):
    for _ in range(2):  # The second says nothing new.
        answer = greet().json()
        assert (answer["roof_wanted"], answer["unconfirmed"]) == (False, True)
    confirm()
    assert greet().json()["unconfirmed"] is False
    assert greet().json()["roof_wanted"] is True
    tell(100.0, moment="roof")
    assert greet().json()["roof_wanted"] is False
    # That tells nothing of how fast it is later on.
    assert client.get(WORKERS).json()["workers"][0]["canary"] is None
    page = client.get("/workers/walter-1", headers=BROWSER).text
    assert "this worker works without one" in page


def test_a_faster_machine_under_the_name_is_as_wrong_as_a_slower_one(greet, confirm, tell, client):
    for name in ("walter-1", "walter-2"):
        greet(name)
        confirm(name)
    assert tell(100.0, moment="start").json()["drifted"] is False
    assert client.get(CLASSES).json()["hardware_classes"][0]["roof"] == 100.0
    for gflops, drifted in ((110.0, False), (111.0, True), (90.0, False), (89.0, True)):
        answer = tell(gflops, worker="walter-2", moment="start").json()
        assert answer["drifted"] is drifted, answer
    assert "11.0 % slower than hardware class cpu-test" in answer["message"]


def test_idle_organisers_worker_is_not_out(greet, confirm, tell, database, client):
    greet()
    confirm()
    with database.write() as session:
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="walter")
    for gflops in (95.0, 96.0, 95.0):  # On a busy machine, then on an idle one.
        assert tell(gflops).json()["drifted"] is False

    answers = [tell(gflops).json() for gflops in (118.0, 119.0, 118.0, 118.0)]

    assert [each["drifted"] for each in answers] == [False] * 4
    assert answers[-1]["baseline_gflops"] == 118.0
    assert client.get(CLASSES).json()["hardware_classes"][0]["roof"] == 118.0
    assert tell(100.0).json()["drifted"] is True  # Slower is out, as before.


def test_the_server_confirms_for_organisers(greet, confirm, database, make_person, olivia):
    greet("olivia-1", person=make_person("olivia", "worker"))
    greet()
    with database.write() as session, pytest.raises(ConflictError, match="is not somebody's"):
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="somebody")
    with database.read() as session:
        found = [is_organisers_worker(session, name) for name in ("olivia-1", "walter-1", "gone")]
        assert found == [True, False, False]
    confirm()
    with database.write() as session:
        assert not is_organisers_worker(session, "walter-1")
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="walter")
        assert is_organisers_worker(session, "walter-1")
    with database.write() as session, pytest.raises(ConflictError, match="confirmed already"):
        confirm_worker(session, Administrator(), "walter-1", reason=None, owner="walter")


def test_a_claim_of_another_machine_is_refused(greet, confirm, submit, digits_submission):
    system = digits_submission.claim["system"]
    greet()
    confirm()
    for wrong, field, expected in (
        ({"accelerator": "H100", "accelerator_count": 8}, "accelerator_count", "0"),
        ({"accelerator": "H100"}, "accelerator", "none"),
        ({"processor_count": 64}, "processor_count", "2"),
    ):
        digits_submission.claim["system"] = system | wrong
        refused = submit(digits_submission)
        assert refused.status_code == 422
        (problem,) = refused.json()["problems"]
        assert problem["field"] == f"system.{field}"
        assert f"{expected}, as hardware class cpu-test has" in problem["expected"]

    untold = {name: value for name, value in system.items() if name != "processor_count"}
    digits_submission.claim["system"] = untold | {"accelerator": "n/a"}
    assert submit(digits_submission).status_code == 201


def test_a_rented_instance_is_described_as_it_is(greet, confirm, submit, digits_submission):
    greet()
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
