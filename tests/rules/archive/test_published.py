"""Published rounds: their sources, their files, and the scores that they state."""

import json
import math
import re
from collections.abc import Callable
from datetime import date
from typing import Any

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.archive.files import (
    COMMIT,
    KNOWN_SOURCES,
    find_source,
    published_on,
    source_name,
)
from finishline.rules.logs import mllog_lines, parse_run_log
from finishline.rules.logs.mllog import read_preparation_seconds
from finishline.rules.ranking.ranking import Metric, Standing, rank
from finishline.rules.scoring.scoring import score
from finishline.rules.submissions.claim import read_claim


@pytest.mark.parametrize(
    ("benchmark_id", "day"),
    [
        ("mlperf-v0.6-resnet", date(2019, 7, 10)),
        ("mlperf-v0.7-bert", date(2020, 7, 29)),
        ("mlperf-v5.1-llama2_70b_lora", date(2025, 11, 12)),
        ("mlperf-v9.9-resnet", None),
        ("cifar10", None),
        ("my-mlperf-v5.1-copy", None),
    ],
)
def test_a_round_has_its_day_where_a_source_has_it(benchmark_id, day):
    assert published_on(benchmark_id) == day


def test_a_claim_of_an_archive_is_of_its_rounds_day_unless_it_names_one(shipped_benchmarks):
    benchmarks = shipped_benchmarks
    known = next(name for name in benchmarks if name.startswith("mlperf-v5.1-"))
    claim = {
        "benchmark": known,
        "division": "closed",
        "model": "m",
        "framework": "f",
        "system": {"name": "s", "hardware_class": "h", "processor": "p"},
        "runs": ["result_0.txt"],
    }
    named = claim | {"submitted_on": "2026-01-02"}
    days = [
        read_claim(
            json.dumps(each).encode(), file="claim.json", benchmarks=benchmarks, archive=True
        ).submitted_on
        for each in (claim, named)
    ]
    assert days == [date(2025, 11, 12), date(2026, 1, 2)]
    own = read_claim(json.dumps(claim).encode(), file="claim.json", benchmarks=benchmarks)
    assert own.submitted_on is None


Record = dict[str, Any]


Score = Callable[..., list[Record]]


@pytest.fixture
def records(score_tree, published):
    return {record["path"]: record for record in score_tree(published("dawnbench/entries"))}


@pytest.fixture(scope="module")
def published_figures(expected):
    return expected("dawnbench/expected.json")


FIGURES = {
    "train": {
        "tta_seconds": "tta_seconds", "tta_epoch": "tta_epoch", "tta_metric": "tta_metric",
        "tta_row": "tta_row", "cost_usd": "cost_usd", "best_metric": "best_metric",
        "evaluations": "rows",
    },
    "inference": {
        "latency_ms": "latency_ms", "cost_usd_per_10000": "cost_usd_per_10000",
        "best_metric": "accuracy",
    },
}  # fmt: skip


def test_every_figure_is_the_published_one(records, published_figures):
    assert len(records) == len(published_figures["entries"]) == 26
    for item in published_figures["entries"]:
        record = records[item["path"]]
        for ours, theirs in FIGURES[item["kind"]].items():
            if item[theirs] is None:
                assert record[ours] is None, (item["path"], ours)
            else:
                assert math.isclose(record[ours], item[theirs], rel_tol=1e-9), (item["path"], ours)
        named = (record["benchmark"], record["kind"], record["metric"])
        assert named == (item["task"], item["kind"], item["metric"])
        assert record["tta_display"] == item.get("tta_display")
        assert (record["eligible"], record["problems"]) == (True, [])


BOARDS: list[tuple[str, str, Metric, str]] = [
    ("training_time", "train", "tta", "tta_seconds"),
    ("training_cost", "train", "cost", "cost_usd"),
    ("inference_latency", "inference", "latency", "latency_ms"),
    ("inference_cost", "inference", "inference_cost", "cost_usd_per_10000"),
]


@pytest.mark.parametrize(("board", "kind", "metric", "figure"), BOARDS)
def test_the_boards_have_the_published_order(
    records, published_figures, board, kind, metric, figure
):
    standings = [
        Standing(
            submission_id=record["path"],
            status="claimed",
            submitted_at=record["timestamp"],
            tta_seconds=record[figure] if metric == "tta" else None,
            cost_usd=record[figure] if metric == "cost" else None,
            latency_ms=record[figure] if metric == "latency" else None,
            eligible=record["eligible"],
            cost_usd_per_10000=record[figure] if metric == "inference_cost" else None,
        )
        for record in records.values()
        if record["kind"] == kind
    ]
    ranked = [item for item in rank(standings, metric=metric) if item.rank is not None]
    wanted = published_figures["leaderboards"][f"CIFAR10/{board}"]
    assert [(item.rank, item.submission_id) for item in ranked] == [
        (item["rank"], item["path"]) for item in wanted
    ]


