"""Definitions of benchmarks: contents, and conditions for one that is offered."""

import re

import pytest

from finishline.rules.archive.definitions import shipped_texts
from finishline.rules.benchmarks.benchmark import load_benchmark, parse_benchmark, read_benchmark
from finishline.rules.benchmarks.definition_tables import RankingRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import BenchmarkError, RuleError

GOOD = """
id = "toy"
title = "Toy"
version = "1"
task = "Image classification"
about = "For tests."
divisions = ["closed", "open"]
clock = "dawnbench"

[data_set]
name = "Toys"
source = "https://example.org"
train_items = 100
test_items = 50

[target]
metric = "top1Accuracy"
value = 90.0
unit = "percent"
direction = "higher"
reach = "first_crossing"

[runs]
count = 5
dropped = 1

[replay]
reference = "toy"
min_runs = 2
max_runs = 4
alpha = 0.01
time_tolerance = 0.2
run_limit_seconds = 60
lease_seconds = 8
max_attempts = 3

[hyperparameters.batch_size]
default = 64
minimum = 16
maximum = 256
integer = true
closed = true

[[reference_runs]]
batch_size = 64
seed = 1
quality = [50.0, 91.0]
"""


POINT = """
[[rcp.points]]
batch_size = 8
epochs = [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]
"""
RCP = f"""
[convergence]
unit = "samples_count"

[rcp]
stdev_of = "trimmed"
allowance = 12
{POINT}"""
LATENCY = """
[latency]
items = 1000
warmup_items = 30
output_tolerance = 0.0001
time_tolerance = 0.5
alpha = 0.01
limit_seconds = 240
"""
WHOLE = GOOD + RCP + LATENCY + "[ranking]\npairs = 3\n"


def parse(text):
    return parse_benchmark(text.encode(), file="toy.toml")


def test_a_good_file_is_read_whole():
    benchmark = parse(GOOD)

    assert benchmark.benchmark_id == "toy"
    assert benchmark.target == QualityTarget("top1Accuracy", 90.0, "percent", "higher", 2.0)
    assert (benchmark.runs.count, benchmark.runs.dropped, benchmark.runs.wanted) == (5, 1, 5)
    assert benchmark.clock.name == "dawnbench"
    assert benchmark.defaults() == {"batch_size": 64.0}
    assert benchmark.replay.automatic is False
    assert benchmark.log_names == ("toy",), "the id, where nothing else is said"
    assert [run.quality for run in benchmark.reference_runs_at(64)] == [(50.0, 91.0)]
    assert benchmark.reference_runs_at(128) == ()
    assert (benchmark.convergence_unit, benchmark.rcp) == ("epoch_num", None)
    assert benchmark.ranking == RankingRule(pairs=30)
    assert (benchmark.time_unit, benchmark.latency) == (None, None)


def test_what_a_file_may_say_is_read():
    more = WHOLE.replace("count = 5", "count = 5\nstarted = 9")
    more = more.replace("train_items = 100\n", "").replace("test_items = 50\n", "")
    benchmark = parse('time_unit = "min"\n' + more)

    assert (benchmark.runs.count, benchmark.runs.started, benchmark.runs.wanted) == (5, 9, 9)
    assert (benchmark.data_set.train_items, benchmark.data_set.test_items) == (None, None)
    assert benchmark.target.resolution is None
    assert (benchmark.convergence_unit, benchmark.time_unit) == ("samples_count", "min")
    assert benchmark.ranking == RankingRule(pairs=3)
    assert (benchmark.rcp.stdev_of, benchmark.rcp.allowance) == ("trimmed", 12.0)
    assert [(p.batch_size, len(p.epochs)) for p in benchmark.rcp.points] == [(8, 10)]
    protocol = benchmark.latency
    assert (protocol.items, protocol.warmup_items, protocol.limit_seconds) == (1000, 30, 240.0)
    # Two passes over 599 items, one over 1,000, and the first 1,000 of more.
    counts = [protocol.samples_of(items) for items in (599, 1000, 5000, None)]
    assert counts == [1198, 1000, 1000, 1000]
    assert (protocol.enough_seconds, protocol.most_seconds) == (30.0, 60.0)


