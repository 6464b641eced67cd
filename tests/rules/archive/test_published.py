"""Published rounds: their sources, their files, and the scores that they state."""

import json
import re
from datetime import date

import pytest

from finishline.rules.archive.definitions import shipped_definition
from finishline.rules.archive.files import COMMIT, find_source, known_sources
from finishline.rules.benchmarks.benchmark import published_on, round_of_day
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.lines import MLLOG
from finishline.rules.logs.mllog import read_log
from finishline.rules.scoring.scoring import score
from finishline.rules.submissions.claim import read_claim
from tests.support.archive_folders import (
    MINUTE,
    START,
    definitions,
    make_line,
    make_log,
    score_tree,
)


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


@pytest.mark.parametrize(
    ("rounds", "day", "found"),
    [
        (("4.1", "5.0", "5.1", "6.0"), date(2025, 8, 18), "5.1"),
        (("5.0", "5.1", "6.0"), date(2025, 11, 12), "5.1"),
        (("5.0", "5.1", "6.0"), date(2025, 11, 13), "6.0"),
        (("5.0", "5.1"), date(2026, 11, 1), "5.1"),
        # v4.0 and v4.1 have no known day.
        (("4.0", "4.1", "5.0"), date(2024, 5, 1), "5.0"),
        (("5.0", "5.1", "6.0"), None, "6.0"),
    ],
)
def test_logs_are_of_the_first_round_published_after_them(rounds, day, found):
    assert round_of_day(rounds, day) == found


def test_a_claim_of_an_archive_is_of_its_rounds_day_unless_it_names_one():
    benchmarks = definitions()
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


V51 = "4da2d1cd71eb30c855dad12712480ae5ac90dd89"


@pytest.mark.parametrize(
    ("benchmark_id", "commit", "known"),
    [
        ("mlperf-v5.1-llama31_8b", V51, True),
        ("mlperf-v2.1-bert", "158189d4cbfbee366c10da1f0f086c85d8f15b5f", True),
        ("mlperf-v2.0-bert", "158189d4cbfbee366c10da1f0f086c85d8f15b5f", False),
        ("mlperf-v5.1-llama31_8b", None, False),
        ("mlperf-v5.1-llama31_8b", V51[:39] + "0", False),
        ("mlperf-v5.0-bert", V51, False),
        ("mlperf-v5x1-bert", V51, False),
        ("digits", V51, False),
    ],
)
def test_an_archive_is_known_by_its_own_commit_for_its_own_benchmarks(benchmark_id, commit, known):
    source = find_source(commit, benchmark_id)
    assert (source is not None) == known
    if known:
        version = benchmark_id.split("-")[1]
        assert source.name == find_source(commit).name == f"MLPerf Training {version}"
        assert source.url.rpartition("/")[2] == f"training_results_{version}"


def test_every_source_has_whole_commits_and_a_link():
    commits = [commit for source in known_sources() for commit in source.commits]
    assert all(COMMIT.fullmatch(commit) for commit in commits)
    assert len(set(commits)) == len(commits)
    assert all(source.url.startswith("https://github.com/") for source in known_sources())
    assert all(re.compile(source.benchmarks) for source in known_sources())


def package(organisation, benchmark, log):
    return {f"{organisation}/results/big/{benchmark}/result_0.txt": log}


def told(records):
    return [p["code"] for record in records for p in record["problems"]]


@pytest.mark.parametrize(
    ("sets", "versions", "expected"),
    [
        # Benchmarks that only one round has tell the round of those beside them.
        (["ACME/llama2_70b_lora", "Other/unet3d"], {"ACME": "4.0", "Other": "4.0"}, None),
        (["ACME/llama2_70b_lora", "Other/bert", "Other/retinanet"],
         {"ACME": "5.0", "Other": "5.0"}, None),
        (["ACME/retinanet", "Other/flux1"], {"ACME": "5.1", "Other": "5.1"}, None),
        # Benchmarks that several rounds have are of the newest of those.
        (["ACME/llama2_70b_lora", "ACME/bert"], {"ACME": "5.0"}, "v4.0 or v4.1 or v5.0"),
        # An organisation tells its own round in a folder of several.
        (["ACME/rnnt", "ACME/stable_diffusion", "Other/retinanet", "Other/flux1"],
         {"ACME": "3.1", "Other": "5.1"}, None),
        # What no folder tells is scored by the first round that was published after the logs.
        (["ACME/flux1"], {"ACME": "5.1"}, "v5.1 or v6.0"),
    ],
)  # fmt: skip
def test_sets_tell_the_round_of_those_beside_them(sets, versions, expected):
    files = {}
    for organisation, name in (each.split("/") for each in sets):
        files |= package(organisation, name, make_log(benchmark=name))
    records = score_tree(files)
    assert {(r["path"].split("/")[0], r["version"]) for r in records} == set(versions.items())
    unsure = [p for r in records for p in r["problems"] if p["code"] == "round_not_told"]
    words = f"a folder named after it: {expected}"
    wanted = [("warning", words)] * len(records) if expected is not None else []
    assert [(p["severity"], p["expected"]) for p in unsure] == wanted


