"""Published archives, scored by the command, give the figures that others computed from them."""

import json
import math

import pytest

# mlperf-logging finds its limit by bisection and stops early. It prints six digits of a factor.
TOLERANCES = {"rcp.lowest": 1e-4, "rcp.factor": 1e-6, "published cv": 1e-3}
# The checker counts the time of one aborted run. By the rule the other nine count.
VARIATION_WITHOUT_ABORTED = {"Cisco/results/hpf_n8/dlrm_dcnv2": 3.4517051597761146}
HONEST_SECONDS = 2035.848
WITHOUT_A_TIME = (
    "nan_stop", "stop_before_start", "stop_before_evals", "two_run_stops",
    "two_run_stops_early_eval", "status_aborted",
)  # fmt: skip
# Verma et al., "Demystifying the MLPerf Training Benchmark Suite".
PUBLISHED_VARIATION = {
    "nvidia/submission/results/dgx1_ngc18.11_pytorch/ssd": 0.548,
    "nvidia/submission/results/dgx1_multi_ngc18.11_pytorch/ssd": 6.721,
    "nvidia/submission/results/dgx1_ngc18.11_pytorch/transformer": 13.778,
    "nvidia/submission/results/dgx1_ngc18.11_mxnet/resnet": 0.413,
    "google/cloud_v2.512/resnet-tpuv2-512/results/tpu/resnet": 6.748,
}


def dawnbench(expected):
    """Every entry of DAWNBench with its figures."""
    figures = {}
    for entry in expected["entries"]:
        own = {"benchmark": entry["task"], "kind": entry["kind"], "metric": entry["metric"]}
        own |= {"eligible": True, "codes": [], "tta_display": entry.get("tta_display")}
        if entry["kind"] == "train":
            names = ("tta_seconds", "tta_epoch", "tta_metric", "tta_row", "cost_usd", "best_metric")
            own |= {name: entry[name] for name in names} | {"evaluations": entry["rows"]}
        else:
            own |= {name: entry[name] for name in ("latency_ms", "cost_usd_per_10000")}
            own["best_metric"] = entry["accuracy"]
        figures[entry["path"]] = own
    return figures


def malformed(expected):
    """Every broken state with the codes of its problems."""
    return {
        f"{number}/{state['base'].removesuffix('.json')}.json": {
            "eligible": False,
            "codes": sorted({problem["code"] for problem in state["problems"]}),
        }
        for number, state in expected["malformed"].items()
    }


def mlperf(expected, points):
    """Every set of MLPerf v5.1 with its runs, its scores and its check of convergence."""
    figures = {}
    for group in expected["groups"]:
        path = f"{group['org']}/results/{group['system']}/{group['benchmark']}"
        rcp = group["rcp"][points]
        own = {
            "organisation": group["org"],
            "system": group["system"],
            "benchmark": group["benchmark"],
            "division": group["division"],
            "n_runs": group["n_files"],
            "global_batch_size": group["gbs"],
            "olympic_mean_seconds": group["olympic_unscaled_min"] * 60,
            "cv_all_percent": group["tta_cv_ddof0_pct"],
            "cv_percent": VARIATION_WITHOUT_ABORTED.get(path, group["tta_cv_ddof0_pct"]),
            "scaling_json": group["scaling_json_committed"],
            "rcp.verdict": "pass" if rcp["passed"] else "fail",
            "rcp.factor": rcp["norm_factor"],
            "eligible": rcp["passed"],
        }
        if points == "pruned_rcps":
            own["normalised_seconds"] = group["score_recomputed_scaling_min"] * 60
        if "rcp_mean" in rcp:
            own |= {"rcp.mean": rcp["rcp_mean"], "rcp.lowest": rcp["rcp_min"]}
            own |= {"rcp.batch_size": rcp["rcp_bs"]}
        for run in group["runs"]:
            name = run["file"].rpartition("/")[2]
            reached = run["converged"]
            own |= {
                f"runs.{name}.converged": reached,
                f"runs.{name}.status": run["status"],
                f"runs.{name}.seeds": run["seeds"],
                f"runs.{name}.evaluations": run["n_eval"],
                f"runs.{name}.tta_seconds": run["tta_min"] * 60 if reached else None,
                f"runs.{name}.convergence": run["conv"] if reached else None,
            }
        figures[path] = own
    return figures


def earlier_mlperf(expected):
    """Every set of MLPerf v0.5 with the end of its runs, and the published variation of five."""
    figures = {}
    for path, runs in expected.items():
        own = {"organisation": path.partition("/")[0], "division": "closed"}
        if path in PUBLISHED_VARIATION:
            own["published cv"] = PUBLISHED_VARIATION[path]
        for run in runs:
            name = run["file"].rpartition("/")[2]
            own |= {
                f"runs.{name}.stop_seconds": run["t_stop"],
                f"runs.{name}.converged": run["success"] in (True, "true", None),
                f"runs.{name}.evaluations": run["n_eval"],
            }
        figures[f"v0.5.0/{path}"] = own
    return figures