@pytest.mark.parametrize(
    ("count", "least", "most", "words"),
    [
        ("5", 5, None, "5"),
        ('"3..75"', 3, 75, "3 to 75"),
        ('"3.."', 3, 100, "3 or more"),
        ('"5..5"', 5, 5, "5 to 5"),
    ],
)
def test_runs_are_a_number_or_a_range(count, least, most, words):
    runs = parse(GOOD.replace("count = 5", f"count = {count}")).runs
    assert (runs.count, runs.wanted, runs.most, runs.in_words) == (least, least, most, words)


@pytest.mark.parametrize("count", ['"3"', '"5..3"', '"0.."', '"..5"', '"3..x"', '"3..101"'])
def test_a_broken_range_of_runs_is_named(count):
    with pytest.raises(BenchmarkError) as error:
        parse(GOOD.replace("count = 5", f"count = {count}"))
    assert error.value.field == "runs.count"
    assert "2..75" in error.value.expected or error.value.expected == "at most 100"


@pytest.mark.parametrize(
    ("old", "new", "field"),
    [
        ('id = "toy"', 'id = "other"', "id"),
        ('id = "toy"', "", "id"),
        ('about = "For tests."', 'about = " "', "about"),
        ('clock = "dawnbench"', 'clock = "wall"', "clock"),
        ('divisions = ["closed", "open"]', 'divisions = ["closed", "half"]', "divisions"),
        ("train_items = 100", "train_items = 0", "data_set.train_items"),
        ("value = 90.0", "value = nan", "target.value"),
        ('unit = "percent"', 'unit = "per mille"', "target.unit"),
        ('unit = "percent"', 'unit = "fraction"', "target.value"),
        ("value = 90.0", "value = 0.9", "target.value"),
        ("value = 90.0", "value = 101", "target.value"),
        ("value = 90.0", "value = -1", "target.value"),
        ('direction = "higher"', 'direction = "lower"', "target.direction"),
        ("value = 90.0", "value = 50.0", "target.direction"),
        ('reach = "first_crossing"', 'reach = "sustained"', "target.evaluations"),
        (
            'reach = "first_crossing"',
            'reach = "first_crossing"\nevaluations = 3',
            "target.evaluations",
        ),
        ('direction = "higher"', 'direction = "higher"\nfloor = 89.9', "target.floor"),
        ('direction = "higher"', 'direction = "lower"\nfloor = 90.1', "target.floor"),
        ("dropped = 1", "dropped = 3", "runs.dropped"),
        ("max_runs = 4", "max_runs = 1", "replay.max_runs"),
        ("max_runs = 4", "max_runs = 101", "replay.max_runs"),
        ("lease_seconds = 8", "lease_seconds = 1e300", "replay.lease_seconds"),
        ("alpha = 0.01", "alpha = 0.9", "replay.alpha"),
        ("lease_seconds = 8", "lease_secs = 8", "replay.lease_seconds"),
        ("default = 64", "default = 512", "hyperparameters.batch_size.default"),
        ("maximum = 256", "maximum = 8", "hyperparameters.batch_size.maximum"),
        ("quality = [50.0, 91.0]", "quality = []", "reference_runs[0].quality"),
        ("quality = [50.0, 91.0]", "quality = [50.0, inf]", "reference_runs[0].quality"),
        ('task = "Image', 'colour = "red"\ntask = "Image', "colour"),
        ('unit = "samples_count"', 'unit = "batches"', "convergence.unit"),
        ('stdev_of = "trimmed"', 'stdev_of = "some"', "rcp.stdev_of"),
        ("allowance = 12", "allowance = -1", "rcp.allowance"),
        ("allowance = 12", "pruned = true", "rcp.pruned"),
        ("[[rcp.points]]\nbatch_size = 8", "[[rcp.points]]", "rcp.points[0].batch_size"),
        ("epochs = [1, ", "epochs = [0, ", "rcp.points[0].epochs"),
        ("epochs = [1, ", "epochs = [", "rcp.points[0].epochs"),
        ("count = 5\ndropped = 1", "count = 2\ndropped = 0", "rcp.points"),
        (POINT, "", "rcp.points"),
        (POINT, POINT + POINT, "rcp.points"),
        ("items = 1000", "items = 63", "latency.items"),
        ("items = 1000", "items = 2001", "latency.items"),
        ("warmup_items = 30", "warmup_items = 0", "latency.warmup_items"),
        ("0.5\nalpha = 0.01", "0.5\nalpha = 0.6", "latency.alpha"),
        ("count = 5", "count = 5\nstarted = 4", "runs.started"),
        ('task = "Image', 'time_unit = "hours"\ntask = "Image', "time_unit"),
    ],
)
def test_a_wrong_file_names_file_and_field(old, new, field):
    assert WHOLE.count(old) >= 1
    with pytest.raises(BenchmarkError) as caught:
        parse(WHOLE.replace(old, new, 1))

    error = caught.value
    assert (error.file, error.field) == ("toy.toml", field)
    assert error.expected


