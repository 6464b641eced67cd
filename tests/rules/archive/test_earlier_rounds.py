"""Packages of earlier rounds: what their logs have that those of today have not."""

import json
from functools import partial

import pytest

from tests.support import archive_folders
from tests.support.archive_folders import START, make_line, make_log, make_package

SET = "ACME/results/big"


# The folder names a round, unless a folder in it names another.
score_tree = partial(archive_folders.score_tree, root=("/", "v5.1"))


def codes(record, severity="error"):
    return {p["code"] for p in record["problems"] if p["severity"] == severity}


def package(benchmark, logs, **system):
    description = {"division": "closed", "system_name": "big", **system}
    runs = {f"{SET}/{benchmark}/result_{i}.txt": log for i, log in enumerate(logs)}
    return {**runs, "ACME/systems/big.json": json.dumps(description)}


def without_evaluations(log):
    lines = [line for line in log.splitlines(keepends=True) if "eval_accuracy" not in line]
    return "".join(lines[:-1]), lines[-1]


def v06_log(minutes, *, benchmark="mask", status="success"):
    def line(key, seconds, value=None, **metadata):
        return f":::MLL {seconds} {key}: {json.dumps({'value': value, 'metadata': metadata})}\n"

    stop = 1_560_000_000.5 + minutes * 60
    return (
        line("submission_benchmark", 0.0, benchmark)
        + line("submission_division", 0.0, "closed")
        + line("global_batch_size", 0.0, 128)
        + line("run_start", 1_560_000_000.5)
        + line("eval_accuracy", stop, [0.378, 0.34], epoch_num=12)
        + line("run_stop", stop, status=status)
    )


def test_v06_is_told_by_its_logs_and_its_descriptions_may_be_lines():
    logs = [v06_log(10.0 + i) for i in range(4)]
    files = package("mask", [*logs, v06_log(1.0, status="abort")])
    files["ACME/systems/big.json"] = (
        'org: {"value": "ACME", "metadata": {}}\n'
        'division: {"value": "closed", "metadata": {}}\n'
        'platform: {"value": "Big 1", "metadata": {}}\n'
        "entry: {\"value\": \"{'framework': 'F 1', 'os': 'O'}\"}\n"
    )
    [record] = score_tree(files)
    assert (record["version"], record["division"], record["n_runs"]) == ("0.6", "closed", 5)
    assert (record["olympic_mean_seconds"], record["global_batch_size"]) == (12 * 60, 128)
    assert (record["eligible"], codes(record)) == (True, set())
    told = record["description"]
    assert (told["submitter"], told["system_name"], told["framework"]) == ("ACME", "Big 1", "F 1")


def test_a_description_that_is_neither_table_nor_lines_is_an_error():
    files = package("mask", [v06_log(10.0 + i) for i in range(5)])
    files["ACME/systems/big.json"] = "see the entry"
    assert codes(score_tree(files)[0]) == {"bad_json"}


def maskrcnn_log(minutes, values):
    head, stop = without_evaluations(
        make_log(minutes, seed=int(minutes * 10), benchmark="maskrcnn")
    )
    measured = "".join(
        make_line("eval_accuracy", START + epoch, value, epoch_num=epoch)
        for epoch, value in enumerate(values, 1)
    )
    return head + measured + stop


def test_two_metrics_in_one_line_are_one_evaluation():
    values = [{"BBOX": 0.16, "SEGM": 0.17}, {"SEGM": 0.34, "BBOX": 0.378}]
    logs = [maskrcnn_log(10.0 + i, values) for i in range(5)]
    [record] = score_tree(package("maskrcnn", logs))
    assert (record["olympic_mean_seconds"], record["eligible"]) == (720, True)
    assert {(r["final_quality"], r["evaluations"]) for r in record["runs"]} == {(0.378, 2)}
    assert {run["convergence"] for run in record["runs"]} == {2.0}
    assert codes(record) == set()


@pytest.mark.parametrize(
    "value",
    [
        {"BBOX": 0.378}, {"BBOX": 0.378, "SEGM": "0.34"},
        {"BBOX": 0.378, "SEGM": 0.34, "bbox": 0.1}, {}, [0.378, 0.34], 0.378,
    ],
)  # fmt: skip
def test_a_table_without_each_metric_once_is_no_evaluation(value):
    logs = [maskrcnn_log(10.0 + i, [value]) for i in range(5)]
    [record] = score_tree(package("maskrcnn", logs))
    assert {run["evaluations"] for run in record["runs"]} == {0}
    assert (record["runs_reached"], record["eligible"]) == (0, False)
    assert "success_without_target" in codes(record)


