"""Shipped definitions, their targets, their phases, and which of them may be compared."""

import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from finishline.api.benchmarks import Dates
from finishline.rules.archive.definitions import general_runs, shipped_texts
from finishline.rules.benchmarks.benchmark import parse_benchmark, read_benchmark
from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import BenchmarkError
from finishline.rules.run import Evaluation
from server.benchmarks.definitions import rules_that_differ
from server.benchmarks.phases import phases_at, why_not_taken

# Source: mlperf-logging 4.1.68, benchmark_meta.py. It has NCF in v0.6 too, of which nothing was
# published, and v0.5 is not in it.
ROUNDS = {
    "0.5": "gnmt maskrcnn minigo ncf resnet ssd transformer",
    "0.6": "gnmt maskrcnn minigo resnet ssd transformer",
    "0.7": "bert dlrm gnmt maskrcnn minigo resnet ssd transformer",
    "1.0": "bert dlrm maskrcnn minigo resnet rnnt ssd unet3d",
    "1.1": "bert dlrm maskrcnn minigo resnet rnnt ssd unet3d",
    "2.0": "bert dlrm maskrcnn minigo resnet rnnt ssd unet3d",
    "2.1": "bert dlrm maskrcnn minigo resnet rnnt ssd unet3d",
    "3.0": "bert dlrm_dcnv2 gpt3 maskrcnn resnet rnnt ssd unet3d",
    "3.1": "bert dlrm_dcnv2 gpt3 maskrcnn resnet rnnt ssd stable_diffusion unet3d",
    "4.0": "bert dlrm_dcnv2 gnn gpt3 llama2_70b_lora resnet ssd stable_diffusion unet3d",
    "4.1": "bert dlrm_dcnv2 gnn gpt3 llama2_70b_lora ssd stable_diffusion",
    "5.0": "bert dlrm_dcnv2 llama2_70b_lora llama31_405b retinanet rgat stable_diffusion",
    "5.1": "dlrm_dcnv2 flux1 llama2_70b_lora llama31_405b llama31_8b retinanet rgat",
    "6.0": "deepseekv3_671b dlrm_dcnv2 flux1 gpt_oss_20b llama2_70b_lora llama31_405b llama31_8b",
}
SHIPPED = [(version, name) for version, names in ROUNDS.items() for name in names.split()]
# Source: MLPerf training_rules.adoc and the checks of eval_accuracy in mlperf-logging 4.1.68,
# compliance_checker/training_*: target, direction, unit of convergence.
TARGETS = {
    "bert": (0.72, "higher", "epoch_num"),
    "deepseekv3_671b": (3.6, "lower", "samples_count"),
    "dlrm": (0.8025, "higher", "epoch_num"),
    "dlrm_dcnv2": (0.80275, "higher", "epoch_num"),
    "flux1": (0.586, "lower", "samples_count"),
    "gnmt": (24.0, "higher", "epoch_num"),
    "gnn": (0.72, "higher", "epoch_num"),
    "gpt3": (2.69, "lower", "epoch_num"),
    "gpt_oss_20b": (3.34, "lower", "samples_count"),
    "llama2_70b_lora": (0.925, "lower", "samples_count"),
    "llama31_405b": (5.6, "lower", "samples_count"),
    "llama31_8b": (3.3, "lower", "samples_count"),
    "maskrcnn": (0.377, "higher", "epoch_num"),
    "minigo": (0.5, "higher", "epoch_num"),
    "ncf": (0.635, "higher", "epoch_num"),
    "resnet": (0.759, "higher", "epoch_num"),
    "retinanet": (0.34, "higher", "epoch_num"),
    "rgat": (0.72, "higher", "epoch_num"),
    "rnnt": (0.058, "lower", "epoch_num"),
    "ssd": (0.34, "higher", "epoch_num"),
    "stable_diffusion": (90.0, "lower", "samples_count"),
    "transformer": (25.0, "higher", "epoch_num"),
    "unet3d": (0.908, "higher", "epoch_num"),
}
OTHER_TARGETS = {
    ("0.5", "gnmt"): 21.8, ("0.5", "minigo"): 0.4, ("0.5", "resnet"): 0.749, ("0.5", "ssd"): 0.212,
    ("0.6", "ssd"): 0.23, ("0.7", "ssd"): 0.23, ("1.0", "ssd"): 0.23, ("1.1", "ssd"): 0.23,
    ("0.7", "bert"): 0.712, ("0.7", "gnmt"): 0.24, ("0.7", "transformer"): 0.25,
}  # fmt: skip
# Source: mlperf-logging 4.1.68, get_result_file_counts("training").
COUNTS = {
    "bert": 10, "dlrm": 5, "dlrm_dcnv2": 10, "gnmt": 10, "gpt3": 3, "maskrcnn": 5, "minigo": 10,
    "resnet": 5, "ssd": 5, "retinanet": 5, "stable_diffusion": 10, "transformer": 10, "ncf": 10,
    "rnnt": 10, "unet3d": 40, "gnn": 10, "rgat": 10, "llama2_70b_lora": 10, "llama31_405b": 3,
    "llama31_8b": 10, "flux1": 10, "gpt_oss_20b": 10, "deepseekv3_671b": 3, "qwen35_397b_grpo": 3,
    "dlrmv4": 10,
}  # fmt: skip
OTHER_COUNTS = {("0.5", "minigo"): 20, ("0.5", "ncf"): 50}
# Source: mlperf-logging 4.1.68, rcp_checker/training_X.Y.0: figures at each batch size.
POINTS = [
    ("2.0-rnnt", {512: 20, 1024: 20, 1536: 20, 2048: 20, 3072: 20, 6144: 20}),
    ("2.0-unet3d", {2: 87, 32: 83, 56: 88, 80: 80, 84: 80}),
    ("2.1-ssd", {256: 20, 512: 20, 1280: 20, 2048: 20, 4096: 15}),
    ("3.0-gpt3", {1536: 6, 2048: 6, 3072: 6, 4096: 6, 8192: 6}),
    ("3.1-stable_diffusion", {512: 14, 1024: 13, 2048: 13}),
    ("4.0-unet3d", {28: 100, 56: 197, 64: 91, 84: 97}),
    ("5.1-dlrm_dcnv2", {32768: 30, 55296: 50, 65536: 30, 102400: 50, 135168: 88, 160000: 20}),
    ("6.0-deepseekv3_671b", {15360: 6, 16384: 6, 18432: 6}),
]


