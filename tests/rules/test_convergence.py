"""Reference convergence points: the rule's own examples first, then the published verdicts."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.convergence import (
    ConvergenceLimit,
    ReferencePoint,
    check_convergence,
    convergence_limits,
    convergence_of_run,
    interpolate,
    limit_at,
    lowest_mean,
    prune,
)
from finishline.rules.scoring.run import Evaluation, Run

# MLPerf training_rules.adoc, appendix "Examples for RCP": N = 5 runs of which 1 is dropped at
# each end, reference convergence at batch sizes 128 and 256.
POINTS = (
    ReferencePoint(256, (20, 21, 21, 20, 22, 22, 21, 21, 20, 20)),
    ReferencePoint(128, (16, 14, 16, 17, 16, 16, 15, 16, 15, 16)),
)


def check(convergence: list[float | None], batch_size: int, **others: Any) -> Any:
    settings: dict[str, Any] = {
        "points": POINTS,
        "runs": 5,
        "dropped": 1,
        "stdev_of": "trimmed",
        "pruned": True,
    }
    return check_convergence(convergence, batch_size=batch_size, **(settings | others))


def limits(stdev_of: Any) -> list[ConvergenceLimit]:
    return convergence_limits(POINTS, runs=5, dropped=1, stdev_of=stdev_of, pruned=False)


def test_the_worked_example_of_the_rule_text() -> None:
    """Source: training_rules.adoc, appendix: 15.21 is 3.53 % and 19.93 is 4.12 % faster."""
    first, second = limits("trimmed")

    assert (first.batch_size, first.mean) == (128, 15.75)
    assert first.stdev == pytest.approx(0.433, abs=5e-4)
    assert first.lowest == pytest.approx(15.21, abs=5e-3)
    assert first.mean / first.lowest - 1 == pytest.approx(0.0353, abs=5e-5)
    assert (second.batch_size, second.mean) == (256, 20.75)
    assert second.stdev == pytest.approx(0.661, abs=5e-4)
    assert second.lowest == pytest.approx(19.93, abs=5e-3)
    assert second.mean / second.lowest - 1 == pytest.approx(0.0412, abs=5e-5)


def test_the_checkers_reading_takes_the_deviation_of_the_whole_list() -> None:
    """Source: mlperf-logging on the same example."""
    assert [limit.lowest for limit in limits("all")] == pytest.approx([14.78, 19.82], abs=5e-3)


@pytest.mark.parametrize(
    ("name", "batch_size", "convergence", "verdict", "factor"),
    [
        ("S1", 128, [15, 15, 15, 16, 16], "pass", 15.75 / (46 / 3)),
        ("S2", 256, [19, 19, 19, 20, 21], "fail", 20.75 / (58 / 3)),
        ("S3", 192, [17, 18, 18, 18, 20], "pass", 18.25 / 18),
        ("S4", 512, [30, 30, 30, 30, 30], "missing", 1.0),
        ("S5", 64, [16, 16, 16, 16, 16], "pass", 1.0),
        ("S6", 64, [14, 14, 14, 14, 14], "missing", 15.75 / 14),
    ],
)
def test_the_six_submissions_of_the_appendix(
    name: str, batch_size: int, convergence: list[float | None], verdict: str, factor: float
) -> None:
    result = check(convergence, batch_size)

    assert result.verdict == verdict, name
    assert result.factor == pytest.approx(factor, rel=1e-12)
    assert result.applied_factor == (pytest.approx(factor) if verdict == "pass" else 1.0)


def test_between_two_batch_sizes_mean_and_deviation_are_interpolated() -> None:
    """Source: training_rules.adoc, appendix, S3."""
    limit = limit_at(192, limits("trimmed"), runs=5)

    assert limit is not None
    assert limit.mean == 18.25
    assert limit.stdev == pytest.approx(0.547, abs=5e-4)
    # 2 N = 10 reference runs against N - 2 = 3 of the submission.
    margin = stats.t.ppf(0.95, 10 + 3 - 2) * limit.stdev * (1 / 10 + 1 / 3) ** 0.5
    assert limit.lowest == pytest.approx(18.25 - margin)
    assert check([17, 18, 18, 18, 20], 192).lowest == limit.lowest


@pytest.mark.parametrize("batch_size", [127, 257])
def test_outside_the_points_there_is_no_limit(batch_size: int) -> None:
    assert limit_at(batch_size, limits("trimmed"), runs=5) is None
    assert limit_at(128, limits("trimmed"), runs=5) == limits("trimmed")[0]


def test_a_message_says_what_was_found() -> None:
    assert check([16] * 5, 128).message == "RCP found"
    assert "normalised" in check([15, 15, 15, 16, 16], 128).message
    assert check([15, 15, 15, 16, 16], 128).normalised
    assert check([19] * 5, 192).message == "RCP interpolated"
    assert "smallest batch size 128" in check([16] * 5, 64).message
    assert check([30] * 5, 512).message == "missing RCP: submit one for batch size 512"
    assert not check([16] * 5, 128).normalised


@given(
    mean=st.floats(0.1, 1e7),
    share=st.floats(0.001, 0.3),
    reference=st.integers(2, 100),
    submission=st.integers(1, 40),
)
def test_the_lowest_mean_is_where_the_t_test_has_p_005(
    mean: float, share: float, reference: int, submission: int
) -> None:
    """Oracle: scipy's two-sample t-test from statistics, which the checker bisects on."""
    stdev = mean * share
    lowest = lowest_mean(mean, stdev, reference_runs=reference, submission_runs=submission)
    if lowest == 0.0:
        return
    test = stats.ttest_ind_from_stats(
        lowest, stdev, reference, mean, stdev, submission, equal_var=True
    )

    assert test.pvalue / 2 == pytest.approx(0.05, rel=1e-6)


