"""What a set of MLPerf logs comes to, and what is said against it."""

import gzip
import json
from functools import partial

import pytest

from finishline.rules.archive.import_plan import set_claim
from finishline.rules.errors import RuleError
from finishline.rules.submissions.submission import score_submission
from tests.support import archive_folders
from tests.support.archive_folders import START, definitions, make_line, make_log, make_package

SET = "ACME/results/big/retinanet"


# The folder names a round, unless a folder in it names another.
score_tree = partial(archive_folders.score_tree, root=("/", "v5.1"))


def codes(record, severity=None):
    return {p["code"] for p in record["problems"] if severity in (None, p["severity"])}


def test_the_mean_leaves_out_the_fastest_and_the_slowest():
    [record] = score_tree(make_package())
    assert record["olympic_mean_seconds"] == 12 * 60
    assert (record["path"], record["organisation"], record["system"]) == (SET, "ACME", "big")
    assert (record["benchmark"], record["division"], record["n_runs"]) == ("retinanet", "closed", 5)
    assert record["rcp"]["verdict"] == "pass"
    assert (record["problems"], record["eligible"]) == ([], True)


def replaced(old, new):
    """A change of a log in which the text stands."""

    def change(log):
        assert old in log
        return log.replace(old, new)

    return change


def is_ranked_by_server(record, files):
    """Whether a server that imports a set of five would rank it."""
    names = [f"result_{i}.txt" for i in range(5)]
    contents = {name: files[f"{SET}/{name}"] for name in names}
    logs = {name: text if type(text) is bytes else text.encode() for name, text in contents.items()}
    claim = json.dumps(set_claim(record, None)).encode()
    try:
        return score_submission(claim, logs, definitions(), archive=True).result.eligible
    except RuleError:
        return False


STOP = '1700000600000, "event_type": "INTERVAL_END"'
NEVER = {"no_evaluation", "no_seed"}  # What warns of a file in which no run is found.


