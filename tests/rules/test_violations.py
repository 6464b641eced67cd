from collections.abc import Callable

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, QualityTarget, RunsRule
from finishline.rules.scoring.run import Run
from finishline.rules.scoring.violations import find_violations

MakeRun = Callable[..., Run]
MakeBenchmark = Callable[..., Benchmark]


def codes(runs: list[Run], benchmark: Benchmark, *, division: str = "closed") -> list[str]:
    return [v.code for v in find_violations(runs, benchmark, division=division)]


def test_a_good_set_breaks_no_rule(make_benchmark: MakeBenchmark, make_run: MakeRun) -> None:
    runs = [make_run([94.0], name=f"{i}.log", seed=i, status="success") for i in range(3)]

    assert codes(runs, make_benchmark(count=3, dropped=1)) == []


@pytest.mark.parametrize(("runs", "broken"), [(2, ["too_few_runs"]), (3, []), (4, [])])
def test_a_set_needs_its_number_of_runs(
    make_benchmark: MakeBenchmark, make_run: MakeRun, runs: int, broken: list[str]
) -> None:
    made = [make_run([94.0], name=f"{i}.log", seed=i) for i in range(runs)]

    assert codes(made, make_benchmark(count=3, dropped=1)) == broken


def test_a_single_run_is_counted_as_one(make_benchmark: MakeBenchmark, make_run: MakeRun) -> None:
    (short,) = find_violations([make_run([94.0])], make_benchmark(count=3), division="open")

    assert (short.message, short.expected) == ("1 run", "3 runs of cifar10")


def test_no_seed_may_repeat_across_the_runs_of_a_set(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    """Source: MLPerf training_rules.adoc, "Random numbers"."""
    runs = [make_run([94.0], name=f"{i}.log", seed=seed) for i, seed in enumerate([7, 8, 7, 7])]

    violations = find_violations(runs, make_benchmark(count=3), division="open")

    assert [(v.code, v.file, v.field) for v in violations] == [
        ("same_seed", "2.log", "seed"),
        ("same_seed", "3.log", "seed"),
    ]
    assert "0.log" in violations[0].message


@pytest.mark.parametrize(
    ("division", "count", "broken"),
    [("closed", 2, ["no_seed"]), ("open", 2, []), ("closed", 1, [])],
)
def test_closed_sets_of_several_runs_log_their_seeds(
    make_benchmark: MakeBenchmark,
    make_run: MakeRun,
    division: str,
    count: int,
    broken: list[str],
) -> None:
    """Source: MLPerf training_rules.adoc, "Random numbers"; in open no seed is expected."""
    runs = [make_run([94.0], name="0.log", seed=0), make_run([94.0], name="1.log")]

    assert codes(runs, make_benchmark(count=count), division=division) == broken


def test_where_no_seeds_were_asked_for_only_repeated_ones_break_the_rule(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    """Source: training_rules.adoc of v0.5, which has no word on logging seeds."""
    benchmark = make_benchmark(runs=RunsRule(count=2, dropped=0, seeds="if_logged"))
    silent = [make_run([94.0], name=f"{i}.log") for i in range(2)]
    alike = [make_run([94.0], name=f"{i}.log", seed=3) for i in range(2)]

    assert codes(silent, benchmark) == []
    assert codes(alike, benchmark) == ["same_seed"]


def test_a_set_without_any_evaluation_names_every_log_and_what_was_expected(
    make_benchmark: MakeBenchmark,
) -> None:
    runs = [Run(f"{i}.log", "dawnbench", (), seed=i) for i in range(2)]

    found = find_violations(runs, make_benchmark(count=2), division="closed")

    assert [(v.code, v.file) for v in found] == [
        ("no_evaluation", "0.log"),
        ("no_evaluation", "1.log"),
    ]
    assert found[0].expected == "an evaluation with top1Accuracy >= 94 percent"


def test_seed_zero_is_a_seed(make_benchmark: MakeBenchmark, make_run: MakeRun) -> None:
    runs = [make_run([94.0], name=f"{i}.log", seed=0) for i in range(2)]

    assert codes(runs, make_benchmark(count=2)) == ["same_seed"]


def test_success_takes_an_evaluation_at_the_target(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    run = make_run([80.0, 93.9], status="success", stop_seconds=20.0)

    (violation,) = find_violations([run], make_benchmark(), division="open")

    assert (violation.code, violation.file) == ("success_without_target", "run_0.log")
    assert "93.9" in violation.message
    assert violation.expected == "top1Accuracy of 94 reached"


def test_giving_up_below_the_target_is_no_violation(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    assert codes([make_run([80.0], status="aborted")], make_benchmark()) == []


def stopped(make_run: MakeRun, finals: list[float]) -> list[Run]:
    return [make_run([90.0, q], name=f"{i}.log", seed=i) for i, q in enumerate(finals)]


def test_at_a_fixed_stop_the_mean_must_beat_the_target(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    """One-sided t-test, p < 0.01. scipy.stats.ttest_1samp gives 0.0041 and 0.078."""
    benchmark = make_benchmark(reach="fixed_stop", count=5)

    proven = stopped(make_run, [94.20, 94.10, 94.15, 94.30, 94.12])
    not_proven = stopped(make_run, [94.20, 93.95, 94.15, 94.30, 93.98])

    assert codes(proven, benchmark) == []
    assert codes(not_proven, benchmark) == ["target_not_proven"]


def test_at_a_fixed_stop_a_mean_below_the_target_never_passes(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    benchmark = make_benchmark(reach="fixed_stop", count=2)

    assert codes(stopped(make_run, [10.0, 10.0]), benchmark) == ["target_not_proven"]
    assert codes(stopped(make_run, [99.0]), make_benchmark(reach="fixed_stop")) == [
        "target_not_proven"
    ]


def test_at_a_fixed_stop_all_runs_stop_at_the_same_epoch(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    runs = [*stopped(make_run, [95.0, 95.1]), make_run([90.0, 91.0, 95.0], name="2.log", seed=2)]

    violations = find_violations(
        runs, make_benchmark(reach="fixed_stop", count=3), division="closed"
    )

    assert [(v.code, v.file) for v in violations] == [("different_stop", "2.log")]


def test_at_a_fixed_stop_a_run_without_evaluations_proves_nothing(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    runs = [*stopped(make_run, [95.0, 95.1]), make_run([], name="2.log", seed=2)]
    benchmark = make_benchmark(reach="fixed_stop", count=3)

    found = find_violations(runs, benchmark, division="closed")

    assert "a run without evaluations" in [v.message for v in found]


def test_a_loss_below_the_entropy_of_the_data_is_told_with_its_run(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    target = QualityTarget("loss", 0.8, "nats/byte", "lower", floor=0.54)
    benchmark = make_benchmark(target=target, count=2)
    honest = make_run([2.0, 0.7, 0.54], name="0.log", seed=0)
    made_up = make_run([2.0, 0.5, 0.4], name="1.log", seed=1)

    assert codes([honest, make_run([0.6], seed=3)], benchmark) == []
    (violation,) = find_violations([honest, made_up], benchmark, division="closed")
    assert (violation.code, violation.file) == ("below_entropy", "1.log")
    assert "0.5 at epoch 2" in violation.message
    assert violation.expected is not None
    assert "0.54" in violation.expected


def test_several_broken_rules_are_all_told(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    runs = [make_run([90.0], name=f"{i}.log", seed=1, status="success") for i in range(2)]

    assert codes(runs, make_benchmark(count=3, dropped=1)) == [
        "too_few_runs",
        "same_seed",
        "success_without_target",
        "success_without_target",
    ]
