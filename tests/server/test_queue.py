"""GET /api/v1/queue and the pages of the workers: who waits where, who is at what."""

from dataclasses import asdict, replace
from datetime import timedelta

import pytest

from finishline.rules.measurements import (
    Canary,
    Figure,
    ModelWork,
    PrecisionAudit,
    WorkerProbe,
)
from server.base.database import utc_now

QUEUE = "/api/v1/queue"


def test_what_waits_has_its_place_and_an_expected_start(
    replay, ask_another, hello, client, make_report
):
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
    replay.claim()
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
    assert "1 of 1 worker alive, 1 at work. 1 waiting." in page
    assert "before run 1 of" in page
    (worker,) = client.get("/api/v1/workers").json()["workers"]
    assert worker["under_way"]["verification_id"] == second


def test_a_worker_says_which_run_it_is_at(replay, hello, client):
    hello()
    grant = replay.claim().json()
    started = [{"sequence": run, "run": run, "kind": "run_started"} for run in (0, 1)]
    replay.post(grant, started)
    (worker,) = client.get("/api/v1/workers").json()["workers"]
    assert worker["under_way"]["run"] == 2
    assert worker["under_way"]["runs"] == len(replay.seeds())
    page = client.get("/workers/walter-1").text
    assert f"run 2 of {len(replay.seeds())}" in page
    assert f'href="/verifications/{replay.verification_id}"' in page


def test_a_worker_has_a_page_with_its_canary_roofs_and_roofline(
    replay, hello, client, walter, make_report
):
    hello()
    assert "does not measure itself" in client.get("/workers").text
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