@pytest.fixture(scope="module")
def benchmarks(shipped_benchmarks):
    return shipped_benchmarks


@pytest.mark.parametrize(("version", "name"), SHIPPED)
def test_a_definition_has_the_facts_of_the_rules(benchmarks, version, name):
    benchmark = benchmarks[f"mlperf-v{version}-{name}"]
    value, direction, unit = TARGETS[name]
    runs = OTHER_COUNTS.get((version, name), COUNTS[name])

    assert benchmark.target.value == OTHER_TARGETS.get((version, name), value)
    assert (benchmark.target.direction, benchmark.reach.name) == (direction, "first_crossing")
    assert (benchmark.version, benchmark.convergence_unit) == (version, unit)
    assert (benchmark.runs.count, benchmark.runs.dropped) == (runs, 4 if name == "unet3d" else 1)
    assert (benchmark.clock.name, benchmark.replay) == ("mlperf", None)
    assert name in benchmark.log_names
    assert benchmark.runs.seeds == ("required" if version >= "4.1" else "if_logged")
    assert (benchmark.rcp is not None) == (version >= "2.0" and name != "minigo")
    if benchmark.rcp is not None:
        assert benchmark.rcp.stdev_of == ("all" if version >= "4.1" else "trimmed")
        assert benchmark.rcp.normalise == (version >= "2.1")
        assert (benchmark.rcp.allowance > 0) == (name == "llama31_405b")
        # The published tables of Stable Diffusion have 13 figures at two batch sizes.
        fewest = 13 if name == "stable_diffusion" else 2 * runs
        assert min(len(point.epochs) for point in benchmark.rcp.points) >= fewest


def test_no_other_definition_of_a_round_is_shipped(benchmarks):
    shipped = {name for name in benchmarks if name.startswith("mlperf-")}
    assert shipped == {f"mlperf-v{version}-{name}" for version, name in SHIPPED}