def test_a_wide_spread_allows_anything_but_never_less_than_nothing() -> None:
    assert lowest_mean(1.0, 100.0, reference_runs=4, submission_runs=1) == 0.0


def test_without_spread_nothing_below_the_mean_passes() -> None:
    points = (ReferencePoint(256, (0.85,) * 10),)

    assert check([0.85] * 5, 256, points=points).verdict == "pass"
    assert check([0.85, 0.85, 0.849, 0.85, 0.85], 256, points=points).verdict == "pass"
    assert check([0.849] * 5, 256, points=points).verdict == "fail"


def test_pruning_drops_what_is_slower_than_the_line_between_its_neighbours() -> None:
    """Source: training_rules.adoc: of 10, 20 and 20 epochs at 128, 256 and 512, 256 is pruned."""
    points = [ConvergenceLimit(b, mean, 1.0, mean) for b, mean in ((128, 10), (256, 20), (512, 20))]

    assert [limit.batch_size for limit in prune(points)] == [128, 512]
    assert [limit.batch_size for limit in prune(points[:2])] == [128, 256]
    assert prune([]) == []


@pytest.mark.parametrize(("pruned", "kept"), [(True, [128, 512]), (False, [128, 256, 512])])
def test_points_are_pruned_only_where_the_rules_ask_for_it(pruned: bool, kept: list[int]) -> None:
    points = [ReferencePoint(b, (epochs,) * 10) for b, epochs in ((512, 20), (256, 20), (128, 10))]
    found = convergence_limits(points, runs=5, dropped=1, stdev_of="all", pruned=pruned)

    assert [limit.batch_size for limit in found] == kept


@pytest.mark.parametrize(
    ("reference_runs", "submission_runs", "known"),
    [(1, 1, False), (0, 3, False), (3, 0, False), (1, 2, True), (2, 1, True)],
)
def test_a_t_test_takes_a_run_on_both_sides_and_three_together(
    reference_runs: int, submission_runs: int, known: bool
) -> None:
    def lowest() -> float:
        return lowest_mean(
            16.0, 0.5, reference_runs=reference_runs, submission_runs=submission_runs
        )

    if known:
        assert lowest() < 16.0
        return
    with pytest.raises(RuleError, match="at least 3 runs"):
        lowest()


def test_a_point_on_the_line_is_kept() -> None:
    points = [ConvergenceLimit(b, mean, 1.0, mean) for b, mean in ((1, 10), (2, 20), (3, 30))]

    assert prune(points) == points


def test_pruning_drops_batch_sizes_below_the_fastest() -> None:
    points = [ConvergenceLimit(b, mean, 1.0, mean) for b, mean in ((1, 12), (2, 10), (4, 10))]

    assert [limit.batch_size for limit in prune(points)] == [2, 4]


def test_interpolation_is_exact_at_both_ends() -> None:
    low, high = limits("all")

    assert interpolate(128, low, high) == (low.mean, low.stdev)
    assert interpolate(256, low, high) == pytest.approx((high.mean, high.stdev))


def test_one_run_that_did_not_converge_counts_as_the_slowest() -> None:
    assert check([None, 15, 16, 16, 16], 128).submission_mean == 16
    assert check([99, 15, 16, 16, 16], 128) == check([None, 15, 16, 16, 16], 128)


