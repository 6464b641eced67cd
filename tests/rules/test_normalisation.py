"""A set that converges faster than the reference is normalised, refused or lacks its point."""

from collections.abc import Callable
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, RcpRule
from finishline.rules.scoring.convergence import ReferencePoint
from finishline.rules.scoring.run import Evaluation, Run
from finishline.rules.scoring.scoring import Result, score

# The example of training_rules.adoc at batch size 128: mean 15.75, at least 15.21 epochs.
POINT = ReferencePoint(128, (16, 14, 16, 17, 16, 16, 15, 16, 15, 16))


@pytest.fixture
def benchmark(make_benchmark: Callable[..., Benchmark]) -> Benchmark:
    rcp = RcpRule(stdev_of="trimmed", allowance=0.0, points=(POINT,))
    return make_benchmark(value=90.0, count=5, dropped=1, clock="mlperf", rcp=rcp)


def a_run(epochs: float | None, number: int, **others: Any) -> Run:
    settings: dict[str, Any] = {
        "name": f"run_{number}.log",
        "clock": "mlperf",
        "evaluations": (Evaluation(epoch=epochs, seconds=90.0, quality=95.0, samples=7),),
        "status": "success",
        "stop_seconds": 100.0,
        "seed": number,
        "batch_size": 128,
    }
    return Run(**(settings | others))


def scored(
    benchmark: Benchmark, epochs: list[float | None], *, division: str = "closed", **others: Any
) -> Result:
    runs = [a_run(value, number, **others) for number, value in enumerate(epochs)]
    return score(runs, benchmark, division=division, price_usd_per_hour=36.0)


def test_a_set_faster_than_the_mean_is_normalised_and_both_times_are_kept(
    benchmark: Benchmark,
) -> None:
    """Source: training_rules.adoc, S1 of the appendix: 15.33 against 15.75 epochs."""
    result = scored(benchmark, [15, 15, 15, 16, 16])
    factor = 15.75 / (46 / 3)

    assert result.raw_tta_seconds == 100.0
    assert result.tta_seconds == pytest.approx(100.0 * factor)
    assert result.cost_usd == pytest.approx(factor)
    assert result.tta_low_seconds is not None
    assert result.tta_high_seconds is not None
    middle = (result.tta_low_seconds * result.tta_high_seconds) ** 0.5
    assert middle == pytest.approx(100.0 * factor)  # On a logarithmic scale.
    assert result.rcp is not None
    assert result.rcp.normalised
    assert result.eligible


def test_the_steps_explain_the_normalisation(benchmark: Benchmark) -> None:
    result = scored(benchmark, [15, 15, 15, 16, 16])
    steps = {step.name: step for step in result.steps}

    assert list(steps)[5:9] == ["raw TTA", "convergence", "normalisation", "TTA"]
    assert steps["raw TTA"].value == 100.0
    assert steps["convergence"].value == pytest.approx(46 / 3)
    assert steps["normalisation"].numbers["reference mean"] == 15.75
    assert steps["TTA"].value == steps["raw TTA"].value * steps["normalisation"].value  # type: ignore[operator]


def test_a_slower_set_keeps_its_time(benchmark: Benchmark) -> None:
    result = scored(benchmark, [16, 16, 16, 17, 17])

    assert result.tta_seconds == result.raw_tta_seconds == 100.0
    assert result.violations == ()


def test_a_set_that_converges_too_fast_is_not_ranked(benchmark: Benchmark) -> None:
    result = scored(benchmark, [14, 14, 15, 15, 15])

    assert [(v.code, v.field) for v in result.violations] == [("converges_too_fast", "epoch_num")]
    assert "at least 15.2126 epoch_num" in str(result.violations[0].expected)
    assert result.tta_seconds == 100.0


def test_a_set_without_a_point_at_its_batch_size_lacks_it(benchmark: Benchmark) -> None:
    result = scored(benchmark, [30] * 5, batch_size=256)

    assert [violation.code for violation in result.violations] == ["missing_rcp"]
    assert "submit one for batch size 256" in result.violations[0].message


