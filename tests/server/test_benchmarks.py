"""GET /api/v1/benchmarks."""

from collections.abc import Callable
from typing import Any

from fastapi.testclient import TestClient

BENCHMARKS = "/api/v1/benchmarks"


def test_every_benchmark_is_listed_with_its_target(client: TestClient) -> None:
    listed = {b["id"]: b for b in client.get(BENCHMARKS).json()["benchmarks"]}

    # Targets: DAWNBench's README and checks; digits: its own calibration.
    targets = {
        name: (b["target"]["metric"], b["target"]["value"], b["target"]["unit"])
        for name, b in listed.items()
        if not name.startswith("mlperf-")
    }
    assert targets == {
        "cifar10": ("top1Accuracy", 94.0, "percent"),
        "digits": ("top1Accuracy", 97.5, "percent"),
        "imagenet": ("top5Accuracy", 93.0, "percent"),
        "squad": ("f1Score", 0.75, "fraction"),
    }
    assert [name for name, b in listed.items() if b["replayable"]] == ["digits"]
    # MLPerf Training rules v5.1 and v0.5.
    assert listed["mlperf-v5.1-llama31_8b"]["target"]["value"] == 3.3
    assert listed["mlperf-v0.5-ncf"]["target"]["value"] == 0.635


def test_a_benchmark_counts_its_submissions(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any]
) -> None:
    assert client.get(f"{BENCHMARKS}/digits").json()["submissions"] == 0
    made = submit(digits_submission).json()
    digits = client.get(f"{BENCHMARKS}/digits").json()

    assert (digits["submissions"], digits["sha256"]) == (1, made["benchmark_sha256"])
    assert (digits["runs"], digits["clock"]) == ({"count": 3, "dropped": 1}, "mlperf")


def test_an_unknown_benchmark_is_404(client: TestClient) -> None:
    response = client.get(f"{BENCHMARKS}/mnist")

    assert response.status_code == 404
    assert "there are: cifar10, digits, imagenet, mlperf-" in response.json()["detail"]