def test_every_malformed_state_is_refused_for_its_own_reason(
    score_tree, published, published_figures
):
    files = published("dawnbench/malformed")
    for number, state in published_figures["malformed"].items():
        own = {path: text for path, text in files.items() if path.startswith(f"{number}/")}
        [record] = score_tree({path.partition("/")[2]: text for path, text in own.items()})
        assert record["path"].startswith(state["base"])
        assert not record["eligible"]
        codes = {problem["code"] for problem in record["problems"]}
        assert codes - {"more"} == {problem["code"] for problem in state["problems"]}, number
        assert all(p["expected"] for p in record["problems"] if p["code"] != "more")


def test_all_malformed_states_at_once_hinder_no_entry(score_tree, published):
    tree = {f"a/{path}": text for path, text in published("dawnbench/entries").items()}
    tree |= {f"b/{path}": text for path, text in published("dawnbench/malformed").items()}
    records = score_tree(tree)
    assert sum(record["eligible"] for record in records) == 26
    assert len(records) == 26 + 11


@pytest.fixture(scope="module")
def v51_files(published):
    return published("mlperf/v5.1")


@pytest.fixture
def v51(score_tree, v51_files):
    return {record["path"]: record for record in score_tree(v51_files)}


@pytest.fixture(scope="module")
def groups(expected):
    return {
        f"{group['org']}/results/{group['system']}/{group['benchmark']}": group
        for group in expected("mlperf/expected_v51.json")["groups"]
    }


def same(first, second, rel=1e-09):
    if first is None or second is None:
        return first is second
    return math.isclose(first, second, rel_tol=rel)


def test_every_set_is_found_and_named(v51, groups):
    assert v51.keys() == groups.keys()
    for path, group in groups.items():
        record = v51[path]
        named = (record["organisation"], record["system"], record["benchmark"], record["division"])
        assert named == tuple(group[name] for name in ("org", "system", "benchmark", "division"))
        assert (record["n_runs"], record["global_batch_size"]) == (group["n_files"], group["gbs"])


def test_every_time_and_score_is_that_of_the_checker(v51, groups):
    for path, group in groups.items():
        record = v51[path]
        assert same(record["olympic_mean_seconds"], group["olympic_unscaled_min"] * 60), path
        assert same(record["normalised_seconds"], group["score_recomputed_scaling_min"] * 60), path
        assert same(record["cv_all_percent"], group["tta_cv_ddof0_pct"]), path
        if record["reached_fraction"] == 1.0:
            assert same(record["cv_percent"], group["tta_cv_ddof0_pct"]), path


def test_every_run_is_that_of_the_checker(v51, groups):
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
    score_tree, v51_files, groups, points, pruned
):
    for record in score_tree(v51_files, pruned=pruned):
        item = groups[record["path"]]["rcp"][points]
        rcp = record["rcp"]
        assert (rcp["verdict"] == "pass") == item["passed"], record["path"]
        assert same(rcp["factor"], item["norm_factor"], 1e-6), record["path"]
        if "rcp_mean" in item:
            assert same(rcp["mean"], item["rcp_mean"]), record["path"]
            # The checker finds its limit by bisection and stops early.
            assert same(rcp["lowest"], item["rcp_min"], 1e-4), record["path"]


def test_a_copied_set_and_a_missing_factor_are_flagged_and_nothing_is_refused(v51, groups):
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


def test_every_v05_run_stops_when_it_was_published_to(score_tree, published, expected):
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
def test_the_published_variation_of_v05(score_tree, published, path, percent):
    """Verma et al., "Demystifying the MLPerf Training Benchmark Suite"."""
    name = "v0.5.0/" + path
    files = {f"{name}/{file}": text for file, text in published(f"mlperf/v0.5/{name}").items()}
    [record] = score_tree(files)
    assert record["cv_percent"] == pytest.approx(percent, abs=0.0005)


def test_an_open_set_is_scored_without_a_convergence_check(score_tree, published):
    [record] = score_tree(published("mlperf/synthetic_open"))
    assert (record["division"], record["rcp"]) == ("open", None)
    assert record["normalised_seconds"] == record["olympic_mean_seconds"] > 0


TRUSTED_FIGURE = 2035.848


UNTRUSTED = {
    "nan_stop", "stop_before_start", "stop_before_evals", "two_run_stops",
    "two_run_stops_early_eval", "status_aborted",
}  # fmt: skip


def test_every_hostile_log_is_flagged_and_only_honest_times_come_out(score_tree, published):
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