def test_the_open_division_and_a_benchmark_without_points_are_not_checked(
    benchmark: Benchmark, make_benchmark: Callable[..., Benchmark]
) -> None:
    without = make_benchmark(value=90.0, count=5, dropped=1, clock="mlperf")

    assert scored(benchmark, [1] * 5, division="open").rcp is None
    assert scored(without, [1] * 5).rcp is None


def test_too_few_runs_to_drop_from_are_not_checked(
    make_benchmark: Callable[..., Benchmark],
) -> None:
    rcp = RcpRule(stdev_of="trimmed", allowance=0.0, points=(POINT,))
    benchmark = make_benchmark(value=90.0, count=6, dropped=2, clock="mlperf", rcp=rcp)

    assert scored(benchmark, [16] * 4).rcp is None
    assert scored(benchmark, [16] * 5).rcp is not None


def test_runs_of_different_batch_sizes_are_no_set(benchmark: Benchmark) -> None:
    runs = [a_run(16, number, batch_size=128 + number // 4) for number in range(5)]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert [(v.code, v.file) for v in result.violations] == [("batch_size_differs", "run_4.log")]
    assert result.violations[0].message == "batch size 129, and 128 in run_0.log"
    assert scored(benchmark, [16] * 5, batch_size=None).violations[0].code == "batch_size_differs"


def test_a_run_that_hides_its_convergence_is_named(benchmark: Benchmark) -> None:
    result = scored(benchmark, [16, 16, 16, 16, None])

    assert [(v.code, v.file) for v in result.violations] == [("no_convergence", "run_4.log")]


def test_success_without_the_target_does_not_count_as_converged(benchmark: Benchmark) -> None:
    missed = (Evaluation(epoch=1.0, seconds=90.0, quality=10.0),)
    runs = [a_run(16, n) for n in range(4)] + [a_run(None, 4, evaluations=missed)]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert [run.convergence for run in result.runs] == [16, 16, 16, 16, None]
    assert [violation.code for violation in result.violations] == ["success_without_target"]


def test_too_few_converged_runs_are_no_result(benchmark: Benchmark) -> None:
    runs = [a_run(16, n, status="success" if n < 3 else "aborted") for n in range(5)]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert (result.tta_seconds, result.raw_tta_seconds) == (None, None)
    assert result.rcp is not None
    assert (result.rcp.verdict, result.violations) == ("fail", ())


def test_convergence_is_taken_from_the_runs_of_the_median_window(benchmark: Benchmark) -> None:
    """Windows of 5 of 7 runs take 100, 103 and 103.3 s: the second is scored."""
    times = [100.0, 100.0, 100.0, 100.0, 100.0, 109.0, 110.0]
    epochs = [1.0, 16.0, 16.0, 16.0, 16.0, 16.0, 1.0]
    runs = [
        a_run(epoch, n, stop_seconds=seconds)
        for n, (epoch, seconds) in enumerate(zip(epochs, times, strict=True))
    ]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert result.rcp is not None
    assert result.rcp.submission_mean == 16.0
    assert result.violations == ()


def test_a_run_that_ended_before_its_first_evaluation_did_not_converge(
    benchmark: Benchmark,
) -> None:
    """Dell's llama2_70b_lora of v5.1 has such a run: dropped as the slowest."""
    runs = [a_run(16, number) for number in range(4)]
    broken = a_run(None, 4, evaluations=(), status=None, stop_seconds=None, batch_size=None)
    result = score([*runs, broken], benchmark, division="closed", price_usd_per_hour=None)

    assert (result.tta_seconds, result.reached, result.started) == (100.0, 4, 5)
    assert (result.runs[4].reached, result.runs[4].best_quality) == (False, None)
    assert result.violations == ()


def test_success_without_an_evaluation_is_a_violation(benchmark: Benchmark) -> None:
    runs = [a_run(16, number) for number in range(4)]
    empty = a_run(None, 4, evaluations=())
    result = score([*runs, empty], benchmark, division="closed", price_usd_per_hour=None)

    (violation,) = result.violations
    assert (violation.code, violation.file) == ("success_without_target", "run_4.log")
    assert "nothing was evaluated" in violation.message