@pytest.mark.parametrize(("name", "count"), COUNTS.items())
def test_a_benchmark_of_an_unknown_round_has_the_runs_of_the_newest(name, count):
    assert general_runs(name) == RunsRule(count=count, dropped=4 if name == "unet3d" else 1)


@pytest.mark.parametrize(("name", "figures"), POINTS)
def test_a_definition_has_its_rounds_reference_points(benchmarks, name, figures):
    points = benchmarks[f"mlperf-v{name}"].rcp.points
    assert {point.batch_size: len(point.epochs) for point in points} == figures


def test_the_targets_of_v05_are_those_in_its_logs(archives, benchmarks):
    expected = json.loads((archives / "mlperf" / "expected_v05.json").read_text())
    for directory, runs in expected.items():
        benchmark = benchmarks[f"mlperf-v0.5-{directory.rpartition('/')[2]}"]
        for run in runs:
            assert benchmark.target.value == float(run["eval_target"])
            reached = benchmark.target.is_reached(run["final_eval"]["value"])
            assert reached == (run["success"] is not False), run["file"]


@pytest.mark.parametrize(
    ("name", "goals"),
    [
        ("v0.5-maskrcnn", [("BBOX", 0.377, "higher"), ("SEGM", 0.339, "higher")]),
        ("v5.0-stable_diffusion", [("FID", 90.0, "lower"), ("CLIP", 0.15, "higher")]),
        ("v4.1-stable_diffusion", [("FID", 90.0, "lower"), ("CLIP", 0.15, "higher")]),
    ],
)
def test_benchmarks_may_have_two_metrics_to_reach(benchmarks, name, goals):
    target = benchmarks[f"mlperf-{name}"].target

    parts = (target, *target.also)
    assert [(part.logged_as, part.value, part.direction) for part in parts] == goals
    assert target.logged_names == tuple(goal[0] for goal in goals)


MASK = QualityTarget("mask AP", 0.339, "fraction", "higher", logged_as="SEGM")
MASKRCNN = QualityTarget("box AP", 0.377, "fraction", "higher", logged_as="BBOX", also=(MASK,))


CLIP = QualityTarget("CLIP score", 0.15, "score", "higher", logged_as="CLIP")
FID = QualityTarget("FID", 90.0, "score", "lower", logged_as="FID", also=(CLIP,))
THREE = replace(MASKRCNN, also=(MASK, replace(MASK, logged_as="KEYPOINTS")))


@pytest.mark.parametrize(
    ("target", "quality", "others", "reached"),
    [
        # Source: training_rules.adoc of v0.5, "0.377 Box min AP and 0.339 Mask min AP".
        (MASKRCNN, 0.377, {"SEGM": 0.339}, True),
        (MASKRCNN, 0.376, {"SEGM": 0.4}, False),
        (MASKRCNN, 0.4, {"SEGM": 0.338}, False),
        (MASKRCNN, 0.4, {"SEGM": 0.4}, True),
        # A metric that was not measured is not reached.
        (MASKRCNN, 0.4, {}, False),
        (MASKRCNN, 0.4, None, False),
        (THREE, 0.4, {"SEGM": 0.4, "KEYPOINTS": 0.3}, False),
        (THREE, 0.4, {"SEGM": 0.4, "KEYPOINTS": 0.4}, True),
        # One metric may fall while the other rises.
        (FID, 90.0, {"CLIP": 0.15}, True),
        (FID, 90.5, {"CLIP": 0.2}, False),
    ],
)
def test_all_metrics_must_be_reached_at_one_evaluation(target, quality, others, reached):
    assert target.is_reached_at(Evaluation(1.0, 1.0, quality, others=others)) is reached
    assert FID.in_words == "FID <= 90 score and CLIP score >= 0.15 score"


@pytest.mark.parametrize(
    ("value", "direction", "single"),
    [(21.8, "higher", 21.799999237060547), (0.925, "lower", 0.925000011920929)],
)
def test_in_single_precision_a_target_is_reached_by_itself(value, direction, single):
    """Expected: numpy.float32, and the log of a published run of GNMT that stopped there."""
    exact = QualityTarget("BLEU", value, "BLEU", direction)
    target = replace(exact, single_precision=True)
    assert target.is_reached(single)
    assert target.is_reached(value)
    assert not exact.is_reached(single)
    step = -2e-6 if direction == "higher" else 1e-7
    assert not target.is_reached(single + step)


