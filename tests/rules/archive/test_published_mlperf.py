"""Every figure of the published MLPerf packages at hand, as the reference checker derives it."""

import math
from collections.abc import Callable
from typing import Any

import pytest

Record = dict[str, Any]
Score = Callable[..., list[Record]]


@pytest.fixture(scope="module")
def v51_files(published: Callable[[str], dict[str, bytes]]) -> dict[str, bytes]:
    return published("mlperf/v5.1")


@pytest.fixture
def v51(score_tree: Score, v51_files: dict[str, bytes]) -> dict[str, Record]:
    return {record["path"]: record for record in score_tree(v51_files)}


@pytest.fixture(scope="module")
def groups(expected: Callable[[str], Any]) -> dict[str, Any]:
    return {
        f"{group['org']}/results/{group['system']}/{group['benchmark']}": group
        for group in expected("mlperf/expected_v51.json")["groups"]
    }


def same(first: float | None, second: float | None, rel: float = 1e-9) -> bool:
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=rel)


def test_every_set_is_found_and_named(v51: dict[str, Record], groups: dict[str, Any]) -> None:
    assert v51.keys() == groups.keys()
    for path, group in groups.items():
        record = v51[path]
        named = (record["organisation"], record["system"], record["benchmark"], record["division"])
        assert named == tuple(group[name] for name in ("org", "system", "benchmark", "division"))
        assert (record["n_runs"], record["global_batch_size"]) == (group["n_files"], group["gbs"])


def test_every_time_and_score_is_that_of_the_checker(
    v51: dict[str, Record], groups: dict[str, Any]
) -> None:
    for path, group in groups.items():
        record = v51[path]
        assert same(record["olympic_mean_seconds"], group["olympic_unscaled_min"] * 60), path
        assert same(record["normalised_seconds"], group["score_recomputed_scaling_min"] * 60), path
        assert same(record["cv_all_percent"], group["tta_cv_ddof0_pct"]), path
        if record["reached_fraction"] == 1.0:
            assert same(record["cv_percent"], group["tta_cv_ddof0_pct"]), path


def test_every_run_is_that_of_the_checker(v51: dict[str, Record], groups: dict[str, Any]) -> None:
    seen = 0
    for path, group in groups.items():
        by_file = {item["file"].rpartition("/")[2]: item for item in group["runs"]}
        for run in v51[path]["runs"]:
            item = by_file[run["file"]]
            told = (run["converged"], run["status"], run["seeds"], run["evaluations"])
            assert told == (item["converged"], item["status"], item["seeds"], item["n_eval"])
            minutes = item["tta_min"] if item["converged"] else None
            assert same(run["tta_seconds"], minutes and minutes * 60)
            assert same(run["convergence"], item["conv"] if item["converged"] else None)
            seen += 1
    assert seen == 189


@pytest.mark.parametrize(("points", "pruned"), [("pruned_rcps", True), ("full_rcps", False)])
def test_every_convergence_verdict_is_that_of_the_checker(
    score_tree: Score,
    v51_files: dict[str, bytes],
    groups: dict[str, Any],
    points: str,
    pruned: bool,
) -> None:
    for record in score_tree(v51_files, pruned=pruned):
        item = groups[record["path"]]["rcp"][points]
        rcp = record["rcp"]
        assert (rcp["verdict"] == "pass") == item["passed"], record["path"]
        assert same(rcp["factor"], item["norm_factor"], 1e-6), record["path"]
        if "rcp_mean" in item:
            assert same(rcp["mean"], item["rcp_mean"]), record["path"]
            # The checker finds its limit by bisection and stops early.
            assert same(rcp["lowest"], item["rcp_min"], 1e-4), record["path"]


def test_a_copied_set_and_a_missing_factor_are_flagged_and_nothing_is_refused(
    v51: dict[str, Record], groups: dict[str, Any]
) -> None:
    copied = {
        path for path, r in v51.items() if any(p["code"] == "identical_log" for p in r["problems"])
    }
    assert copied == {
        "Dell/results/1xXE9680Lx8B200-SXM-180GB/retinanet",
        "Dell/results/1xXE9780x8B200-SXM-180GB/retinanet",
    }
    for path, record in v51.items():
        assert record["eligible"], path
        assert record["scaling_json"] == groups[path]["scaling_json_committed"]
        assert not any(p["code"] == "scaling_differs" for p in record["problems"])