def test_a_log_cannot_hide_a_batch_size_or_an_evaluation_in_a_package(score_tree, published):
    logs = published("mlperf/hostile")
    for name in ("hidden_gbs", "hidden_eval"):
        path = "AMD/results/MI300X/llama2_70b_lora/result_0.txt"
        [record] = score_tree({path: logs[f"{name}.txt"]})
        assert record["global_batch_size"] == 8
        assert record["runs"][0]["convergence"] == 3840


V51 = "4da2d1cd71eb30c855dad12712480ae5ac90dd89"


def test_a_known_commit_names_its_archive():
    source = find_source("mlperf-v5.1-llama31_8b", V51)
    assert source is not None
    assert (source.name, source.url.rpartition("/")[2]) == (
        "MLPerf Training v5.1",
        "training_results_v5.1",
    )
    assert source_name(V51) == "MLPerf Training v5.1"


@pytest.mark.parametrize(
    ("benchmark_id", "commit"),
    [
        ("mlperf-v5.1-llama31_8b", None),
        ("mlperf-v5.1-llama31_8b", V51[:39] + "0"),
        ("mlperf-v5.0-bert", V51),
        ("mlperf-v5x1-bert", V51),
        ("digits", V51),
    ],
)
def test_an_archive_is_known_by_its_own_commit_for_its_own_benchmarks(benchmark_id, commit):
    assert find_source(benchmark_id, commit) is None


def test_every_source_has_whole_commits_and_a_link():
    commits = [commit for source in KNOWN_SOURCES for commit in source.commits]
    assert all(COMMIT.fullmatch(commit) for commit in commits)
    assert len(set(commits)) == len(commits)
    assert all(source.url.startswith("https://github.com/") for source in KNOWN_SOURCES)
    assert all(re.compile(source.benchmarks) for source in KNOWN_SOURCES)


Log = Callable[..., str]


def package(organisation, benchmark, log):
    return {f"{organisation}/results/big/{benchmark}/result_0.txt": log}


def rounds(records):
    return {record["path"].split("/")[0]: record["version"] for record in records}


def told(records):
    return [p["code"] for record in records for p in record["problems"]]


@pytest.mark.parametrize(
    ("beside", "version"),
    [(["gpt3"], "4.1"), (["bert", "retinanet"], "5.0"), (["flux1"], "5.1")],
)
def test_benchmarks_that_only_one_round_has_tell_the_round_of_those_beside_them(
    score_tree, make_log, beside, version
):
    files = package("ACME", "llama2_70b_lora", make_log(benchmark="llama2_70b_lora"))
    for name in beside:
        files |= package("Other", name, make_log())
    records = score_tree(files)
    assert rounds(records) == {"ACME": version, "Other": version}
    assert {record["version"] for record in records} == {version}
    assert "round_not_told" not in told(records)


def test_benchmarks_that_several_rounds_have_are_all_of_the_newest_of_those(score_tree, make_log):
    files = package("ACME", "llama2_70b_lora", make_log(benchmark="llama2_70b_lora"))
    files |= package("ACME", "bert", make_log(benchmark="bert"))
    records = score_tree(files)
    assert [record["version"] for record in records] == ["5.0", "5.0"]
    problems = [p for r in records for p in r["problems"] if p["code"] == "round_not_told"]
    assert [p["expected"] for p in problems] == ["a folder named after it: v4.1 or v5.0"] * 2


def test_an_organisation_tells_its_own_round_in_a_folder_of_several(score_tree, make_log):
    files = {}
    for organisation, beside in (("ACME", "gpt3"), ("Other", "flux1")):
        files |= package(organisation, "dlrm_dcnv2", make_log(benchmark="dlrm_dcnv2"))
        files |= package(organisation, beside, make_log())
    assert rounds(score_tree(files)) == {"ACME": "4.1", "Other": "5.1"}


def test_what_nobody_tells_is_scored_by_the_newest_round_with_a_warning(score_tree, make_log):
    records = score_tree(package("ACME", "dlrm_dcnv2", make_log(benchmark="dlrm_dcnv2")))
    [record] = records
    assert record["version"] == "5.1"
    [problem] = [p for p in record["problems"] if p["code"] == "round_not_told"]
    assert problem["severity"] == "warning"
    assert problem["expected"] == "a folder named after it: v4.1 or v5.0 or v5.1"


@pytest.mark.parametrize("folder", ["v5.0", "training_results_v5.0"])
def test_the_benchmarks_of_v50_are_told_by_their_folder_from_those_of_other_rounds(
    score_tree, make_log, folder
):
    for name in ("llama2_70b_lora", "bert", "stable_diffusion", "rgat", "llama31_405b"):
        files = package(f"{folder}/ACME", name, make_log(benchmark=name))
        [record] = score_tree(files)
        assert record["definition"]["id"] == f"mlperf-v5.0-{name}"
        assert "round_not_told" not in told([record])