def test_two_runs_that_did_not_converge_fail_the_set() -> None:
    result = check([None, 15, 16, 16, None], 128)

    assert (result.verdict, result.factor, result.submission_mean) == ("fail", 1.0, None)
    assert result.message == "too few runs converged"


def test_an_allowance_lets_a_faster_mean_pass_and_still_normalises() -> None:
    fast: list[float | None] = [19, 19, 19, 20, 21]

    assert check(fast, 256).verdict == "fail"
    allowed = check(fast, 256, allowance=1.0)
    assert (allowed.verdict, allowed.lowest) == ("pass", check(fast, 256).lowest)
    assert allowed.applied_factor == pytest.approx(20.75 / (58 / 3))


def test_without_points_every_set_lacks_its_rcp() -> None:
    assert check([16] * 5, 128, points=()).verdict == "missing"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_figure_is_refused(value: float) -> None:
    with pytest.raises(RuleError, match="expected a number above 0"):
        check([16, 16, 16, 16, value], 128)


def test_too_few_runs_and_points_twice_are_refused() -> None:
    with pytest.raises(RuleError, match="2 runs, 1 to drop"):
        check([16, 16], 128)
    with pytest.raises(RuleError, match="two reference points"):
        check([16] * 5, 128, points=(POINTS[0], POINTS[0]))
    with pytest.raises(RuleError, match="expected at least 10 runs"):
        check([16] * 5, 128, points=(ReferencePoint(128, (16, 16)),))
    with pytest.raises(RuleError, match="at least 3 runs"):
        check([16] * 5, 128, runs=2)


def test_convergence_is_the_last_evaluation_of_a_run_that_succeeded(
    make_run: Callable[..., Run],
) -> None:
    """Source: training_rules.adoc; mlperf-logging rounds epochs to three decimals."""
    run = make_run([90.0, 95.0], status="success")
    half = Run(
        name="r",
        clock="mlperf",
        status="success",
        evaluations=(Evaluation(epoch=0.8994999, seconds=1.0, quality=1.0, samples=3072),),
    )

    assert convergence_of_run(run, unit="epoch_num") == 2.0
    assert convergence_of_run(run, unit="samples_count") is None
    assert convergence_of_run(half, unit="epoch_num") == 0.899
    assert convergence_of_run(half, unit="samples_count") == 3072
    for status in ("aborted", None):
        assert convergence_of_run(make_run([95.0], status=status), unit="epoch_num") is None
    assert convergence_of_run(make_run([], status="success"), unit="epoch_num") is None


MEANING = {
    "RCP found": "RCP found",
    "RCP Interpolation": "RCP interpolated",
    "RCP not found but slower convergence on smaller batch size": "RCP not found",
}


@pytest.mark.parametrize("table", ["pruned_rcps", "full_rcps"])
def test_every_published_verdict_of_v51(
    archives: Path, shipped_benchmarks: dict[str, Benchmark], table: str
) -> None:
    """Expected: mlperf-logging 4.1.68. Its bisection stops within 5e-5 of the lowest mean."""
    expected = json.loads((archives / "mlperf" / "expected_v51.json").read_text())
    assert len(expected["groups"]) == 24
    for group in expected["groups"]:
        benchmark = shipped_benchmarks[f"mlperf-v5.1-{group['benchmark']}"]
        assert benchmark.rcp is not None
        result = check_convergence(
            [run["conv"] for run in group["runs"]],
            batch_size=group["gbs"],
            points=benchmark.rcp.points,
            runs=benchmark.runs.count,
            dropped=benchmark.runs.dropped,
            stdev_of=benchmark.rcp.stdev_of,
            pruned=table == "pruned_rcps",
            allowance=benchmark.rcp.allowance,
        )
        wanted = group["rcp"][table]
        where = group["system"], group["benchmark"]
        assert result.verdict == ("pass" if wanted["passed"] else "fail"), where
        assert result.message.startswith(MEANING[wanted["message"]]), where
        assert result.factor == pytest.approx(wanted["norm_factor"], rel=1e-9), where
        assert result.submission_mean == pytest.approx(group["conv_olympic_mean"], rel=1e-12)
        if "rcp_mean" in wanted:
            assert result.batch_size == wanted["rcp_bs"]
            assert result.mean == pytest.approx(wanted["rcp_mean"], rel=1e-12)
            assert result.lowest == pytest.approx(wanted["rcp_min"], rel=0, abs=5e-5)
