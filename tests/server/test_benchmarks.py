"""GET /api/v1/benchmarks."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from server.base.places import SOURCE
from server.base.settings import Settings

BENCHMARKS = "/api/v1/benchmarks"


def test_every_benchmark_is_listed_with_its_target(client: TestClient) -> None:
    listed = {b["id"]: b for b in client.get(BENCHMARKS).json()["benchmarks"]}

    # Targets: DAWNBench's README and checks; digits and grammar: their own calibration.
    targets = {
        name: (b["target"]["metric"], b["target"]["value"], b["target"]["unit"])
        for name, b in listed.items()
    }
    assert targets == {
        "cifar10": ("top1Accuracy", 94.0, "percent"),
        "digits": ("top1Accuracy", 97.5, "percent"),
        "grammar": ("validationLoss", 0.80, "nats/byte"),
        "imagenet": ("top5Accuracy", 93.0, "percent"),
        "squad": ("f1Score", 0.75, "fraction"),
    }
    assert [name for name, b in listed.items() if b["replayable"]] == [
        "cifar10",
        "digits",
        "grammar",
        "imagenet",
        "squad",
    ]


def test_a_benchmark_counts_its_submissions(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any]
) -> None:
    assert client.get(f"{BENCHMARKS}/digits").json()["submissions"] == 0
    made = submit(digits_submission).json()
    digits = client.get(f"{BENCHMARKS}/digits").json()

    assert (digits["submissions"], digits["sha256"]) == (1, made["benchmark_sha256"])
    assert (digits["runs"], digits["clock"]) == ({"count": 3, "dropped": 1, "started": 3}, "mlperf")


def test_a_benchmark_tells_every_metric_and_how_many_runs_are_started(
    client: TestClient, offer_archive: Callable[[str], None]
) -> None:
    """MLPerf Training rules of v0.5: two AP of Mask R-CNN; 100 runs of NCF, of which 50 count."""
    offer_archive("mlperf-v0.5-maskrcnn")
    offer_archive("mlperf-v0.5-ncf")
    maskrcnn = client.get(f"{BENCHMARKS}/mlperf-v0.5-maskrcnn").json()["target"]
    assert (maskrcnn["metric"], maskrcnn["value"]) == ("box AP", 0.377)
    assert [(goal["metric"], goal["value"]) for goal in maskrcnn["also"]] == [("mask AP", 0.339)]
    runs = client.get(f"{BENCHMARKS}/mlperf-v0.5-ncf").json()["runs"]
    assert runs == {"count": 50, "dropped": 1, "started": 100}

    page = client.get("/benchmarks/mlperf-v0.5-maskrcnn").text
    assert "box AP and" in page
    assert "box AP is at least 0.377 and mask AP is at least 0.339" in page
    page = client.get("/benchmarks/mlperf-v0.5-ncf").text
    assert "first to reach the target of 100 started" in page
    assert "at least 100 runs" in page
    assert "the first 50 that reach the target count" in page


def test_an_unknown_benchmark_is_404(client: TestClient) -> None:
    response = client.get(f"{BENCHMARKS}/mnist")

    assert response.status_code == 404
    assert "there are: cifar10, digits, grammar, imagenet, squad." in response.json()["detail"]


def test_a_definition_is_given_out_as_the_file_that_its_hash_is_of(client: TestClient) -> None:
    answer = client.get(f"{BENCHMARKS}/digits.toml")

    assert answer.headers["content-type"] == "application/toml"
    assert answer.content == (SOURCE / "benchmarks" / "digits.toml").read_bytes()
    named = client.get(f"{BENCHMARKS}/digits").json()["sha256"]
    assert hashlib.sha256(answer.content).hexdigest() == named
    assert client.get(f"{BENCHMARKS}/nothing.toml").status_code == 404


def test_a_definition_that_rules_is_given_out_whatever_its_file_says_since(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any], settings: Settings
) -> None:
    """The folder may hold the next round's rules already."""
    offered = client.get(f"{BENCHMARKS}/digits").json()["sha256"]
    submit(digits_submission)
    settings.benchmarks_dir = Path("/nowhere")

    answer = client.get(f"{BENCHMARKS}/digits.toml")

    assert hashlib.sha256(answer.content).hexdigest() == offered
