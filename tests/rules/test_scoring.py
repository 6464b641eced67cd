import dataclasses
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import scipy.stats

from finishline.rules.benchmarks.benchmark import Benchmark, RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.scoring.run import Clock, Evaluation, Ledger, Run
from finishline.rules.scoring.scoring import Result, score

MakeRun = Callable[..., Run]
MakeBenchmark = Callable[..., Benchmark]


@pytest.fixture
def five_runs(make_run: MakeRun) -> list[Run]:
    """Reach 94 % after 90, 100, 101, 105 and 500 s: two epochs of half that."""
    return [
        make_run([90.0, 94.5], name=f"run_{i}.log", seconds_per_epoch=seconds / 2, seed=i)
        for i, seconds in enumerate([100.0, 90.0, 105.0, 500.0, 101.0])
    ]


def score_of(
    runs: list[Run], benchmark: Benchmark, *, price: float | None = None, **others: Any
) -> Result:
    return score(runs, benchmark, division="open", price_usd_per_hour=price, **others)


def test_a_dawnbench_entry_is_scored_as_published(make_benchmark: MakeBenchmark) -> None:
    """Source: dawn-bench-entries, BaiduNet9P: 0.01234526 h at 8.5058 USD/h, shown 0:00:45."""
    run = Run(
        "baidu.tsv",
        "dawnbench",
        (
            Evaluation(20.0, 0.0118 * 3600, 93.7),
            Evaluation(21.0, 0.01234526 * 3600, 94.01),
            Evaluation(23.0, 0.01343083 * 3600, 94.18),
        ),
    )

    result = score_of([run], make_benchmark(), price=8.5058)

    assert result.tta_seconds == pytest.approx(44.442936)
    assert result.tta_display == "0:00:45"
    assert result.cost_usd == pytest.approx(0.10500631, abs=1e-8)
    assert (result.epochs_to_target, result.best_quality) == (21.0, 94.18)
    assert (result.started, result.reached, result.eligible) == (1, 1, True)
    assert result.cv_percent is None
    assert result.tta_low_seconds is None


def test_several_runs_are_averaged_olympically_and_their_spread_is_over_all(
    make_benchmark: MakeBenchmark, five_runs: list[Run]
) -> None:
    result = score_of(five_runs, make_benchmark(count=5, dropped=1), price=3.6)

    assert result.tta_seconds == 102.0  # (100 + 101 + 105) / 3
    assert result.cost_usd == pytest.approx(0.102)
    # numpy.std([100, 90, 105, 500, 101]) / numpy.mean(...) * 100
    assert result.cv_percent == pytest.approx(89.5514, abs=1e-4)
    assert result.tta_low_seconds is None  # Nothing tells how much such runs scatter.
    assert result.evaluation_interval_seconds == 250.0


def test_every_step_of_a_score_is_kept(make_benchmark: MakeBenchmark, five_runs: list[Run]) -> None:
    result = score_of(five_runs, make_benchmark(count=5, dropped=1), price=3.6)

    assert [step.name for step in result.steps] == [
        *[f"TTA of run_{i}.log" for i in range(5)],
        "TTA",
        "coefficient of variation",
        "cost to accuracy",
    ]
    first, tta, cost = result.steps[0], result.steps[5], result.steps[7]
    assert "top1Accuracy >= 94 percent" in first.formula
    assert (first.value, first.unit) == (100.0, "s")
    assert tta.numbers == {
        "run_0.log": 100.0,
        "run_1.log": 90.0,
        "run_2.log": 105.0,
        "run_3.log": 500.0,
        "run_4.log": 101.0,
    }
    assert "the mean of the 3 runs left after dropping the fastest and the slowest" in tta.formula
    assert tta.value == 102.0
    assert cost.value == pytest.approx(0.102)
    assert cost.unit == "USD"
    assert cost.numbers == {"TTA (s)": 102.0, "price (USD/h)": 3.6}