def test_an_error_rate_below_one_percent_is_a_target():
    text = GOOD.replace('direction = "higher"', 'direction = "lower"')
    benchmark = parse(text.replace("value = 90.0", "value = 0.9"))

    assert (benchmark.target.value, benchmark.target.direction) == (0.9, "lower")


def refused(text):
    with pytest.raises(BenchmarkError) as caught:
        parse(text)
    return caught.value


def test_of_a_misspelt_field_the_one_that_was_meant_is_named():
    for line in re.finditer(r"^(\w+) = .*$", GOOD, re.MULTILINE):
        name = line[1]
        misspelt = f"{name[:-2]}{name[-1]}{name[-2]}"
        error = refused(GOOD[: line.start()] + misspelt + GOOD[line.start() + len(name) :])

        assert f"did you mean {name!r}" in error.message, str(error)
        assert misspelt in str(error)


def test_of_a_field_that_is_left_out_no_other_is_taken_for_it():
    optional = ("train_items", "test_items", "integer", "closed")
    for line in re.finditer(r"^(\w+) = .*\n", GOOD, re.MULTILINE):
        if line[1] not in optional:
            assert refused(GOOD[: line.start()] + GOOD[line.end() :]).message == "missing", line[1]


def test_the_first_wrong_field_of_each_table_of_a_definition_is_told_at_once():
    wrong = GOOD.replace("min_runs = 2", "min_runs = 0").replace('clock = "', 'clock = "x')
    with pytest.raises(RuleError) as caught:
        parse("surprise = 1\n" + wrong.replace("first_crossing", "never"))

    told = {each.field for each in caught.value.problems}
    assert told == {"surprise", "clock", "target.reach", "replay.min_runs"}
    assert all(each.file == "toy.toml" and each.expected for each in caught.value.problems)


def test_runs_that_stop_at_a_fixed_step_are_replayed_twice_at_least():
    """A mean is tested there, and one run has none."""
    stopping = GOOD.replace("first_crossing", "fixed_stop")

    assert parse(stopping).reach.name == "fixed_stop"
    assert refused(stopping.replace("min_runs = 2", "min_runs = 1")).field == "replay.min_runs"


@pytest.mark.parametrize(
    ("name", "metric", "value", "unit", "train_items", "test_items"),
    [
        ("cifar10", "top1Accuracy", 94.0, "percent", 50_000, 10_000),
        ("imagenet", "top5Accuracy", 93.0, "percent", 1_281_167, 50_000),
        ("squad", "f1Score", 0.75, "fraction", 87_599, 10_570),
    ],
)
def test_the_dawnbench_benchmarks_have_its_targets(
    benchmarks_dir, name, metric, value, unit, train_items, test_items
):
    """Source: dawn-bench-entries, its README and (for SQuAD) its checks."""
    benchmark = load_benchmark(benchmarks_dir / f"{name}.toml")

    target, items = benchmark.target, benchmark.data_set
    assert (target.metric, target.value, target.unit) == (metric, value, unit)
    assert (target.direction, benchmark.reach.name) == ("higher", "first_crossing")
    assert (items.train_items, items.test_items) == (train_items, test_items)
    assert benchmark.clock.name == "dawnbench"
    assert (benchmark.runs.count, benchmark.runs.dropped) == (1, 0)
    assert benchmark.replay is None or not benchmark.replay.automatic


def test_readme_lists_the_definitions_of_a_server(benchmarks_dir):
    text = (benchmarks_dir.parent / "README.md").read_text()
    table = text.partition("| benchmark | target |")[2].partition("\n\n")[0]
    own = re.findall(r"^\| (\w+) \|", table, re.MULTILINE)
    assert {"cifar10", "digits", "grammar", "imagenet", "squad"} <= set(own)
    assert sorted(path.stem for path in benchmarks_dir.glob("*.toml")) == sorted(own)
    assert all(name.startswith(("mlperf-v", "nanogpt")) for name in shipped_texts())
    with pytest.raises(KeyError):
        shipped_texts()["../../../benchmarks/digits"]