@pytest.mark.parametrize(
    ("change", "minutes", "errors", "warnings"),
    [
        # One run that failed is the slowest of the set, and is dropped.
        (replaced('"success"', '"aborted"'), 13, set(), {"not_converged"}),
        (replaced('{"status": "success"}', "{}"), 13, set(), {"not_converged"}),
        (replaced('"success"', '"Success"'), 13, set(), {"not_converged"}),
        (lambda log: log.rpartition(":::MLLOG")[0], 13, set(), {"not_converged"}),
        (lambda log: log[: log.rindex('"key": "run_stop"') + 8], 13, set(),
         {"bad_json", "not_converged"}),
        # It ended before it started.
        (lambda log: log[: log.index(":::MLLOG", log.index("global_batch_size"))], 13, set(),
         {"no_run_start", "no_evaluation"}),
        (replaced('"value": 0.35', '"value": 0.2'), 13, {"success_without_target"}, set()),
        (replaced("eval_accuracy", "tracked"), 13, {"success_without_target"}, {"no_evaluation"}),
        # The target may be reached before the last evaluation.
        (lambda log: log.replace('"value": 0.1', '"value": 0.4').replace("0.35", "0.2"), 12,
         set(), set()),
        # Logs that disagree.
        (replaced('"closed"', '"open"'), 12, {"wrong_division"}, set()),
        (replaced('"retinanet"', '"rgat"'), 12, {"no_benchmark", "wrong_benchmark"}, set()),
        (replaced('"value": 256', '"value": 512'), 12, {"batch_size_differs"}, set()),
        (replaced('"seed", "value": 0', '"seed", "value": 1'), 12, {"same_seed"}, set()),
        # Impossible figures. Source: the archives' hostile/nan_stop.
        (replaced(STOP, STOP.replace("1700000600000", "NaN")), 13, {"not_finite"},
         {"not_converged"}),
        (replaced('"value": 0.35', '"value": -inf'), 13, {"not_finite", "success_without_target"},
         set()),
        (replaced('"value": 0.1', '"value": NaN'), 12, {"not_finite"}, set()),
        (replaced('"value": 0.35', '"value": 1.01'), 12, {"impossible_quality"}, set()),
        (replaced('"epoch_num": 1}', '"epoch_num": 5}'), 12, {"epochs_go_back"}, set()),
        # One bad file never hides the other runs.
        (lambda log: "", 13, {"empty_log"}, NEVER),
        (lambda log: gzip.compress(log.encode()), 13, {"compressed"}, NEVER),
        (lambda log: "\x00" * 100, 13, {"no_benchmark", "no_run_start"}, NEVER),
        # Words in place of a log, as for v1.0 MiniGo of Intel.
        *((lambda log, words=words: words, 13, set(), {"placeholder"}) for words in (
            "Non compliant run allowed under olympic scoring rules\n", "Killed\n", "DNF",
            "\ufeffRun 3 did not converge,\r\nand is dropped.\r\n",
        )),
        (lambda log: "word " * 300, 13, {"no_benchmark", "no_run_start"}, NEVER),
        (lambda log: "12 13\n", 13, {"no_benchmark", "no_run_start"}, NEVER),
        (lambda log: " \n", 13, {"empty_log"}, NEVER),
        (lambda log: '{"a": 1}', 13, {"no_benchmark", "no_run_start"}, NEVER),
        (lambda log: ":::MLLOG\n" * 3, 13, {"bad_json", "no_benchmark", "no_run_start"}, NEVER),
        (lambda log: ":::MLPv0.5.0 x", 13, {"missing_system", "no_benchmark", "no_run_start"},
         NEVER | {"unknown_benchmark"}),
        (replaced('"time_ms"', '"time_s"'), 13, {"bad_line", "no_benchmark", "no_run_start"},
         NEVER | {"bad_line"}),
        # A broken line that no figure needs is told, whatever wrote it.
        (replaced('{"throughput": 1.5}', "nullACME/train.py"), 12, set(), {"bad_json"}),
        (lambda log: log.replace('"namespace": ""', '"namespace": "worker1"').replace("1.5}", "1."),
         12, set(), {"bad_json"}),
        (replaced('"value": 0.1, "metadata"', '"value": 0.1"metadata"'), 12, {"bad_json"}, set()),
        (lambda log: ':::MLLOG {"time_ms": 1, "key": "eval_acc\n' + log, 12, {"bad_json"}, set()),
    ],
)  # fmt: skip
def test_a_set_with_one_odd_log(change, minutes, errors, warnings):
    logs = [make_log(10.0 + i, seed=i) for i in range(5)]
    files = make_package([change(logs[0]), *logs[1:]])
    [record] = score_tree(files)
    assert (codes(record, "error"), codes(record, "warning")) == (errors, warnings)
    assert (record["eligible"], record["n_runs"]) == (not errors, 5)
    assert is_ranked_by_server(record, files) == record["eligible"]
    assert record["olympic_mean_seconds"] == minutes * 60
    first = record["runs"][0]
    assert (first["converged"], first["tta_seconds"] == 600) == (minutes == 12, minutes == 12)
    told = [p["message"] for p in record["problems"] if p["code"] == "bad_line"]
    assert told == ["got None (and in 6 more lines)", "got None (and in 3 more lines)"] * (
        "bad_line" in errors
    )


def test_placeholders_are_dropped_as_far_as_the_rule_drops():
    logs = [make_log(10.0 + i, seed=i) for i in range(5)]
    files = make_package([*logs[:3], "This run failed.", "So did this."])
    readmes = {f"{SET}/{name}.txt": "About these runs." for name in ("README", "result_notes")}
    [record] = score_tree(files | readmes)
    assert (record["n_runs"], record["olympic_mean_seconds"]) == (5, None)
    assert codes(record, "error") == {"too_few_converged"}
    [record] = score_tree(make_package(logs) | readmes)
    assert (record["n_runs"], record["problems"], record["eligible"]) == (5, [], True)


def test_of_more_runs_than_it_takes_the_median_window_counts():
    minutes = (10, 10, 11, 12, 13, 20, 30, 40, 50, 60, 70)
    logs = [make_log(float(each), seed=i) for i, each in enumerate(minutes)]
    [record] = score_tree(make_package(logs[:7]))
    assert record["scored_runs"] == [f"result_{i}.txt" for i in range(1, 6)]
    assert record["olympic_mean_seconds"] == 12 * 60
    # Runs stand in the order of their numbers.
    [record] = score_tree(make_package(logs))
    assert [run["file"] for run in record["runs"]] == [f"result_{i}.txt" for i in range(11)]