def test_the_name_of_a_folder_stands_above_what_lies_in_it(score_tree, make_log):
    log = make_log(benchmark="llama2_70b_lora")
    files = package("ACME", "llama2_70b_lora", log) | package("ACME", "flux1", make_log())
    records = score_tree({f"training_results_v4.1/{path}": log for path, log in files.items()})
    assert {r["benchmark"]: r["version"] for r in records}["llama2_70b_lora"] == "4.1"
    assert "round_not_told" not in told(records)


def test_the_round_of_a_log_by_itself_may_be_unknown(score_tree, make_log):
    assert "round_not_told" in told(score_tree({"a.txt": make_log(benchmark="dlrm_dcnv2")}))
    alone = make_log(benchmark="flux1")
    assert "round_not_told" not in told(score_tree({"a.txt": alone}))


START_MS = 1_700_000_000_000


MINUTE_MS = 60_000


@pytest.fixture
def prepared_log(make_log, make_line):
    """A run of 10 minutes whose ranks log init_start so many minutes before it, in that order."""

    def build(*minutes, **options):
        began = [make_line("init_start", START_MS - int(m * MINUTE_MS)) for m in minutes]
        measured = make_line("eval_start", START_MS + 500, epoch_num=1)
        started = make_line("run_start", START_MS)
        return "".join(began) + make_log(**options).replace(started, started + measured)

    return build


def only_run(records):
    [record] = records
    told = [p["message"] for p in record["problems"] if p["code"] == "long_preparation"]
    return record["runs"][0]["tta_seconds"], told


@pytest.mark.parametrize(
    ("minutes", "counted"), [((29,), 0), ((30,), 0), ((35,), 5), ((32, 36, 33), 6)]
)
def test_what_is_over_thirty_minutes_is_on_the_clock_of_a_closed_run(
    score_tree, prepared_log, minutes, counted
):
    """Source: training_rules.adoc, "Run Results"; of several ranks the first to begin counts."""
    log = prepared_log(*minutes)
    for name in ("run.txt", "v5.1/ACME/results/big/retinanet/result_0.txt"):
        seconds, told = only_run(score_tree({name: log}))
        assert seconds == (10 + counted) * 60
        assert len(told) == (counted > 0)
    benchmark = shipped_definition("mlperf-v5.1-retinanet")
    run = parse_run_log(log.encode(), name="result_0.txt", benchmark=benchmark)
    result = score([run], benchmark, division="closed", price_usd_per_hour=None)
    assert result.runs[0].tta_seconds == seconds


def test_an_open_run_has_four_hours(score_tree, prepared_log):
    path = "v5.1/ACME/results/big/retinanet/result_0.txt"
    for minutes, counted in ((239, 0), (245, 5)):
        log = prepared_log(minutes, division="open")
        assert only_run(score_tree({path: log}))[0] == (10 + counted) * 60


def test_a_line_that_hides_when_it_began_is_no_way_round(score_tree, prepared_log):
    log = 'a framework wrote "init_start"\n' + prepared_log(35)
    path = "v5.1/ACME/results/big/retinanet/result_0.txt"
    assert only_run(score_tree({path: log}))[0] == 15 * 60


@pytest.fixture
def parsed(monkeypatch):
    """The texts of the lines that are parsed one by one."""
    texts = []
    read_record = mllog_lines.read_record

    def spy(text, *args, **options):
        texts.append(text)
        return read_record(text, *args, **options)

    monkeypatch.setattr(mllog_lines, "read_record", spy)
    return texts


def test_of_a_thousand_ranks_only_an_init_start_that_can_be_the_first_is_parsed(make_line, parsed):
    ranks = [make_line("init_start", START_MS + rank) for rank in range(1000)]
    broken = make_line("init_start", START_MS - 9000).replace("}", "")
    earlier = make_line("init_start", START_MS - 2000)
    started = make_line("run_start", START_MS + 5000)
    lines = [*ranks, broken, earlier, *ranks, started, make_line("init_start", 1000)]
    log = "".join(lines).replace("POINT_IN_TIME", "INTERVAL_START").encode()

    assert read_preparation_seconds([log], name="run.txt") == 7
    assert len(parsed) == 4


@pytest.mark.parametrize("key", ["init_start", "init_stop"])
def test_a_preparation_that_begins_or_ends_after_the_run_starts_is_not_told(make_line, key):
    began = "" if key == "init_start" else make_line("init_start", START_MS)
    log = began + make_line(key, START_MS + 2) + make_line("run_start", START_MS + 1)
    assert read_preparation_seconds([log.encode()], name="run.txt") is None