def test_every_v05_run_stops_when_it_was_published_to(
    score_tree: Score,
    published: Callable[[str], dict[str, bytes]],
    expected: Callable[[str], Any],
) -> None:
    records = {record["path"]: record for record in score_tree(published("mlperf/v0.5"))}
    sets = expected("mlperf/expected_v05.json")
    assert len(records) == len(sets) == 8
    for path, items in sets.items():
        record = records[f"v0.5.0/{path}"]
        runs = {run["file"]: run for run in record["runs"]}
        for item in items:
            run = runs[item["file"].rpartition("/")[2]]
            assert same(run["stop_seconds"], item["t_stop"])
            assert run["converged"] == (item["success"] in (True, "true", None))
            assert run["evaluations"] == item["n_eval"]
        assert record["organisation"] == path.partition("/")[0]
        assert record["division"] == "closed"


@pytest.mark.parametrize(
    ("path", "percent"),
    [
        ("nvidia/submission/results/dgx1_ngc18.11_pytorch/ssd", 0.548),
        ("nvidia/submission/results/dgx1_multi_ngc18.11_pytorch/ssd", 6.721),
        ("nvidia/submission/results/dgx1_ngc18.11_pytorch/transformer", 13.778),
        ("nvidia/submission/results/dgx1_ngc18.11_mxnet/resnet", 0.413),
        ("google/cloud_v2.512/resnet-tpuv2-512/results/tpu/resnet", 6.748),
    ],
)
def test_the_published_variation_of_v05(
    score_tree: Score, published: Callable[[str], dict[str, bytes]], path: str, percent: float
) -> None:
    """Verma et al., "Demystifying the MLPerf Training Benchmark Suite"."""
    name = "v0.5.0/" + path
    files = {f"{name}/{file}": text for file, text in published(f"mlperf/v0.5/{name}").items()}
    [record] = score_tree(files)
    assert record["cv_percent"] == pytest.approx(percent, abs=0.0005)


def test_an_open_set_is_scored_without_a_convergence_check(
    score_tree: Score, published: Callable[[str], dict[str, bytes]]
) -> None:
    [record] = score_tree(published("mlperf/synthetic_open"))
    assert (record["division"], record["rcp"]) == ("open", None)
    assert record["normalised_seconds"] == record["olympic_mean_seconds"] > 0


TRUSTED_FIGURE = 2035.848
UNTRUSTED = {
    "nan_stop", "stop_before_start", "stop_before_evals", "two_run_stops",
    "two_run_stops_early_eval", "status_aborted",
}  # fmt: skip


def test_every_hostile_log_is_flagged_and_only_honest_times_come_out(
    score_tree: Score, published: Callable[[str], dict[str, bytes]]
) -> None:
    logs = {name: text for name, text in published("mlperf/hostile").items() if "MANI" not in name}
    assert len(logs) == 18
    for name, text in logs.items():
        [record] = score_tree({name: text})
        [run] = record["runs"]
        codes = {problem["code"] for problem in record["problems"]} - {
            "too_few_runs",
            "round_not_told",
        }
        assert codes, name
        wanted = None if name.removesuffix(".txt") in UNTRUSTED else TRUSTED_FIGURE
        assert run["tta_seconds"] == wanted, name
        assert record["global_batch_size"] == 8, name


def test_a_log_cannot_hide_a_batch_size_or_an_evaluation_in_a_package(
    score_tree: Score, published: Callable[[str], dict[str, bytes]]
) -> None:
    logs = published("mlperf/hostile")
    for name in ("hidden_gbs", "hidden_eval"):
        path = "AMD/results/MI300X/llama2_70b_lora/result_0.txt"
        [record] = score_tree({path: logs[f"{name}.txt"]})
        assert record["global_batch_size"] == 8
        assert record["runs"][0]["convergence"] == 3840