@pytest.mark.parametrize(
    ("was", "line"),
    [
        ('divisions = ["closed", "open"]', 'divisions = ["{}"]'),
        ('clock = "dawnbench"', 'clock = "{}"'),
        ('id = "toy"', 'id = "{}"'),
        ('id = "toy"', 'id = "toy"\nlog_names = ["{}", 1]'),
        ('id = "toy"', 'id = "toy"\n"{}" = 1'),
        ("alpha = 0.01", 'alpha = "{}"'),
        ("alpha = 0.01", 'alpha = 0.01\nprecisions = ["{}"]'),
    ],
)
def test_of_a_long_text_the_beginning_is_told(was, line):
    assert was in GOOD
    for problem in refused(GOOD.replace(was, line.format("x" * 3_900))).problems:
        assert len(str(problem)) < 1_000, problem.field
    assert len(str(RuleError("x" * 5_000, field="y" * 5_000, expected="z" * 5_000))) < 5_000


# Every number is at the very edge of what was accepted.
LOOSEST = b"""
id = "toy"
title = "T"
version = "0"
task = "t"
about = "a"
divisions = ["open"]
clock = "mlperf"

[data_set]
name = "D"
source = "s"

[target]
metric = "q"
value = 0.5
unit = "score"
direction = "higher"
reach = "first_crossing"

[runs]
count = 1
dropped = 0
started = 1
seeds = "if_logged"

[replay]
reference = "r"
min_runs = 1
max_runs = 1
alpha = 0.5
time_tolerance = 0.0
run_limit_seconds = 1.0
lease_seconds = 1.0
max_attempts = 10

[hyperparameters.batch_size]
default = -1e300
minimum = -1e300
maximum = -1e300

[latency]
items = 64
warmup_items = 1
output_tolerance = 0.0
time_tolerance = 0.0
alpha = 0.5
limit_seconds = 1

[[reference_runs]]
batch_size = 1
seed = 0
quality = [0.0, 1.0]
"""


POINTS = b"""
[rcp]
fewest_figures = 3
allowance = 0.0
stdev_of = "all"

[[rcp.points]]
batch_size = 1
epochs = [1e-300, 1, 1]
"""


OFFERED_ONCE = {
    "a share in the other unit": (b'"score"', b'"percent"'),
    "a share that no run has": (b'0.5\nunit = "score"', b'1.5\nunit = "fraction"'),
    "the other direction": (b'"higher"', b'"lower"'),
    "a target that is reached untrained": (b"[0.0, 1.0]", b"[0.9, 1.0]"),
    "a target beyond the floor": (b'"higher"', b'"higher"\nfloor = 0.4'),
    "more runs than a submission has": (
        b"count = 1\ndropped = 0\nstarted = 1\n",
        b"count = 101\ndropped = 0\n",
    ),
    "more runs started than a submission has": (b"started = 1", b"started = 101"),
    "more items than any data set": (
        b'source = "s"',
        b'source = "s"\ntrain_items = 1000000000000001',
    ),
    "a precision that is not the reference's own": (
        b"max_attempts = 10",
        b'max_attempts = 10\nprecisions = ["bf16", "fp32"]',
    ),
}


def test_a_definition_at_the_edge_of_all_limits_is_read_for_good():
    three = LOOSEST.replace(b"count = 1\n", b"count = 3\n").replace(b"started = 1", b"started = 3")
    for text in (LOOSEST, LOOSEST.replace(b"alpha = 0.5", b"alpha = 1e-6"), three + POINTS):
        assert parse_benchmark(text, file="toy.toml") == read_benchmark(text, file="toy.toml")


@pytest.mark.parametrize(("old", "new"), OFFERED_ONCE.values(), ids=OFFERED_ONCE)
def test_what_is_refused_from_an_organiser_is_read_where_it_was_kept(old, new):
    assert old in LOOSEST
    text = LOOSEST.replace(old, new)
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(text, file="toy.toml")

    assert caught.value.file == "toy.toml"
    assert caught.value.expected
    assert read_benchmark(text, file="toy.toml").benchmark_id == "toy"
