"""Reference convergence points: worked examples, normalised sets, and the shipped tables."""

import importlib.util
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.benchmarks.benchmark import RcpRule
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
from finishline.rules.scoring.scoring import score

# MLPerf training_rules.adoc, appendix "Examples for RCP": N = 5 runs of which 1 is dropped at
# each end, reference convergence at batch sizes 128 and 256.
POINTS = (
    ReferencePoint(256, (20, 21, 21, 20, 22, 22, 21, 21, 20, 20)),
    ReferencePoint(128, (16, 14, 16, 17, 16, 16, 15, 16, 15, 16)),
)


def check(convergence, batch_size, **others):
    settings = {
        "points": POINTS,
        "runs": 5,
        "dropped": 1,
        "stdev_of": "trimmed",
        "pruned": True,
    }
    return check_convergence(convergence, batch_size=batch_size, **(settings | others))


def limits(stdev_of):
    return convergence_limits(POINTS, runs=5, dropped=1, stdev_of=stdev_of, pruned=False)


def test_the_worked_example_of_the_rule_text():
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


def test_the_checkers_reading_takes_the_deviation_of_the_whole_list():
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
def test_the_six_submissions_of_the_appendix(name, batch_size, convergence, verdict, factor):
    result = check(convergence, batch_size)

    assert result.verdict == verdict, name
    assert result.factor == pytest.approx(factor, rel=1e-12)
    assert result.applied_factor == (pytest.approx(factor) if verdict == "pass" else 1.0)


def test_between_two_batch_sizes_mean_and_deviation_are_interpolated():
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
def test_outside_the_points_there_is_no_limit(batch_size):
    assert limit_at(batch_size, limits("trimmed"), runs=5) is None
    assert limit_at(128, limits("trimmed"), runs=5) == limits("trimmed")[0]


def test_a_message_says_what_was_found():
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
def test_the_lowest_mean_is_where_the_t_test_has_p_005(mean, share, reference, submission):
    """Oracle: scipy's two-sample t-test from statistics, which the checker bisects on."""
    stdev = mean * share
    lowest = lowest_mean(mean, stdev, reference_runs=reference, submission_runs=submission)
    if lowest == 0.0:
        return
    test = stats.ttest_ind_from_stats(
        lowest, stdev, reference, mean, stdev, submission, equal_var=True
    )

    assert test.pvalue / 2 == pytest.approx(0.05, rel=1e-6)


def test_a_wide_spread_allows_anything_but_never_less_than_nothing():
    assert lowest_mean(1.0, 100.0, reference_runs=4, submission_runs=1) == 0.0


def test_without_spread_nothing_below_the_mean_passes():
    points = (ReferencePoint(256, (0.85,) * 10),)

    assert check([0.85] * 5, 256, points=points).verdict == "pass"
    assert check([0.85, 0.85, 0.849, 0.85, 0.85], 256, points=points).verdict == "pass"
    assert check([0.849] * 5, 256, points=points).verdict == "fail"


def test_pruning_drops_what_is_slower_than_the_line_between_its_neighbours():
    """Source: training_rules.adoc: of 10, 20 and 20 epochs at 128, 256 and 512, 256 is pruned."""
    points = [ConvergenceLimit(b, mean, 1.0, mean) for b, mean in ((128, 10), (256, 20), (512, 20))]

    assert [limit.batch_size for limit in prune(points)] == [128, 512]
    assert [limit.batch_size for limit in prune(points[:2])] == [128, 256]
    assert prune([]) == []


@pytest.mark.parametrize(("pruned", "kept"), [(True, [128, 512]), (False, [128, 256, 512])])
def test_points_are_pruned_only_where_the_rules_ask_for_it(pruned, kept):
    points = [ReferencePoint(b, (epochs,) * 10) for b, epochs in ((512, 20), (256, 20), (128, 10))]
    found = convergence_limits(points, runs=5, dropped=1, stdev_of="all", pruned=pruned)

    assert [limit.batch_size for limit in found] == kept


@pytest.mark.parametrize(
    ("reference_runs", "submission_runs", "known"),
    [(1, 1, False), (0, 3, False), (3, 0, False), (1, 2, True), (2, 1, True)],
)
def test_a_t_test_takes_a_run_on_both_sides_and_three_together(
    reference_runs, submission_runs, known
):
    def lowest():
        return lowest_mean(
            16.0, 0.5, reference_runs=reference_runs, submission_runs=submission_runs
        )

    if known:
        assert lowest() < 16.0
        return
    with pytest.raises(RuleError, match="at least 3 runs"):
        lowest()


def test_a_point_on_the_line_is_kept():
    points = [ConvergenceLimit(b, mean, 1.0, mean) for b, mean in ((1, 10), (2, 20), (3, 30))]

    assert prune(points) == points