def test_evaluation_after_run_stop_is_a_remark():
    """A host may measure while another has seen the target: the clock may stop at once."""
    late = make_line("eval_accuracy", START + 3_600_000, 0.36, epoch_num=5)
    [record] = score_tree(
        make_package([make_log(10.0 + i, seed=i) + late + late for i in range(5)])
    )
    assert (record["olympic_mean_seconds"], record["eligible"]) == (720, True)
    assert {(run["final_quality"], run["evaluations"]) for run in record["runs"]} == {(0.35, 2)}
    remarks = [(p["code"], p["message"]) for p in record["problems"]]
    told = "eval_accuracy after run_stop (and in 1 more lines)"
    assert remarks == [("lines_out_of_order", told)] * 5
    logs = [make_log(1.0 + i, seed=i, quality=0.2) + late for i in range(5)]
    [record] = score_tree(make_package(logs))
    assert (record["olympic_mean_seconds"], record["runs_reached"]) == (None, 0)
    assert "success_without_target" in codes(record)


def minigo_log(minutes):
    """A run whose models play an hour after it, and later ones first."""
    head, stop = without_evaluations(make_log(minutes, seed=0, benchmark="minigo"))
    played = [
        make_line("eval_accuracy", START + 3_600_000 - 9 * epoch, 0.3 + epoch / 10, epoch_num=epoch)
        for epoch in (1, 2)
    ]
    return head + "".join(played) + stop


def test_minigo_plays_after_its_run():
    logs = [minigo_log(10.0 + i) for i in range(10)]
    [record] = score_tree(package("minigo", logs))
    assert (record["olympic_mean_seconds"], record["eligible"]) == (14.5 * 60, True)
    assert {run["evaluations"] for run in record["runs"]} == {2}
    assert (codes(record), "same_seed" in codes(record, "warning")) == (set(), True)
    online = [log.replace("minigo", "resnet") for log in logs]
    [record] = score_tree(package("resnet", online))
    assert {"times_decrease", "same_seed"} <= codes(record)


@pytest.mark.parametrize("epoch", [{}, {"epoch_num": 1}])
def test_checkpoints_may_be_numbered_by_steps(epoch):
    """Source: mlperf-logging, 5,000 steps at batch size 512 in v3.1, 2,560,000 samples in v4.0."""
    logs = []
    for i in range(10):
        head, stop = without_evaluations(
            make_log(10.0 + i, seed=i, benchmark="stable_diffusion", batch_size=512)
        )
        measured = [
            make_line("eval_accuracy", START + 9_000_000, value, step_num=n, metric=name, **epoch)
            for n, name, value in (
                (5000, "FID", 88.0), (1000, "FID", 120.0), (5000, "CLIP", 0.16),
                (1000, "CLIP", 0.1), (5000, "FID", 88.0),
            )
        ]  # fmt: skip
        logs.append(head + "".join(measured) + stop)
    [record] = score_tree(
        {"v3.1/" + path: log for path, log in package("stable_diffusion", logs).items()}
    )
    assert (record["olympic_mean_seconds"], codes(record)) == (14.5 * 60, set())
    assert {(r["final_quality"], r["evaluations"]) for r in record["runs"]} == {(88.0, 2)}
    assert {run["convergence"] for run in record["runs"]} == {2_560_000}
    [record] = score_tree(
        {"v4.1/" + path: log for path, log in package("stable_diffusion", logs).items()}
    )
    assert record["eligible"] is False


def test_bert_may_count_its_samples_in_train_samples():
    """Source: training_rules.adoc, "Benchmark specific rules"; Baidu's sets of v2.0 and v2.1."""
    told = make_line("train_samples", START + 2, 2_400_384)
    logs = [make_log(seed=i, benchmark="bert", quality=0.72, batch_size=448) for i in range(10)]
    before = [told + log for log in logs]
    inside = [log.replace(stop := log.splitlines(keepends=True)[-1], told + stop) for log in logs]
    for runs, expected in ((before, 4.0), (inside, 2_400_384)):
        [record] = score_tree({"v2.1/" + path: log for path, log in package("bert", runs).items()})
        assert {run["convergence"] for run in record["runs"]} == {expected}


