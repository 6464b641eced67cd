"""The queue and the pages of the workers: who waits where, for how long, and who is at what."""

import threading
from dataclasses import asdict, replace
from datetime import datetime, timedelta

import pytest
from sqlalchemy import insert, select

from finishline.rules.measurements import Canary, Figure, ModelWork, PrecisionAudit, WorkerProbe
from server.base.database import utc_now
from server.base.models import Attempt, User, Verification
from server.base.visibility import ORGANISER
from server.verifications.queue import take_due
from tests.support.processes import wait_for
from tests.support.workers import say_hello

QUEUE = "/api/v1/queue"


def test_what_waits_has_an_expected_start(replay, ask_another, hello, client, make_report):
    hello()
    first = replay.claim().json()
    second = ask_another()
    found = client.get(QUEUE).json()
    (one,) = found["classes"]
    assert (one["hardware_class"], one["workers"], one["free"]) == ("cpu-test", 1, 0)
    (item,) = one["waiting"]
    assert (item["verification_id"], item["position"], item["attempt"]) == (second, 1, 1)
    assert item["expected_start"] is None
    assert "Nothing has ended there yet" in item["why_unknown"]

    third = ask_another()
    replay.report(first, make_report(replay.seeds()))
    replay.change(first["attempt_id"], started_at=utc_now() - timedelta(minutes=5))
    replay.verification_id = second
    lease = replay.claim().json()
    found = client.get(QUEUE).json()
    (item,) = found["classes"][0]["waiting"]
    assert item["verification_id"] == third
    assert item["why_unknown"] is None
    page = client.get(f"/verifications/{third}").text
    assert "Place in the queue" in page
    assert "in about 5 minutes" in page
    assert "Place in the queue" not in client.get(f"/verifications/{second}").text
    page = client.get("/workers").text
    assert "in about 5 minutes" in page
    assert "1 of 1 worker online, 1 at work. 1 waiting." in page
    assert "before run 1 of" in page
    (worker,) = client.get("/api/v1/workers").json()["workers"]
    assert worker["under_way"]["verification_id"] == second
    # And the run that it is at.
    replay.post(lease, [{"sequence": run, "run": run, "kind": "run_started"} for run in (0, 1)])
    (worker,) = client.get("/api/v1/workers").json()["workers"]
    assert (worker["under_way"]["run"], worker["under_way"]["runs"]) == (2, len(replay.seeds()))
    page = client.get("/workers/walter-1").text
    assert f"run 2 of {len(replay.seeds())}" in page
    assert f'href="/verifications/{second}"' in page


def test_a_worker_has_a_page_with_its_roofline(replay, hello, client, walter, make_report):
    hello()
    assert '<span class="soft">none</span>' in client.get("/workers").text
    figures = {
        "gemm_fp32": Figure(0.1, "TFLOP/s", "matmul"),
        "convolution_fp32": Figure(0.2, "TFLOP/s", "conv"),
        "copy": Figure(10.0, "GB/s", "copy"),
    }
    probe = WorkerProbe("walter-1", "start", canary=Canary(100.0, "numpy", "best"), figures=figures)
    client.post("/api/v1/workers/probes", json=asdict(probe), headers=walter.headers)
    report = replace(
        make_report(replay.seeds()),
        work=ModelWork(batch_size=64, step_flops=1e9, step_bytes=1e8),
        precision=PrecisionAudit(lowest="fp32", observed={}, autocast=False),
    )
    replay.report(replay.claim().json(), report)

    roofline = client.get("/api/v1/workers/walter-1").json()["roofline"]
    assert [(roof["precision"], roof["tflops"]) for roof in roofline["roofs"]] == [("fp32", 0.2)]
    (point,) = roofline["points"]
    assert point["intensity"] == 10.0
    # 18 steps of 64 in an epoch of 0.11 s and a little more: 1 GFLOP each.
    assert point["achieved_tflops"] == pytest.approx(18 / 0.11 / 1000, rel=0.05)
    assert point["attainable_tflops"] == pytest.approx(0.1)  # 10 GB/s times 10 FLOP per byte
    assert point["bound"] == "bandwidth"
    page = client.get("/workers/walter-1").text
    assert "Convolution, fp32" in page
    assert "1 reading since" in page
    assert 'id="roofline-chart"' in page


def test_an_empty_queue_and_no_worker_say_what_to_do(client):
    assert client.get(QUEUE).json()["classes"] == []
    page = client.get("/workers").text
    assert "python -m worker" in page
    assert "The queue is empty." in page


@pytest.fixture
def waiting(replay, database):
    """Thirty attempts beside the first one, of several submitters, by verification."""
    with database.write() as session:
        users = list(session.scalars(select(User.id)))
        of_first = {Verification: replay.verification_id, Attempt: replay.attempt_id}
        columns = {
            table: {c.key: getattr(session.get_one(table, key), c.key) for c in table.__table__.c}
            for table, key in of_first.items()
        }
        like = columns[Attempt]
        ids = [f"w{number}" for number in range(30)]
        session.execute(insert(Verification), [columns[Verification] | {"id": i} for i in ids])
        for number, name in enumerate(ids):
            own = {"id": f"a{name}", "verification_id": name, "by_organiser": number % 3 == 0}
            own["submitter_id"] = users[number**2 % len(users)]
            own["asked_at"] = like["asked_at"] + timedelta(seconds=number * 7 % 30)
            session.execute(insert(Attempt), like | own)
    with database.read(ORGANISER) as session:
        return {row.verification_id: row for row in session.scalars(select(Attempt)).unique()}