def test_pruning_drops_batch_sizes_below_the_fastest():
    points = [ConvergenceLimit(b, mean, 1.0, mean) for b, mean in ((1, 12), (2, 10), (4, 10))]

    assert [limit.batch_size for limit in prune(points)] == [2, 4]


def test_interpolation_is_exact_at_both_ends():
    low, high = limits("all")

    assert interpolate(128, low, high) == (low.mean, low.stdev)
    assert interpolate(256, low, high) == pytest.approx((high.mean, high.stdev))


def test_one_run_that_did_not_converge_counts_as_the_slowest():
    assert check([None, 15, 16, 16, 16], 128).submission_mean == 16
    assert check([99, 15, 16, 16, 16], 128) == check([None, 15, 16, 16, 16], 128)


def test_two_runs_that_did_not_converge_fail_the_set():
    result = check([None, 15, 16, 16, None], 128)

    assert (result.verdict, result.factor, result.submission_mean) == ("fail", 1.0, None)
    assert result.message == "too few runs converged"


def test_an_allowance_lets_a_faster_mean_pass_and_still_normalises():
    fast = [19, 19, 19, 20, 21]

    assert check(fast, 256).verdict == "fail"
    allowed = check(fast, 256, allowance=1.0)
    assert (allowed.verdict, allowed.lowest) == ("pass", check(fast, 256).lowest)
    assert allowed.applied_factor == pytest.approx(20.75 / (58 / 3))


def test_without_points_every_set_lacks_its_rcp():
    assert check([16] * 5, 128, points=()).verdict == "missing"


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_an_impossible_figure_is_refused(value):
    with pytest.raises(RuleError, match="expected a number above 0"):
        check([16, 16, 16, 16, value], 128)


def test_too_few_runs_and_points_twice_are_refused():
    with pytest.raises(RuleError, match="2 runs, 1 to drop"):
        check([16, 16], 128)
    with pytest.raises(RuleError, match="two reference points"):
        check([16] * 5, 128, points=(POINTS[0], POINTS[0]))
    with pytest.raises(RuleError, match="expected at least 10 runs"):
        check([16] * 5, 128, points=(ReferencePoint(128, (16, 16)),))
    with pytest.raises(RuleError, match="at least 3 runs"):
        check([16] * 5, 128, runs=2)


def test_convergence_is_the_last_evaluation_of_a_run_that_succeeded(make_run):
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


# The example of training_rules.adoc at batch size 128: mean 15.75, at least 15.21 epochs.
POINT = ReferencePoint(128, (16, 14, 16, 17, 16, 16, 15, 16, 15, 16))


@pytest.fixture
def benchmark(make_benchmark):
    rcp = RcpRule(stdev_of="trimmed", allowance=0.0, points=(POINT,))
    return make_benchmark(value=90.0, count=5, dropped=1, clock="mlperf", rcp=rcp)


def a_run(epochs, number, **others):
    settings = {
        "name": f"run_{number}.log",
        "clock": "mlperf",
        "evaluations": (Evaluation(epoch=epochs, seconds=90.0, quality=95.0, samples=7),),
        "status": "success",
        "stop_seconds": 100.0,
        "seed": number,
        "batch_size": 128,
    }
    return Run(**(settings | others))


def scored(benchmark, epochs, *, division="closed", **others):
    runs = [a_run(value, number, **others) for number, value in enumerate(epochs)]
    return score(runs, benchmark, division=division, price_usd_per_hour=36.0)


def test_a_set_faster_than_the_mean_is_normalised_and_both_times_are_kept(benchmark):
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


def test_the_steps_explain_the_normalisation(benchmark):
    result = scored(benchmark, [15, 15, 15, 16, 16])
    steps = {step.name: step for step in result.steps}

    assert list(steps)[5:9] == ["raw TTA", "convergence", "normalisation", "TTA"]
    assert steps["raw TTA"].value == 100.0
    assert steps["convergence"].value == pytest.approx(46 / 3)
    assert steps["normalisation"].numbers["reference mean"] == 15.75
    assert steps["TTA"].value == steps["raw TTA"].value * steps["normalisation"].value


def test_a_slower_set_keeps_its_time(benchmark):
    result = scored(benchmark, [16, 16, 16, 17, 17])

    assert result.tta_seconds == result.raw_tta_seconds == 100.0
    assert result.violations == ()


def test_a_set_that_converges_too_fast_is_not_ranked(benchmark):
    result = scored(benchmark, [14, 14, 15, 15, 15])

    assert [(v.code, v.field) for v in result.violations] == [("converges_too_fast", "epoch_num")]
    assert "at least 15.2126 epoch_num" in str(result.violations[0].expected)
    assert result.tta_seconds == 100.0