def test_the_system_description_must_agree_and_be_there():
    [record] = score_tree(make_package(division="Open"))
    assert "wrong_division" in codes(record, "error")
    files = make_package()
    del files["ACME/systems/big.json"]
    [record] = score_tree(files)
    assert "missing_system" in codes(record, "error")
    [record] = score_tree(files | {"ACME/systems/big.json": "[" * 9999})
    assert codes(record, "error")


def test_the_factor_is_ours_and_the_submitters_stands_beside_it():
    """At batch size 288 the reference needs 4.0556 epochs: 4 are faster, and within the limit."""
    logs = [make_log(10.0 + i, seed=i, batch_size=288) for i in range(5)]
    files = make_package(logs)
    [record] = score_tree(files)
    assert record["rcp"]["factor"] == pytest.approx(1.0138888888888888)
    assert record["normalised_seconds"] == pytest.approx(720 * 1.0138888888888888)
    assert codes(record) == {"scaling_differs"}


FACTOR = 1.0138888888888888  # Of the reference points, at batch size 288.


@pytest.mark.parametrize(
    ("text", "points", "factor", "code"),
    [
        (f'{{"scaling_factor": {FACTOR}}}', True, FACTOR, None),
        (f'{{"scaling_factor": {FACTOR}, "benchmark": "retinanet"}}', True, FACTOR, None),
        # Both stand in the record, and the reference points hold.
        ('{"scaling_factor": 1.5}', True, FACTOR, "scaling_differs"),
        ('{"scaling_factor": 1.5}', False, 1.5, "scaling_believed"),
        ('{"scaling_factor": 1}', False, 1.0, "scaling_believed"),
        *(
            (text, points, FACTOR if points else 1.0, code)
            for points in (True, False)
            for text, code in (
                ('{"scaling_factor": "many"}', "bad_scaling"), ('{"factor": 2}', "bad_scaling"),
                ('{"scaling_factor": 0.9}', "bad_scaling"), ("[1.5]", "bad_scaling"),
                ('{"scaling_factor": true}', "bad_scaling"), ("1.5", "bad_scaling"),
                ('{"scaling_factor": 1e9}', "bad_scaling"), ("{", "bad_json"), ("", "bad_json"),
                ('{"scaling_factor": NaN}', "not_finite"),
                ('{"scaling_factor": 1.5, "scaling_factor": 1}', "repeated_key"),
                ('{"scaling_factor": 1.5, "benchmark": "bert"}', "bad_scaling"),
                ('{"scaling_factor": 1.5, "files": ["result_7.txt"]}', "bad_scaling"),
            )
        ),
    ],
)  # fmt: skip
def test_scaling_json_counts_without_points(text, points, factor, code):
    logs = [make_log(10.0 + i, seed=i, batch_size=288) for i in range(5)]
    files = make_package(logs) | {f"{SET}/scaling.json": text}
    [record] = score_tree(files, root=("/", "v5.1" if points else "v9.0"))
    assert record["olympic_mean_seconds"] == 720
    assert record["normalised_seconds"] == pytest.approx(720 * factor)
    warnings = codes(record) - {"unknown_benchmark"}
    assert warnings == {code} - {None}
    assert record["eligible"]
    told = [p["file"] for p in record["problems"] if p["code"] == code]
    assert told == [f"{SET}/scaling.json"] * (code is not None)


