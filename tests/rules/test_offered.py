"""What is asked of a definition that is offered is not asked of one that results were kept under.

A case that fails here after a check was made stricter: move the check into
finishline/rules/benchmarks/definition_checks.py.
"""

import pytest

from finishline.rules.benchmarks.benchmark import parse_benchmark, read_benchmark
from finishline.rules.errors import BenchmarkError

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
}


def test_a_definition_at_the_edge_of_all_limits_is_read_for_good() -> None:
    three = LOOSEST.replace(b"count = 1\n", b"count = 3\n").replace(b"started = 1", b"started = 3")
    for text in (LOOSEST, LOOSEST.replace(b"alpha = 0.5", b"alpha = 1e-6"), three + POINTS):
        assert parse_benchmark(text, file="toy.toml") == read_benchmark(text, file="toy.toml")


@pytest.mark.parametrize(("old", "new"), OFFERED_ONCE.values(), ids=OFFERED_ONCE)
def test_what_is_refused_from_an_organiser_is_read_where_it_was_kept(
    old: bytes, new: bytes
) -> None:
    assert old in LOOSEST
    text = LOOSEST.replace(old, new)
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(text, file="toy.toml")

    assert caught.value.file == "toy.toml"
    assert caught.value.expected
    assert read_benchmark(text, file="toy.toml").benchmark_id == "toy"


def test_of_several_metrics_the_wrong_one_is_named() -> None:
    second = b"""logged_as = "A"

[[target.also]]
metric = "p"
value = 50.0
unit = "fraction"
direction = "higher"
logged_as = "B"

[runs]"""
    with pytest.raises(BenchmarkError) as caught:
        parse_benchmark(LOOSEST.replace(b"[runs]", second), file="toy.toml")

    assert (caught.value.field, caught.value.message) == ("target.also[0].value", "50 fraction")