def test_a_set_without_a_point_at_its_batch_size_lacks_it(benchmark):
    result = scored(benchmark, [30] * 5, batch_size=256)

    assert [violation.code for violation in result.violations] == ["missing_rcp"]
    assert "submit one for batch size 256" in result.violations[0].message


def test_the_open_division_and_a_benchmark_without_points_are_not_checked(
    benchmark, make_benchmark
):
    without = make_benchmark(value=90.0, count=5, dropped=1, clock="mlperf")

    assert scored(benchmark, [1] * 5, division="open").rcp is None
    assert scored(without, [1] * 5).rcp is None


def test_too_few_runs_to_drop_from_are_not_checked(make_benchmark):
    rcp = RcpRule(stdev_of="trimmed", allowance=0.0, points=(POINT,))
    benchmark = make_benchmark(value=90.0, count=6, dropped=2, clock="mlperf", rcp=rcp)

    assert scored(benchmark, [16] * 4).rcp is None
    assert scored(benchmark, [16] * 5).rcp is not None


def test_runs_of_different_batch_sizes_are_no_set(benchmark):
    runs = [a_run(16, number, batch_size=128 + number // 4) for number in range(5)]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert [(v.code, v.file) for v in result.violations] == [("batch_size_differs", "run_4.log")]
    assert result.violations[0].message == "batch size 129, and 128 in run_0.log"
    assert scored(benchmark, [16] * 5, batch_size=None).violations[0].code == "batch_size_differs"


def test_a_run_that_hides_its_convergence_is_named(benchmark):
    result = scored(benchmark, [16, 16, 16, 16, None])

    assert [(v.code, v.file) for v in result.violations] == [("no_convergence", "run_4.log")]


def test_success_without_the_target_does_not_count_as_converged(benchmark):
    missed = (Evaluation(epoch=1.0, seconds=90.0, quality=10.0),)
    runs = [a_run(16, n) for n in range(4)] + [a_run(None, 4, evaluations=missed)]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert [run.convergence for run in result.runs] == [16, 16, 16, 16, None]
    assert [violation.code for violation in result.violations] == ["success_without_target"]


def test_too_few_converged_runs_are_no_result(benchmark):
    runs = [a_run(16, n, status="success" if n < 3 else "aborted") for n in range(5)]
    result = score(runs, benchmark, division="closed", price_usd_per_hour=None)

    assert (result.tta_seconds, result.raw_tta_seconds) == (None, None)
    assert result.rcp is not None
    assert (result.rcp.verdict, result.violations) == ("fail", ())


def test_convergence_is_taken_from_the_runs_of_the_median_window(benchmark):
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


def test_a_run_that_ended_before_its_first_evaluation_did_not_converge(benchmark):
    """Dell's llama2_70b_lora of v5.1 has such a run: dropped as the slowest."""
    runs = [a_run(16, number) for number in range(4)]
    broken = a_run(None, 4, evaluations=(), status=None, stop_seconds=None, batch_size=None)
    result = score([*runs, broken], benchmark, division="closed", price_usd_per_hour=None)

    assert (result.tta_seconds, result.reached, result.started) == (100.0, 4, 5)
    assert (result.runs[4].reached, result.runs[4].best_quality) == (False, None)
    assert result.violations == ()


def test_success_without_an_evaluation_is_a_violation(benchmark):
    runs = [a_run(16, number) for number in range(4)]
    empty = a_run(None, 4, evaluations=())
    result = score([*runs, empty], benchmark, division="closed", price_usd_per_hour=None)

    (violation,) = result.violations
    assert (violation.code, violation.file) == ("success_without_target", "run_4.log")
    assert "nothing was evaluated" in violation.message


# Which of the two a table has is an accident of its history; it has exactly one.
FIGURES = {"Epochs to converge", "samples to converge"}


def read_table(path):
    found = []
    for record in json.loads(path.read_bytes()).values():
        (figures,) = FIGURES & record.keys()
        found.append(ReferencePoint(record["BS"], tuple(map(float, record[figures]))))
    return tuple(sorted(found, key=lambda point: point.batch_size))


def test_the_shipped_points_are_those_of_the_package():
    """Runs where mlperf-logging is installed; finding it does not import it."""
    package = importlib.util.find_spec("mlperf_logging")
    if package is None or not package.submodule_search_locations:
        pytest.skip("mlperf-logging is not installed")
    root = Path(package.submodule_search_locations[0])
    checked = 0
    for benchmark in shipped_definitions().values():
        if benchmark.rcp is not None:
            folder = root / "rcp_checker" / f"training_{benchmark.version}.0"
            table = folder / f"rcps_{benchmark.benchmark_id.rpartition('-')[2]}.json"
            assert benchmark.rcp.points == read_table(table), benchmark.benchmark_id
            checked += 1
    assert checked == 21