@pytest.mark.parametrize(
    ("settings", "code", "factor", "ranked"),
    [
        *(({"batch_size": 10**6}, "missing_rcp", factor, ranked)
          for factor, ranked in ((None, False), (1.0, False), (1.25, True))),
        # 3 epochs where the reference needs 4: a factor takes the set to the reference's mean.
        *(({"batch_size": 256, "epochs": 3}, "converges_too_fast", factor, ranked)
          for factor, ranked in ((None, False), (1.0, False), (1.3, False), (1.333, True),
                                 (1.5, True))),
    ],
)  # fmt: skip
def test_a_review_scaled_a_set_beyond_the_reference_points(settings, code, factor, ranked):
    """As v3.1 unet3d at batch sizes 28 and 56."""
    files = make_package([make_log(10.0 + i, seed=i, **settings) for i in range(5)])
    if factor is not None:
        files[f"{SET}/scaling.json"] = json.dumps({"scaling_factor": factor})
    [record] = score_tree(files)
    assert record["normalised_seconds"] == 720 * (factor if ranked else 1)
    assert (code in codes(record, "error")) == (not ranked)
    assert ("scaling_believed" in codes(record)) == (
        ranked or (factor, code) == (1.0, "missing_rcp")
    )
    assert is_ranked_by_server(record, files) == record["eligible"] == ranked


def test_a_scaling_json_beside_no_logs_is_told():
    files = make_package() | {"ACME/results/big/scaling.json": '{"scaling_factor": 1.5}'}
    [record] = score_tree(files)
    assert (record["normalised_seconds"], codes(record)) == (720, {"misplaced_scaling"})


@pytest.mark.parametrize(
    ("folder", "scaling"),
    [
        ("hpc_results_v2.0/ACME/results/big/weak/deepcam", "weak"),
        ("elsewhere/ACME/results/big/strong/openfold", "strong"),
        ("hpc_results_v2.0/ACME/results/big/strong/new_one", "strong"),
        ("hpc_results_v0.7/ACME/results/big/cosmoflow", None),
    ],
)
def test_mlperf_hpc_is_named_and_not_scored(folder, scaling):
    name = folder.rpartition("/")[2]
    logs = [make_log(10.0 + i, seed=i, benchmark=name, division=None) for i in range(12)]
    files = {f"{folder}/result_{i}.txt": log for i, log in enumerate(logs)}
    place = folder.partition("/results")[0]
    files[f"{place}/systems/big.json"] = '{"division": "closed", "submitter": "ACME"}'
    [record] = score_tree(files, root=("/", "x"))
    figures = ("olympic_mean_seconds", "normalised_seconds", "rcp", "cv_percent")
    assert [record[name] for name in figures] == [None] * 4
    named = ("suite", "scaling", "organisation", "system", "benchmark", "division", "n_runs")
    said = ["MLPerf HPC", scaling, "ACME", "big", name, "closed", 12]
    assert [record[name] for name in named] == said
    assert (codes(record), len(record["problems"]), record["eligible"]) == (
        {"hpc_not_scored"}, 1, False,
    )  # fmt: skip


def test_one_log_of_mlperf_hpc_is_not_scored():
    inside = ("/", "hpc", "ACME", "results", "big", "weak", "deepcam")
    for path, root, named, words in (
        ("result_0.txt", inside, ("weak", "ACME", "big"), " (weak scaling)"),
        ("logs/result_0.txt", ("/", "tmp"), (None, None, None), ""),
    ):
        [record] = score_tree({path: make_log(benchmark="deepcam")}, root=root)
        assert (record["scaling"], record["organisation"], record["system"]) == named
        assert (record["suite"], record["olympic_mean_seconds"]) == ("MLPerf HPC", None)
        told = [p["message"] for p in record["problems"]]
        assert told == [f"MLPerf HPC is not scored{words}"]


def test_a_closed_set_without_a_batch_size_says_so():
    """Source: mlperf-logging, rcp_checker: "Could not detect global_batch_size"."""
    logs = [make_log(10.0 + i, seed=i).replace("global_batch_size", "gbs") for i in range(5)]
    [record] = score_tree(make_package(logs), root=("/", "v5.1"))
    [problem] = record["problems"]
    assert (problem["code"], problem["field"]) == ("batch_size_differs", "global_batch_size")
    assert problem["file"] == "ACME/results/big/retinanet/result_0.txt"
    assert problem["message"].startswith("no global_batch_size in the log: the set is not compared")
    assert (record["rcp"]["verdict"], record["eligible"]) == ("missing", False)
    assert record["normalised_seconds"] == record["olympic_mean_seconds"] == 720


