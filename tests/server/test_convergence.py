"""GET /api/v1/benchmarks/{id}/convergence and its page."""

import statistics
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fastapi.testclient import TestClient

from finishline.rules.archive.definitions import shipped_ids
from server.base.database import Database
from server.base.models import RunRow, Submission


def address(benchmark: str) -> str:
    return f"/api/v1/benchmarks/{benchmark}/convergence"


def test_points_of_mlperf_are_those_of_its_checker(
    client: TestClient, offer_archive: Callable[[str], None]
) -> None:
    offer_archive("mlperf-v5.1-llama31_405b")
    view = client.get(address("mlperf-v5.1-llama31_405b")).json()

    (point,) = [p for p in view["points"] if p["batch_size"] == 1152]
    # mlperf-logging 4.1.68 on the published packages of v5.1.
    assert point["mean"] == pytest.approx(313344.0)
    assert point["stdev"] == pytest.approx(10641.720161703182)
    assert point["lowest"] == pytest.approx(285344.1411244869)
    assert (view["judged"], view["unit"], view["submissions"]) == (True, "samples", [])
    assert {(p["batch_size"], p["mean"]) for p in view["points"] if not p["pruned"]} <= {
        (p["batch_size"], p["mean"]) for p in view["envelope"]
    }


def test_pruned_points_are_told_and_not_on_the_envelope(
    client: TestClient, offer_archive: Callable[[str], None]
) -> None:
    offer_archive("mlperf-v5.1-dlrm_dcnv2")
    view = client.get(address("mlperf-v5.1-dlrm_dcnv2")).json()

    pruned = [p["batch_size"] for p in view["points"] if p["pruned"]]
    assert pruned
    drawn = {p["batch_size"]: p["mean"] for p in view["envelope"]}
    for point in view["points"]:
        on_line = drawn.get(point["batch_size"]) == point["mean"]
        assert on_line is not point["pruned"], point


def test_points_of_digits_are_its_calibrated_runs(client: TestClient, benchmarks_dir: Path) -> None:
    view = client.get(address("digits")).json()

    runs = tomllib.loads((benchmarks_dir / "digits.toml").read_text())["reference_runs"]
    assert [p["batch_size"] for p in view["points"]] == [32, 64, 128]
    for point in view["points"]:
        curves = [r["quality"] for r in runs if r["batch_size"] == point["batch_size"]]
        hits = [[q >= 97.5 for q in curve] for curve in curves]
        epochs = sorted(hit.index(True) + 1 for hit in hits if True in hit)
        assert point["mean"] == pytest.approx(statistics.fmean(epochs[1:-1]))
        assert point["stdev"] == pytest.approx(statistics.pstdev(epochs))
        assert (point["lowest"], point["pruned"]) == (None, False)
    assert view["judged"] is False


def test_submissions_stand_at_their_batch_size(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any]
) -> None:
    made = submit(digits_submission).json()
    (place,) = client.get(address("digits")).json()["submissions"]

    assert place["id"] == made["id"]
    assert (place["batch_size"], place["mean"], place["verdict"]) == (64, 8.0, None)


def test_a_submission_whose_runs_differ_in_batch_size_is_left_out(
    client: TestClient,
    digits_submission: Any,
    submit: Callable[..., Any],
    olivia: Any,
    make_log: Callable[..., bytes],
) -> None:
    digits_submission.form = {"archive": "true"}
    digits_submission.logs["run_1.log"] = make_log(101, name="run_1.log", batch_size=32)
    assert submit(digits_submission, by=olivia).status_code == 201
    view = client.get(address("digits")).json()

    assert (view["submissions"], view["left_out"]) == ([], 1)


def test_a_submission_stands_on_its_own_benchmark_under_its_organisation(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any], olivia: Any
) -> None:
    digits_submission.form = {"archive": "true"}
    digits_submission.claim["organisation"] = "ACME"
    assert submit(digits_submission, by=olivia).status_code == 201
    (place,) = client.get(address("digits")).json()["submissions"]
    other = client.get(address("cifar10")).json()

    assert place["submitter"] == "ACME"
    assert (other["submissions"], other["left_out"]) == ([], 0)