@pytest.mark.parametrize(
    ("name", "old", "new", "field"),
    [
        ("maskrcnn", 'logged_as = "SEGM"', 'logged_as = "bbox"', "target.also[0].logged_as"),
        ("maskrcnn", 'logged_as = "SEGM"\n', "", "target.also[0].logged_as"),
        ("maskrcnn", 'logged_as = "BBOX"\n', "", "target.logged_as"),
        ("maskrcnn", "value = 0.339", "value = 50.0", "target.also[0].value"),
        ("maskrcnn", 'metric = "mask AP"', 'metric = "mask AP"\nreach = "sustained"',
         "target.also[0].reach"),
    ],
)  # fmt: skip
def test_a_definition_names_each_metric_as_logs_do(name, old, new, field):
    text = shipped_texts()[f"mlperf-v0.5-{name}"].decode()
    assert old in text
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(text.replace(old, new).encode(), file=f"mlperf-v0.5-{name}.toml")
    assert caught.value.field == field


NOON = datetime(2026, 12, 1, 12, tzinfo=UTC)
SECOND, DAY = timedelta(seconds=1), timedelta(days=1)


def dates(opens=None, freezes=None, closes=None, embargo=None):
    return Dates(opens_at=opens, freezes_at=freezes, closes_at=closes, embargo_until=embargo)


ROUND = dates(NOON, NOON + DAY, NOON + 2 * DAY, NOON + 3 * DAY)


@pytest.mark.parametrize(
    ("of", "now", "phase", "frozen", "embargoed", "sentence"),
    [
        (ROUND, NOON - SECOND, "announced", False, True, "opens on 2026-12-01 12:00 UTC"),
        (ROUND, NOON, "open", False, True, "frozen from 2026-12-02 12:00 UTC on"),
        (ROUND, NOON + DAY - SECOND, "open", False, True, "Open until 2026-12-03 12:00 UTC"),
        (ROUND, NOON + DAY, "frozen", True, True, "frozen since 2026-12-02 12:00 UTC"),
        (ROUND, NOON + 2 * DAY - SECOND, "frozen", True, True, "until 2026-12-04 12:00 UTC"),
        (ROUND, NOON + 2 * DAY, "closed", True, True, "Closed since 2026-12-03 12:00 UTC"),
        (ROUND, NOON + 3 * DAY, "closed", True, False, "Closed since"),
        (dates(NOON + SECOND), NOON, "announced", False, False, "on 2026-12-01 12:00:01 UTC"),
        (dates(), NOON, "open", False, False, "Open: it has no dates."),
    ],
)
def test_each_phase_begins_at_its_moment(of, now, phase, frozen, embargoed, sentence):
    found = phases_at(
        of, now, read_benchmark(shipped_texts()["mlperf-v0.5-ncf"], file="mlperf-v0.5-ncf.toml")
    )
    assert (found.phase, found.rules_frozen, found.under_embargo) == (phase, frozen, embargoed)
    assert sentence in found.sentence
    assert found.takes_submissions is (why_not_taken(of, now, benchmark_id="digits") is None)


@pytest.mark.parametrize(
    ("before", "after", "differ"),
    [
        ("value = 97.5", "value = 97.0", ("target",)),
        ('reach = "first_crossing"', 'reach = "fixed_stop"', ("target.reach",)),
        ('clock = "mlperf"', 'clock = "speedrun"', ("clock",)),
        ("count = 3", "count = 5", ("runs",)),
        ("test_items = 599", "test_items = 600", ("target", "data_set")),
        ("default = 20", "default = 30", ("hyperparameters",)),
        ('title = "Digits"', 'title = "Figures"', ()),
        ("alpha = 0.01", "alpha = 0.02", ()),
    ],
)
def test_only_scored_fields_make_other_rules(before, after, differ, benchmarks_dir):
    text = (benchmarks_dir / "digits.toml").read_text()
    assert before in text
    changed = text.replace(before, after, 1)
    earlier, current = (
        read_benchmark(each.encode(), file="digits.toml") for each in (text, changed)
    )
    assert rules_that_differ(earlier, current) == differ