def test_a_benchmark_without_a_definition_is_scored_by_the_general_rule():
    files = {
        f"v9.0/ACME/results/big/rnnt/result_{i}.txt": make_log(10.0 + i, seed=i, benchmark="rnnt")
        for i in range(10)
    }
    [record] = score_tree(files | {"v9.0/ACME/systems/big.json": '{"division": "closed"}'})
    assert record["olympic_mean_seconds"] == 14.5 * 60
    assert (record["rcp"], record["reached_fraction"]) == (None, 1.0)
    assert codes(record) >= {"unknown_benchmark"}


def test_a_log_by_itself_is_read_line_by_line():
    [record] = score_tree({"run.txt": make_log(10.0, seed=3)})
    named = (record["path"], record["benchmark"], record["system"])
    assert named == ("run.txt", "retinanet", "big")
    assert record["runs"][0]["tta_seconds"] == 600.0
    assert codes(record, "error") == set()
    [record] = score_tree({"run.txt": make_log().replace('"step": 1', '"step": NaN')})
    assert codes(record, "error") == set()
    assert "not_finite" in codes(record, "warning")


def test_files_among_the_code_of_a_package_are_nobodys():
    others = {"ACME/benchmarks/requirements.txt": "torch", "notes/x.txt": make_log(),
              "ACME/benchmarks/tts/speakers.tsv": "a\tb",
              "ACME/benchmarks/squad/train/a.json": "{}"}  # fmt: skip
    paths = [record["path"] for record in score_tree(make_package() | others)]
    assert paths == [SET, "notes/x.txt"]


def test_records_have_equal_keys_in_json():
    trees = make_package(), {"x.txt": ""}, {"y.log": make_log()}
    records = [record for tree in trees for record in score_tree(tree)]
    assert len({tuple(sorted(record)) for record in records}) == 1
    assert json.loads(json.dumps(records)) == records


def test_a_set_is_scored_by_the_definition_of_its_version():
    definitions = []
    for folder in ("v5.1", "v5.0", "v3.0", "cloud_v2.8"):
        tree = {f"{folder}/{path}": text for path, text in make_package().items()}
        [record] = score_tree(tree, root=("/",))
        definitions.append(record["definition"] and record["definition"]["id"])
    # The logs are older than v5.0, and a folder of another name says no round.
    v5_1, v5_0 = "mlperf-v5.1-retinanet", "mlperf-v5.0-retinanet"
    assert definitions == [v5_1, v5_0, None, v5_0]


def test_texts_that_are_no_logs_are_left_alone_and_broken_logs_are_not():
    curve = "epoch\thours\ttop1Accuracy\n1\t0.5\t94.1\n"
    others = {"requirements.txt": "torch", "CIFAR10/train/a.tsv": curve}
    assert [r["path"] for r in score_tree(others)] == ["CIFAR10/train/a.tsv"]
    logs = {"logs/0.txt": make_log(), "logs/1.txt": "Killed"}
    assert [r["path"] for r in score_tree(others | logs)][1:] == ["logs/0.txt", "logs/1.txt"]
    assert len(score_tree({"x/0.txt": "Killed", "x/1.txt": ""})) == 2


def old_log(benchmark, minutes, *, seeds=(), value):
    head = f":::MLPv0.5.0 {benchmark} "
    stop = 1541720000 + minutes * 60
    lines = [f"{head}1541720000.5 (a.py:1) run_start"]
    lines += [f"{head}1541720001.5 (a.py:2) run_set_random_seed: {seed}" for seed in seeds]
    lines += [f'{head}{stop} (a.py:3) eval_accuracy: {{"epoch": 9, "value": {value}}}',
              f'{head}{stop + 0.5} (a.py:4) run_stop: {{"success": true}}']  # fmt: skip
    return "\n".join(lines)


def old_package(benchmark, logs):
    """A set of v0.5 in a folder that does not say so."""
    entry = {"division": "closed", "hardware": "Big", "nodes": [{"num_nodes": 2,
             "accelerator": "V100", "num_accelerators": 8}]}  # fmt: skip
    runs = {f"ACME/results/big/{benchmark}/result_{i}.txt": log for i, log in enumerate(logs)}
    return {**runs, "ACME/results/big/entry.json": json.dumps(entry)}


