"""Advice on a benchmark by the runs of its reference."""

from dataclasses import replace

import pytest

from finishline.rules.benchmarks.benchmark import parse_benchmark
from finishline.rules.trainings.own_benchmark import ReferenceRuns, advice
from tests.support.own_benchmarks import own_files

GOOD = ReferenceRuns(
    seconds=(4.0, 5.0, 6.0),
    evaluation_seconds=(0.1, 0.1, 0.1),
    asks=(1, 2, 2),
    halves=((91.0, 91.0), (92.0, 92.0), (93.0, 93.0)),
)


@pytest.fixture
def benchmark():
    return parse_benchmark(own_files()["benchmark.toml"], file="mine.toml")


def test_a_good_benchmark_gets_none(benchmark):
    assert list(advice(benchmark, GOOD, prediction_items=8_000)) == []


def test_the_spread_is_the_standard_deviation_over_the_mean():
    assert GOOD.mean_seconds == 5.0
    assert GOOD.cv_percent == pytest.approx(20.0)
    assert GOOD.evaluation_share == pytest.approx(0.02)


@pytest.mark.parametrize(
    ("changed", "items", "told"),
    [
        ({}, 7_998, "3,999 test items a half"),
        ({"evaluation_seconds": (1.3, 1.3, 1.2)}, 8_000, "Evaluations take 25 %"),
        ({"asks": (7, 1, 1)}, 8_000, "The reference asks 7 times"),
        ({"seconds": (0.9, 0.9, 0.9)}, 8_000, "The reference needs 0.90 s"),
        (
            {"halves": ((90.0, 89.9), (90.0, 90.0), (90.0, 89.8))},
            8_000,
            "misses the target by 0.10",
        ),
    ],
)
def test_each_fault_has_its_sentence(changed, items, told, benchmark):
    (sentence,) = advice(benchmark, replace(GOOD, **changed), prediction_items=items)

    assert sentence.startswith(told) or told in sentence


def test_few_runs_and_one_half_are_told(benchmark):
    assert benchmark.trainings is not None
    policy = replace(benchmark.trainings, runs=3, halves=False)

    found = list(advice(replace(benchmark, trainings=policy), GOOD, prediction_items=4_000))

    assert [each[:14] for each in found] == ["halves is fals", "3 runs of a su"]