@pytest.mark.parametrize(
    ("count", "dropped", "started", "words"),
    [
        (5, 0, None, "mean of all runs"),
        (5, 1, None, "the mean of the 3 runs left after dropping the fastest and the slowest"),
        (5, 2, None, "the run left after dropping the 2 fastest and slowest"),
        (3, 0, None, "of 3 runs in a row, where that is the median: mean of all runs"),
        (3, 0, 5, "of the first 3 runs that reached the target: mean of all runs"),
    ],
)
def test_the_step_says_of_which_runs_the_mean_is(
    make_benchmark: MakeBenchmark,
    five_runs: list[Run],
    count: int,
    dropped: int,
    started: int | None,
    words: str,
) -> None:
    rule = RunsRule(count=count, dropped=dropped, started=started)
    result = score_of(five_runs, make_benchmark(runs=rule))

    assert next(step for step in result.steps if step.name == "TTA").formula == words


def test_a_run_that_ended_without_success_has_no_epochs_to_the_target(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    aborted = make_run([90.0, 94.5], status="aborted")
    (run,) = score_of([aborted], make_benchmark()).runs

    assert (run.reached, run.epochs_to_target, run.convergence) == (False, None, None)


def test_a_target_measured_afterwards_converges_where_it_was_first_reached(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    run = make_run([90.0, 94.5, 95.0], status="success", clock="mlperf", stop_seconds=40.0)
    at_once = make_benchmark(clock="mlperf")
    afterwards = dataclasses.replace(at_once.target, offline=True)

    (last,) = score_of([run], at_once).runs
    (first,) = score_of([run], dataclasses.replace(at_once, target=afterwards)).runs

    assert (last.convergence, first.convergence) == (3.0, 2.0)


def test_a_run_that_never_reaches_the_target_is_no_error(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    result = score_of([make_run([50.0, 93.99])], make_benchmark(), price=1.0)

    assert (result.reached, result.tta_seconds, result.tta_display) == (0, None, None)
    assert (result.cost_usd, result.epochs_to_target, result.cv_percent) == (None, None, None)
    assert result.best_quality == 93.99
    assert result.eligible


def test_one_failed_run_is_dropped_and_two_make_the_result_invalid(
    make_benchmark: MakeBenchmark, make_run: MakeRun, five_runs: list[Run]
) -> None:
    benchmark = make_benchmark(count=5, dropped=1)
    failed = [make_run([50.0], name=f"failed_{i}.log") for i in range(2)]

    one = score_of([*five_runs[:4], failed[0]], benchmark)
    two = score_of([*five_runs[:3], *failed], benchmark)

    assert (one.started, one.reached) == (5, 4)
    assert one.tta_seconds == pytest.approx((100 + 105 + 500) / 3)
    assert (two.reached, two.tta_seconds) == (3, None)


def test_of_more_runs_than_needed_the_median_window_counts(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    times = [50.0, 51.0, 52.0, 90.0, 91.0]
    runs = [
        make_run([94.0], name=f"run_{i}.log", seconds_per_epoch=seconds)
        for i, seconds in enumerate(times)
    ]

    result = score_of(runs, make_benchmark(count=3, dropped=1))

    assert result.tta_seconds == 52.0
    assert (result.started, result.reached) == (5, 5)
    assert "of 3 runs in a row" in result.steps[5].formula


def test_a_loss_is_scored_downwards(make_benchmark: MakeBenchmark, make_run: MakeRun) -> None:
    benchmark = make_benchmark(value=0.8, direction="lower")

    result = score_of([make_run([2.0, 0.9, 0.8, 0.85])], benchmark)

    assert (result.tta_seconds, result.best_quality) == (30.0, 0.8)
    assert "<= 0.8" in result.steps[0].formula


def test_the_same_runs_score_otherwise_under_another_clock(
    make_benchmark: MakeBenchmark,
) -> None:
    ledger = Ledger(init=1, compile=2, warmup=4, data=8, train=16, eval=32, checkpoint=64, idle=128)
    run = Run("a.log", "mlperf", (Evaluation(1.0, 248.0, 94.0, ledger=ledger),), "success", 250.0)
    benchmark = make_benchmark(clock="mlperf")

    assert score_of([run], benchmark).tta_seconds == 250.0
    assert score_of([run], benchmark, clock=Clock("dawnbench")).tta_seconds == 223.0
    speedrun = score_of([run], benchmark, clock=Clock("speedrun"))
    assert (speedrun.tta_seconds, speedrun.clock) == (216.0, "speedrun")


def test_a_clock_nobody_measured_gives_no_time_and_accuses_nobody(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    run = make_run([94.0], clock="mlperf", status="success", stop_seconds=11.0)

    result = score_of([run], make_benchmark(clock="mlperf"), clock=Clock("speedrun"))

    assert result.tta_seconds is None
    assert result.violations == ()


def test_a_step_says_what_its_time_is_taken_to(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    stopped = make_run([94.0, 94.5], clock="mlperf", status="success", stop_seconds=30.0)
    of_mlperf = make_benchmark(clock="mlperf")
    [step, *_] = score_of([stopped], of_mlperf).steps
    assert step.value == 30.0
    assert step.formula.startswith("seconds on the mlperf clock to the run_stop of a run that")
    [step, *_] = score_of([make_run([94.0, 94.5])], make_benchmark()).steps
    assert "clock to the first evaluation with" in step.formula


def test_runs_without_any_time_at_all_have_no_spread(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    runs = [make_run([94.0], name=f"{i}.log", seconds_per_epoch=0.0) for i in range(3)]

    result = score_of(runs, make_benchmark(count=3, dropped=1))

    assert (result.tta_seconds, result.cv_percent) == (0.0, None)


def test_too_few_runs_are_told_and_still_explained(
    make_benchmark: MakeBenchmark, make_run: MakeRun
) -> None:
    result = score_of([make_run([94.0])], make_benchmark(count=5, dropped=1))

    assert [v.code for v in result.violations] == ["too_few_runs"]
    assert (result.eligible, result.tta_seconds) == (False, None)
    assert result.violations[0].expected == "5 runs of cifar10"


def test_runs_that_were_never_evaluated_did_not_converge(make_benchmark: MakeBenchmark) -> None:
    result = score_of([Run("a.log", "dawnbench", ())], make_benchmark())

    assert (result.started, result.reached, result.tta_seconds) == (1, 0, None)
    assert (result.best_quality, result.eligible) == (None, False)
    assert [(v.code, v.file) for v in result.violations] == [("no_evaluation", "a.log")]


def test_there_is_no_score_of_nothing(make_benchmark: MakeBenchmark) -> None:
    with pytest.raises(RuleError, match="no runs"):
        score_of([], make_benchmark())


def test_the_interval_of_a_claim_is_by_the_spread_of_the_calibrated_epochs(
    digits: Benchmark,
) -> None:
    """seconds * exp(+- t * s * sqrt(0.449)) for three runs; s here by numpy within batch sizes."""
    curve = (Evaluation(1.0, 1.0, 50.0), Evaluation(8.0, 8.0, 98.0))
    runs = [Run(f"{n}.log", "mlperf", curve, status="success", seed=n) for n in (1, 2, 3)]
    result = score(runs, digits, division="closed", price_usd_per_hour=None)

    groups = [
        numpy.log([min(e for e, q in enumerate(r.quality, 1) if q >= 97.5) for r in of_size])
        for of_size in map(digits.reference_runs_at, (32, 64, 128))
    ]
    freedom = sum(len(group) - 1 for group in groups)
    spread = (sum(((group - group.mean()) ** 2).sum() for group in groups) / freedom) ** 0.5
    spread = max(spread, 7.0 / 8.0 / 12**0.5)  # Evaluations are that far apart.
    half = numpy.exp(scipy.stats.t.ppf(0.975, freedom) * spread * 0.449**0.5)
    assert result.tta_seconds == 8.0
    assert (result.tta_low_seconds, result.tta_high_seconds) == pytest.approx((8 / half, 8 * half))