@pytest.mark.parametrize(
    ("seeds", "severity", "code"),
    [
        ([()] * 5, "warning", "no_seed"),
        ([(7,)] * 5, "error", "same_seed"),
        ([(1, 2), (3, 4), (5, 1), (6, 7), (8, 9)], "warning", "same_seed"),
    ],
)
def test_v05_did_not_ask_for_seeds_but_none_may_repeat(seeds, severity, code):
    logs = [old_log("resnet", 10 + i, seeds=each, value="0.75") for i, each in enumerate(seeds)]
    [record] = score_tree(old_package("resnet", logs))
    assert (record["version"], codes(record)) == ("0.5", {code})
    assert codes(record, severity) == {code}
    assert (record["olympic_mean_seconds"], record["eligible"]) == (720, severity == "warning")


def test_of_100_started_runs_of_ncf_those_that_converged_are_told():
    logs = [old_log("ncf", 1 + i, value="0.64" if i < 55 else "0.5") for i in range(100)]
    logs[55:] = [log.replace("true", "false") for log in logs[55:]]
    [record] = score_tree(old_package("ncf", logs))
    assert (record["runs_reached"], record["runs_started"]) == (55, 100)
    assert record["reached_fraction"] == 0.55
    assert len(record["scored_runs"]) == 50
    assert record["olympic_mean_seconds"] == 25.5 * 60
    assert record["eligible"]


def stable_diffusion_log(minutes, *, seed):
    """A run that is measured at three checkpoints, of which the second reaches both metrics."""
    log = make_log(minutes, seed=seed, benchmark="stable_diffusion", batch_size=1024)
    lines = [line for line in log.splitlines(keepends=True) if "eval_accuracy" not in line]
    late = 1_700_090_000_000
    measured = [
        make_line("eval_accuracy", late, value, samples_count=samples, metric=metric)
        for samples, metric, value in (
            (3_584_000, "CLIP", 0.2), (3_584_000, "FID", 70.0), (3_072_000, "FID", 89.0),
            (3_072_000, "CLIP", 0.16), (2_560_000, "FID", 80.0), (2_560_000, "CLIP", 0.14),
        )
    ]  # fmt: skip
    return "".join(lines[:-1] + measured + lines[-1:])


def test_checkpoint_with_both_metrics_converges():
    """At batch size 1024 the reference needs 2,839,273: (5 x 2.56 + 6 x 3.072) / 11 million."""
    logs = [stable_diffusion_log(10.0 + i, seed=i) for i in range(10)]
    path = "v4.1/ACME/results/big/stable_diffusion"
    [record] = score_tree({f"{path}/result_{i}.txt": log for i, log in enumerate(logs)})
    assert {run["convergence"] for run in record["runs"]} == {3_072_000}
    assert {run["evaluations"] for run in record["runs"]} == {3}
    assert (record["olympic_mean_seconds"], record["rcp"]["verdict"]) == (14.5 * 60, "pass")
    assert codes(record, "error") == {"missing_system"}


def test_single_log_has_its_benchmarks_metrics():
    log = stable_diffusion_log(10.0, seed=1)
    [record] = score_tree({"sd.txt": log}, root=("/", "elsewhere"))
    assert (record["benchmark"], codes(record, "error")) == ("stable_diffusion", set())
    assert record["runs"][0]["convergence"] == 3_072_000


def test_ranks_share_no_seed_between_runs():
    """Source: mlperf-logging, seed_checker: no seed of one run may be a seed of another."""
    logs = [make_log(10.0 + i, seed=i) for i in range(5)]
    own = [make_line("seed", START, 100 + i) + log for i, log in enumerate(logs)]
    [record] = score_tree(make_package(own))
    assert (codes(record), record["runs"][2]["seeds"]) == (set(), [102, 2])
    shared = [*own[:4], make_line("seed", START, 1) + own[4]]
    [record] = score_tree(make_package(shared))
    assert codes(record, "error") == {"same_seed"}
