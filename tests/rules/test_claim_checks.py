"""Which logs of a set are of one training, and what a set and its claim must agree on."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, RunsRule
from finishline.rules.scoring.run import Evaluation, Run
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.submissions.claim_checks import check_claim, check_same_logs

CURVE = [(1.0, 20.0), (2.0, 50.0), (3.0, 80.0), (4.0, 95.0)]


def run_of(name: str, curve: Sequence[tuple[float, float]], *, start: float = 0.0) -> Run:
    evaluations = (Evaluation(epoch, start + 10 * epoch, quality) for epoch, quality in curve)
    return Run(name, "mlperf", tuple(evaluations))


def same(*runs: Run) -> list[tuple[str | None, str]]:
    return [(found.file, found.message) for found in check_same_logs(runs)]


def test_each_copy_is_told_beside_the_first_of_its_training() -> None:
    other = [(epoch, quality + 1) for epoch, quality in CURVE]
    runs = [
        run_of("a", CURVE),
        run_of("b", other),
        run_of("c", CURVE, start=7.0),
        run_of("d", other),
        run_of("e", CURVE),
    ]

    assert same(*runs) == [
        ("c", "every quality and time is that of a"),
        ("d", "every quality and time is that of b"),
        ("e", "every quality and time is that of a"),
    ]


def test_logs_that_only_end_alike_are_of_two_trainings() -> None:
    assert same(run_of("a", CURVE), run_of("b", [(1.0, 20.5), *CURVE[1:]])) == []


def test_logs_of_few_evaluations_prove_nothing() -> None:
    assert same(run_of("a", CURVE[:3]), run_of("b", CURVE[:3])) == []


def claim_checks(benchmark: Benchmark, system: System, *runs: Run) -> list[tuple[str, str | None]]:
    claim = Claim("cifar10", "closed", "m", "f", system, tuple(run.name for run in runs))
    return [(found.code, found.file) for found in check_claim(claim, runs, benchmark)]


def test_more_runs_than_count_are_listed_as_they_were_started(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    """Of three runs two count; what tells no start may stand anywhere."""
    laptop = System("laptop", "cpu", "any")
    starts = [1000.0, None, 3000.0, 2000.0, 2000.0]
    runs = [Run(f"run_{i}.log", "mlperf", (), started_ms=at) for i, at in enumerate(starts)]

    found = claim_checks(make_benchmark(runs=RunsRule(2, 0)), laptop, *runs)
    assert found == [("runs_out_of_order", "run_3.log")]
    assert claim_checks(make_benchmark(runs=RunsRule(5, 0)), laptop, *runs) == []
    assert claim_checks(make_benchmark(runs=RunsRule(2, 0)), laptop, *runs[:3]) == []


def test_where_no_claim_tells_the_batch_size_all_logs_have_one(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    runs = [
        Run(f"run_{i}.log", "mlperf", (), batch_size=size)
        for i, size in enumerate([None, 128, 128, 256])
    ]

    found = claim_checks(make_benchmark(), System("laptop", "cpu", "any"), *runs)

    assert found == [("batch_size_differs", "run_3.log")]


@pytest.mark.parametrize(
    ("platform", "logged", "codes"),
    [
        ("DGX-1 of 2019", {"accelerators_per_node": 8, "number_of_nodes": 2}, []),
        ("the 8xdgx", {"accelerators_per_node": 16}, []),
        (None, {"accelerators_per_node": 8}, ["accelerators_contradict_claim"]),
        ("box 2024", {}, ["system_contradicts_claim"]),  # a year alone tells no systems apart
        ("of me", {}, ["system_contradicts_claim"]),  # nor does a short word
    ],
)
def test_a_log_names_the_system_of_its_claim(
    make_benchmark: Callable[..., Benchmark],
    platform: str | None,
    logged: dict[str, float],
    codes: list[str],
) -> None:
    system = System("my dgx of 2024", "16x-v100", "any", "V100", accelerator_count=16)
    run: Any = Run("run_0.log", "mlperf", (), platform=platform, hyperparameters=logged)

    assert [code for code, _ in claim_checks(make_benchmark(), system, run)] == codes