def test_the_name_of_a_folder_stands_above_what_lies_in_it():
    log = make_log(benchmark="llama2_70b_lora")
    files = package("ACME", "llama2_70b_lora", log) | package("ACME", "flux1", make_log())
    records = score_tree({f"training_results_v4.1/{path}": log for path, log in files.items()})
    assert {r["benchmark"]: r["version"] for r in records}["llama2_70b_lora"] == "4.1"
    assert "round_not_told" not in told(records)
    assert "round_not_told" in told(score_tree({"a.txt": make_log(benchmark="dlrm_dcnv2")}))
    assert "round_not_told" not in told(score_tree({"a.txt": make_log(benchmark="gpt_oss_20b")}))


@pytest.mark.parametrize("folder", ["v5.0", "training_results_v5.0"])
def test_folder_tells_the_benchmarks_of_v50(folder):
    for name in ("llama2_70b_lora", "bert", "stable_diffusion", "rgat", "llama31_405b"):
        files = package(f"{folder}/ACME", name, make_log(benchmark=name))
        [record] = score_tree(files)
        assert record["definition"]["id"] == f"mlperf-v5.0-{name}"
        assert "round_not_told" not in told([record])


def prepared_log(*minutes, **options):
    """A run of 10 minutes whose ranks log init_start so many minutes before it, in that order."""
    began = [make_line("init_start", START - int(m * MINUTE)) for m in minutes]
    measured = make_line("eval_start", START + 500, epoch_num=1)
    started = make_line("run_start", START)
    return "".join(began) + make_log(**options).replace(started, started + measured)


def only_run(records):
    [record] = records
    told = [p["message"] for p in record["problems"] if p["code"] == "long_preparation"]
    return record["runs"][0]["tta_seconds"], told


@pytest.mark.parametrize(
    ("minutes", "counted"), [((29,), 0), ((30,), 0), ((35,), 5), ((32, 36, 33), 6)]
)
def test_preparation_beyond_thirty_minutes_counts(minutes, counted):
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


def test_an_open_run_has_four_hours():
    path = "v5.1/ACME/results/big/retinanet/result_0.txt"
    for minutes, counted in ((240, 0), (245, 5)):
        log = prepared_log(minutes, division="open")
        assert only_run(score_tree({path: log}))[0] == (10 + counted) * 60
    # A line that hides when it began is no way round.
    hidden = 'a framework wrote "init_start"\n' + prepared_log(35)
    assert only_run(score_tree({path: hidden}))[0] == 15 * 60


def preparation_of(log):
    problems = []
    report = problems.append
    reading = read_log([log], MLLOG, name="r", allowed={}, report=report, odd=report)
    return reading.run.preparation_seconds


def test_preparation_begins_with_the_first_of_a_thousand_ranks():
    ranks = [make_line("init_start", START + rank) for rank in range(1000)]
    broken = make_line("init_start", START - 9000).replace("}", "")
    earlier = make_line("init_start", START - 2000)
    started = make_line("run_start", START + 5000)
    lines = [*ranks, broken, earlier, *ranks, started, make_line("init_start", 1000)]
    log = "".join(lines).replace("POINT_IN_TIME", "INTERVAL_START").encode()
    assert preparation_of(log) == 7


@pytest.mark.parametrize("key", ["init_start", "init_stop"])
def test_a_preparation_that_begins_or_ends_after_the_run_starts_is_not_told(key):
    began = "" if key == "init_start" else make_line("init_start", START)
    log = began + make_line(key, START + 2) + make_line("run_start", START + 1)
    assert preparation_of(log.encode()) is None