@pytest.mark.parametrize(("version", "factor"), [("2.0", 1.0), ("2.1", 1.0043956043956044)])
def test_a_set_is_normalised_since_v21(version, factor):
    """Source: rules of August 2022, the factor in scaling.json of v2.1; v2.0 had none."""
    settings = {"benchmark": "resnet", "quality": 0.76, "epochs": 35, "batch_size": 3264}
    logs = [make_log(10.0 + i, seed=i, **settings) for i in range(5)]
    files = package("resnet", logs)
    [record] = score_tree({f"v{version}/{path}": log for path, log in files.items()})
    assert record["normalised_seconds"] == pytest.approx(720 * factor, rel=1e-12)
    assert (record["rcp"]["verdict"], record["rcp"]["factor"]) == ("pass", factor)
    assert ("normalised" in record["rcp"]["message"]) == (factor > 1)
    assert record["eligible"]


@pytest.mark.parametrize("epochs", [2160, 2160 * 168])
def test_unet3d_counts_epochs_or_samples(epochs):
    """Source: sets of v3.1, of which 3 count epochs. The points count samples."""
    settings = {"benchmark": "unet3d", "quality": 0.91, "epochs": epochs, "batch_size": 56}
    logs = [make_log(10.0 + i, seed=i, **settings) for i in range(40)]
    [record] = score_tree({f"v3.1/{path}": log for path, log in package("unet3d", logs).items()})
    assert record["rcp"]["factor"] == pytest.approx(380840 / (2160 * 168), rel=1e-3)
    assert (record["rcp"]["verdict"], record["eligible"]) == ("pass", True)


@pytest.mark.parametrize("quality", [0.24, 24.0])
def test_bleu_of_v07_is_a_fraction(quality):
    logs = [make_log(seed=i, benchmark="gnmt", quality=quality) for i in range(10)]
    [record] = score_tree({f"v0.7/{path}": log for path, log in package("gnmt", logs).items()})
    assert record["eligible"] is (quality < 1)


# The last but one is Lambda's of v4.1.
@pytest.mark.parametrize(
    "name", ["result_run{}.txt", "result_4953-2405_{}.txt", "result_240928162719380693721_{}.txt",
             "log-{}.log"]
)  # fmt: skip
def test_results_may_be_named_otherwise_but_their_folder_tells(name):
    files = {
        path.replace(f"result_{path[-5]}.txt", name.format(path[-5])): text
        for path, text in make_package().items()
    }
    files[f"{SET}/retinanet/raw/train_1.log"] = ":::MLLOG {}\n"
    files[f"{SET}/retinanet/compliance.out"] = "SUCCESS\n"
    [record] = score_tree(files)
    assert (record["path"], record["n_runs"]) == (f"{SET}/retinanet", 5)
    assert [run["file"] for run in record["runs"]] == [name.format(i) for i in range(5)]
    assert (record["olympic_mean_seconds"], record["eligible"]) == (720, True)
    assert codes(record, "warning") == ({"odd_name"} if ".log" in name else set())


def test_a_set_of_killed_runs_tells_its_round_by_its_folder():
    told = codes(score_tree(package("resnet", ["Killed\n"] * 5))[0])
    assert told == {"too_few_converged"}


@pytest.mark.parametrize("status", ["onprem", "Available", "cloud", "available in Cloud", "RDI"])
def test_words_of_earlier_rounds_are_known(status):
    assert score_tree(make_package(status=status, division="Close"))[0]["problems"] == []
    assert codes(score_tree(make_package(status="sold"))[0], "warning") == {"unknown_value"}


def test_set_is_open_or_closed_by_its_logs():
    """Where no definition held its logs against the reference."""
    logs = [make_log(10.0 + i, seed=i, benchmark="resnet") for i in range(5)]
    [record] = score_tree(package("resnet", logs, division="open"))
    assert (record["division"], record["eligible"]) == ("open", True)
    assert codes(record, "warning") >= {"wrong_division"}
    logs[0] = logs[0].replace('"closed"', '"open"')
    [record] = score_tree(package("resnet", logs, divison="open", division=""))
    assert (record["division"], codes(record)) == ("open", set())
    opened = [log.replace('"closed"', '"open"') for log in logs]
    for said in (opened, logs):
        assert codes(score_tree(package("resnet", said))[0]) == {"wrong_division"}


def test_a_closed_set_with_a_verdict_is_not_opened_by_its_description():
    [record] = score_tree(make_package(division="open"))
    assert (record["division"], codes(record)) == ("closed", {"wrong_division"})