def test_a_change_of_the_queue_is_seen_at_once(replay, waiting, client, olivia):
    def place():
        queue = client.get("/api/v1/queue").json()
        (line,) = queue["classes"]
        assert f"of {line['waiting_count']}" in client.get(f"/verifications/{last}").text
        return line["waiting"][0]["verification_id"], line["waiting_count"]

    listed = client.get("/api/v1/queue").json()["classes"][0]["waiting"]
    assert [each["position"] for each in listed] == list(range(1, 32))
    first, second, last = (listed[index]["verification_id"] for index in (0, 1, -1))
    assert place() == (first, 31)
    cancelled = client.post(f"/api/v1/verifications/{first}/cancellation", headers=olivia.headers)
    assert cancelled.status_code == 200, cancelled.text
    assert place() == (second, 30)
    paused = client.patch(
        "/api/v1/queue", json={"paused": True, "reason": "new cooling"}, headers=olivia.headers
    )
    assert paused.status_code == 200, paused.text
    assert "new cooling" in client.get(f"/verifications/{last}").text
    assert "Place in the queue" not in client.get(f"/verifications/{first}").text


def test_starts_share_what_ended_lately(replay, waiting, client, database, walter):
    say_hello(client, walter)
    with database.write() as session:
        for took, name in zip((60, 300, 600), ("a", "b", "c"), strict=True):
            ended = utc_now()
            done = {"state": "done", "worker": "walter-1", "ended_at": ended}
            done |= {"started_at": ended - timedelta(seconds=took)}
            like = waiting[replay.verification_id]
            columns = {c.key: getattr(like, c.key) for c in Attempt.__table__.c}
            session.execute(insert(Attempt), columns | {"id": name, "number": 10 + took} | done)

    def starts():
        (line,) = client.get("/api/v1/queue").json()["classes"]
        now = datetime.fromisoformat(client.get("/api/v1/queue").json()["as_of"])
        found = [datetime.fromisoformat(one["expected_start"]) for one in line["waiting"]]
        return [round((each - now).total_seconds() / 60) for each in found[:4]]

    assert starts() == [0, 5, 10, 15]
    say_hello(client, walter, state="busy")
    assert starts() == [5, 10, 15, 20]
    say_hello(client, walter, worker="walter-2")
    assert starts()[:3] == [0, 2, 5]


def test_unknown_start_says_why(waiting, client, walter, olivia):
    def reason(place):
        (line,) = client.get("/api/v1/queue").json()["classes"]
        return line["waiting"][place]["why_unknown"]

    assert "No worker is connected" in reason(0)
    say_hello(client, walter)
    assert reason(0) is None
    assert reason(1) == "Nothing has ended there yet that could tell how long those before it take."
    paused = client.patch(
        "/api/v1/workers/walter-1", json={"paused": True, "reason": "dust"}, headers=olivia.headers
    )
    assert paused.status_code == 200, paused.text
    assert "Every connected worker is paused" in reason(0)


def poll(client, person, name="walter-1", wait=0):
    path = f"/api/v1/workers/{name}/next"
    return client.post(path, params={"wait": wait}, headers=person.headers)


def drawn(database):
    with database.write() as session:
        return take_due(session)


def test_poll_names_the_attempt_until_it_is_leased(replay, hello, client, walter, database):
    hello(polls=True)
    assert poll(client, walter).status_code == 204
    assert [one.polls for one in drawn(database)] == [True]  # The broker brings it nothing.

    answers = [poll(client, walter, wait=5) for _ in range(2)]
    assert [answer.json() for answer in answers] == [{"attempt_id": replay.attempt_id}] * 2
    assert replay.claim().status_code == 200
    wait_for(
        lambda: poll(client, walter).status_code == 204, seconds=10, what="the lease to be seen"
    )


def test_poll_waits_until_there_is_work(replay, hello, client, walter, database):
    hello(polls=True)
    answers = []
    asking = threading.Thread(target=lambda: answers.append(poll(client, walter, wait=20)))
    asking.start()
    wait_for(lambda: drawn(database), seconds=20, what="the attempt's turn")
    asking.join(timeout=20)
    assert answers[0].json()["attempt_id"] == replay.attempt_id


def test_poll_is_for_the_worker_and_its_owner(replay, hello, client, walter, alice, database):
    hello()
    drawn(database)
    assert poll(client, alice).status_code == 403
    assert poll(client, walter, "walter-2").status_code == 404
    assert "sign-on first" in poll(client, walter, "walter-2").json()["detail"]
    assert poll(client, walter, wait=21).status_code == 422