ARCHIVES = {
    "dawnbench/entries": ("dawnbench/expected.json", dawnbench, ()),
    "dawnbench/malformed": ("dawnbench/expected.json", malformed, ()),
    "mlperf/v5.1": ("mlperf/expected_v51.json", lambda text: mlperf(text, "pruned_rcps"), ()),
    "mlperf/v5.1 by all points": (
        "mlperf/expected_v51.json", lambda text: mlperf(text, "full_rcps"), ("--rcp", "full"),
    ),
    "mlperf/v0.5": ("mlperf/expected_v05.json", earlier_mlperf, ()),
}  # fmt: skip


@pytest.fixture
def score(archives, command):
    """Scores a folder of the archives by the command: the records by path."""

    def run(folder, *options):
        ran = command("score", archives / folder, *options)
        assert (ran.code, ran.err) == (0, "")
        return {record["path"]: record for record in map(json.loads, ran.out.splitlines())}

    return run


def figure(record, name):
    """The value of a record at a dotted name."""
    if name == "codes":
        return sorted({problem["code"] for problem in record["problems"]} - {"more"})
    if name == "published cv":
        return record["cv_percent"]
    if name.startswith("runs."):
        file, _, field = name.removeprefix("runs.").rpartition(".")
        return next(run[field] for run in record["runs"] if run["file"] == file)
    for step in name.split("."):
        record = record[step]
    return record


def agrees(name, found, wanted):
    if isinstance(found, float) and isinstance(wanted, int | float):
        return math.isclose(found, wanted, rel_tol=TOLERANCES.get(name, 1e-9))
    return found == wanted


@pytest.mark.parametrize("name", ARCHIVES)
def test_archive_scores_as_published(name, score, archives):
    file, read, options = ARCHIVES[name]
    wanted = read(json.loads((archives / file).read_text()))
    records = score(name.partition(" ")[0], *options)

    assert records.keys() == wanted.keys()
    different = [
        f"{path} {name}: {figure(records[path], name)}, expected {value}"
        for path, figures in wanted.items()
        for name, value in figures.items()
        if not agrees(name, figure(records[path], name), value)
    ]
    assert not different, "\n".join(different)


BOARDS = {
    "training_time": "tta_seconds",
    "training_cost": "cost_usd",
    "inference_latency": "latency_ms",
    "inference_cost": "cost_usd_per_10000",
}


def test_boards_have_the_published_order(score, archives):
    expected = json.loads((archives / "dawnbench/expected.json").read_text())["leaderboards"]
    records = score("dawnbench/entries").values()

    for board, name in BOARDS.items():
        kind = "train" if board.startswith("training") else "inference"
        ranked = [each for each in records if each["kind"] == kind and each[name] is not None]
        order = [each["path"] for each in sorted(ranked, key=lambda each: each[name])]
        assert order == [row["path"] for row in expected[f"CIFAR10/{board}"]], board


def test_copied_logs_are_named(score):
    records = score("mlperf/v5.1")
    copied = {path for path in records if "identical_log" in figure(records[path], "codes")}

    assert copied == {
        "Dell/results/1xXE9680Lx8B200-SXM-180GB/retinanet",
        "Dell/results/1xXE9780x8B200-SXM-180GB/retinanet",
    }


def test_open_set_has_no_reference(score):
    (record,) = score("mlperf/synthetic_open").values()

    assert (record["division"], record["rcp"]) == ("open", None)
    assert record["normalised_seconds"] == record["olympic_mean_seconds"] > 0


def test_hostile_logs_are_flagged(score):
    records = score("mlperf/hostile")

    assert len(records) == 18
    for path, record in records.items():
        assert set(figure(record, "codes")) - {"too_few_runs", "round_not_told"}, path
        (run,) = record["runs"]
        wanted = None if path.removesuffix(".txt") in WITHOUT_A_TIME else HONEST_SECONDS
        assert (run["tta_seconds"], record["global_batch_size"]) == (wanted, 8), path


def test_hidden_lines_change_no_set(archives, command, tmp_path):
    """A batch size or an evaluation inside another line's text is not read."""
    for name in ("hidden_gbs", "hidden_eval"):
        place = tmp_path / name / "AMD/results/MI300X/llama2_70b_lora/result_0.txt"
        place.parent.mkdir(parents=True)
        place.write_bytes((archives / f"mlperf/hostile/{name}.txt").read_bytes())
        record = json.loads(command("score", tmp_path / name).out)
        assert (record["global_batch_size"], record["runs"][0]["convergence"]) == (8, 3840)