@pytest.mark.parametrize(("epochs", "expected"), [((8, 7, 3), 7.0), ((8, 5), 6.5)])
def test_the_fastest_and_the_slowest_are_dropped_where_there_are_enough_runs(
    epochs: tuple[int, ...],
    expected: float,
    client: TestClient,
    digits_submission: Any,
    submit: Callable[..., Any],
    olivia: Any,
    make_log: Callable[..., bytes],
) -> None:
    names = [f"run_{index}.log" for index in range(len(epochs))]
    digits_submission.form = {"archive": "true"}
    digits_submission.claim["runs"] = names
    digits_submission.logs = {
        name: make_log(seed, name=name, epochs=last)
        for seed, (name, last) in enumerate(zip(names, epochs, strict=True))
    }
    assert submit(digits_submission, by=olivia).status_code == 201
    (place,) = client.get(address("digits")).json()["submissions"]

    assert place["mean"] == pytest.approx(expected)


def test_the_claims_batch_size_counts_where_no_log_tells(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any], database: Database
) -> None:
    submit(digits_submission)
    with database.write() as session:
        session.query(RunRow).update({"batch_size": None})
        session.query(Submission).update({"hyperparameters": {"batch_size": 128}})
    (place,) = client.get(address("digits")).json()["submissions"]

    assert place["batch_size"] == 128


@pytest.mark.parametrize(
    ("verdict", "factor", "normalised"),
    [("pass", 1.0, False), ("pass", 1.0625, True), ("fail", 1.0625, False)],
)
def test_only_a_passing_set_that_was_faster_than_the_mean_is_normalised(
    verdict: str,
    factor: float,
    normalised: bool,
    client: TestClient,
    digits_submission: Any,
    submit: Callable[..., Any],
    database: Database,
) -> None:
    made = submit(digits_submission).json()
    rcp = {"verdict": verdict, "factor": factor, "submission_mean": 6.25}
    with database.write() as session:
        submission = session.get_one(Submission, made["id"])
        submission.result = submission.result | {"rcp": rcp}
    (place,) = client.get(address("digits")).json()["submissions"]

    assert (place["verdict"], place["mean"]) == (verdict, 6.25)
    assert place["normalised"] is normalised


def test_a_benchmark_without_points_says_so(client: TestClient) -> None:
    view = client.get(address("cifar10")).json()
    page = client.get("/benchmarks/cifar10/convergence")

    assert (view["points"], view["envelope"], view["judged"]) == ([], [], False)
    assert page.status_code == 200
    assert "was not measured yet" in page.text
    assert "data-chart" not in page.text
    assert 'id="points"' in page.text
    assert client.get("/benchmarks/cifar10/charts/convergence.json").json()["data"] == []


def test_an_unknown_benchmark_is_404(client: TestClient) -> None:
    assert client.get(address("mnist")).status_code == 404
    assert client.get("/benchmarks/mnist/convergence").status_code == 404


def test_the_page_has_chart_table_and_a_way_there(
    client: TestClient, digits_submission: Any, submit: Callable[..., Any]
) -> None:
    made = submit(digits_submission).json()
    page = client.get("/benchmarks/digits/convergence").text

    assert 'data-chart="/benchmarks/digits/charts/convergence.json"' in page
    assert f'href="/submissions/{made["id"]}"' in page
    assert 'href="/benchmarks/digits/convergence"' in client.get("/benchmarks/digits").text
    figure = client.get("/benchmarks/digits/charts/convergence.json").json()
    assert [trace["name"] for trace in figure["data"]] == [
        "reference mean",
        "reference point",
        "submission, not judged",
    ]


def test_every_benchmark_answers(client: TestClient, offer_archive: Callable[[str], None]) -> None:
    for benchmark_id in shipped_ids():
        offer_archive(benchmark_id)
    for benchmark in client.get("/api/v1/benchmarks").json()["benchmarks"]:
        assert client.get(address(benchmark["id"])).status_code == 200
        assert client.get(f"/benchmarks/{benchmark['id']}/convergence").status_code == 200
