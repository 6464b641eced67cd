"""Reference convergence points: worked examples, normalised sets, and the shipped tables."""

import importlib.util
import json
from contextlib import nullcontext
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from finishline.rules.archive.definitions import shipped_definitions
from finishline.rules.benchmarks.definition_tables import RcpRule, ReferencePoint, RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.convergence import (
    ConvergenceLimit,
    check_convergence,
    convergence_limits,
    convergence_of_run,
    limit_at,
    lowest_submission,
    prune,
)
from finishline.rules.scoring.scoring import score

# MLPerf training_rules.adoc, appendix "Examples for RCP": N = 5 runs of which 1 is dropped at
# each end, reference convergence at batch sizes 128 and 256.
POINTS = (
    ReferencePoint(256, (20, 21, 21, 20, 22, 22, 21, 21, 20, 20)),
    ReferencePoint(128, (16, 14, 16, 17, 16, 16, 15, 16, 15, 16)),
)


def check(convergence, batch_size, *, pruned=True, allowance=0.0, runs=5, dropped=1, points=POINTS):
    rule = RcpRule("trimmed", allowance, points)
    return check_convergence(convergence, batch_size, rule, RunsRule(runs, dropped), pruned=pruned)


def limits(stdev_of, points=POINTS, *, pruned=False):
    return convergence_limits(RcpRule(stdev_of, 0.0, points), RunsRule(5, 1), pruned=pruned)


@pytest.mark.parametrize(
    ("place", "batch_size", "mean", "stdev", "lowest", "faster"),
    [(0, 128, 15.75, 0.433, 15.21, 0.0353), (1, 256, 20.75, 0.661, 19.93, 0.0412)],
)
def test_the_worked_example_of_the_rule_text(place, batch_size, mean, stdev, lowest, faster):
    """Source: training_rules.adoc, appendix: 15.21 is 3.53 % and 19.93 is 4.12 % faster."""
    found = limits("trimmed")[place]

    assert (found.batch_size, found.mean) == (batch_size, mean)
    assert found.stdev == pytest.approx(stdev, abs=5e-4)
    assert found.lowest == pytest.approx(lowest, abs=5e-3)
    assert found.mean / found.lowest - 1 == pytest.approx(faster, abs=5e-5)


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
    assert result.normalised == (result.applied_factor > 1.0)
    assert check(convergence, batch_size, points=()).verdict == "missing"


def test_between_two_batch_sizes_mean_and_deviation_are_interpolated():
    """Source: training_rules.adoc, appendix, S3."""
    limit = limit_at(192, limits("trimmed"), runs=5)

    assert limit.mean == 18.25
    assert limit.stdev == pytest.approx(0.547, abs=5e-4)
    # 2 N = 10 reference runs against N - 2 = 3 of the submission.
    margin = stats.t.ppf(0.95, 10 + 3 - 2) * limit.stdev * (1 / 10 + 1 / 3) ** 0.5
    assert limit.lowest == pytest.approx(18.25 - margin)
    assert check([17, 18, 18, 18, 20], 192).lowest == limit.lowest
    assert limit_at(128, limits("trimmed"), runs=5) == limits("trimmed")[0]
    for outside in (127, 257):
        assert limit_at(outside, limits("trimmed"), runs=5) is None


@given(
    mean=st.floats(0.1, 1e7),
    share=st.floats(0.001, 0.3),
    reference=st.integers(2, 100),
    submission=st.integers(1, 40),
)
def test_the_lowest_mean_is_where_the_t_test_has_p_005(mean, share, reference, submission):
    """Oracle: scipy's two-sample t-test from statistics, which the checker bisects on."""
    stdev = mean * share
    lowest = lowest_submission(mean, stdev, reference_runs=reference, submission_runs=submission)
    if lowest == 0.0:
        return
    test = stats.ttest_ind_from_stats(
        lowest, stdev, reference, mean, stdev, submission, equal_var=True
    )

    assert test.pvalue / 2 == pytest.approx(0.05, rel=1e-6)


@pytest.mark.parametrize(
    ("convergence", "verdict"),
    [([0.85] * 5, "pass"), ([0.85, 0.85, 0.849, 0.85, 0.85], "pass"), ([0.849] * 5, "fail")],
)
def test_without_spread_nothing_below_the_mean_passes(convergence, verdict):
    points = (ReferencePoint(256, (0.85,) * 10),)
    assert check(convergence, 256, points=points).verdict == verdict


@pytest.mark.parametrize(
    ("means", "kept"),
    [
        # Source: training_rules.adoc: of 10, 20 and 20 epochs at 128, 256 and 512, 256 is pruned.
        ({128: 10, 256: 20, 512: 20}, [128, 512]),
        ({128: 10, 256: 20}, [128, 256]),
        ({}, []),
        ({1: 10, 2: 20, 3: 30}, [1, 2, 3]),  # On the line.
        ({1: 12, 2: 10, 4: 10}, [2, 4]),  # Below the fastest.
    ],
)
def test_pruning_drops_what_is_slower_than_the_line_between_its_neighbours(means, kept):
    points = [ConvergenceLimit(size, mean, 1.0, mean) for size, mean in means.items()]
    assert [limit.batch_size for limit in prune(points)] == kept


@pytest.mark.parametrize(
    ("reference_runs", "submission_runs", "known"),
    [(1, 1, False), (0, 3, False), (3, 0, False), (1, 2, True), (2, 1, True)],
)
def test_t_test_takes_three_runs(reference_runs, submission_runs, known):
    counts = {"reference_runs": reference_runs, "submission_runs": submission_runs}
    with nullcontext() if known else pytest.raises(RuleError, match="at least 3 runs"):
        assert lowest_submission(16.0, 0.5, **counts) < 16.0
    # A wide spread allows anything, and never less than nothing.
    assert lowest_submission(1.0, 100.0, reference_runs=4, submission_runs=1) == 0.0


@pytest.mark.parametrize(("pruned", "kept"), [(True, [128, 512]), (False, [128, 256, 512])])
def test_points_are_pruned_only_where_the_rules_ask_for_it(pruned, kept):
    points = [ReferencePoint(b, (epochs,) * 10) for b, epochs in ((512, 20), (256, 20), (128, 10))]
    found = limits("all", points, pruned=pruned)

    assert [limit.batch_size for limit in found] == kept


def test_one_run_that_did_not_converge_counts_as_the_slowest_and_two_fail_the_set():
    assert check([None, 15, 16, 16, 16], 128).submission_mean == 16
    assert check([99, 15, 16, 16, 16], 128) == check([None, 15, 16, 16, 16], 128)
    result = check([None, 15, 16, 16, None], 128)
    assert (result.verdict, result.factor, result.submission_mean) == ("fail", 1.0, None)
    assert result.message == "too few runs converged"


def test_an_allowance_lets_a_faster_mean_pass_and_still_normalises():
    fast = [19, 19, 19, 20, 21]

    assert check(fast, 256).verdict == "fail"
    allowed = check(fast, 256, allowance=1.0)
    assert (allowed.verdict, allowed.lowest) == ("pass", check(fast, 256).lowest)
    assert allowed.applied_factor == pytest.approx(20.75 / (58 / 3))


@pytest.mark.parametrize(
    ("convergence", "others", "words"),
    [
        *(
            ([16, 16, 16, 16, value], {}, "expected a number above 0")
            for value in (0.0, -1.0, float("nan"), float("inf"))
        ),
        ([16, 16], {}, "2 runs, 1 to drop"),
        ([16] * 5, {"points": (POINTS[0], POINTS[0])}, "two reference points"),
        ([16] * 5, {"points": (ReferencePoint(128, (16, 16)),)}, "expected at least 10 runs"),
        ([16] * 5, {"runs": 2}, "at least 3 runs"),
    ],
)
def test_an_impossible_figure_or_set_is_refused(convergence, others, words):
    with pytest.raises(RuleError, match=words):
        check(convergence, 128, **others)


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


@pytest.fixture
def benchmark(make_benchmark):
    rcp = RcpRule(stdev_of="trimmed", allowance=0.0, points=(POINTS[1],))
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


def score_set(benchmark, runs, *, division="closed"):
    return score(runs, benchmark, division=division, price_usd_per_hour=36.0)


def scored(benchmark, epochs, *, division="closed", **others):
    runs = [a_run(value, number, **others) for number, value in enumerate(epochs)]
    return score_set(benchmark, runs, division=division)


def test_a_set_faster_than_the_mean_is_normalised_and_both_times_are_kept(benchmark):
    """Source: training_rules.adoc, S1 of the appendix: 15.33 against 15.75 epochs."""
    result = scored(benchmark, [15, 15, 15, 16, 16])
    factor = 15.75 / (46 / 3)

    assert result.raw_tta_seconds == 100.0
    assert result.tta_seconds == pytest.approx(100.0 * factor)
    assert result.cost_usd == pytest.approx(factor)
    middle = (result.tta_low_seconds * result.tta_high_seconds) ** 0.5
    assert middle == pytest.approx(100.0 * factor)  # On a logarithmic scale.
    assert (result.rcp.normalised, result.eligible) == (True, True)
    steps = {step.name: step for step in result.steps}
    assert list(steps)[5:9] == ["raw TTA", "convergence", "normalisation", "TTA"]
    assert steps["raw TTA"].value == 100.0
    assert steps["convergence"].value == pytest.approx(46 / 3)
    assert steps["normalisation"].numbers["reference mean"] == 15.75
    assert steps["TTA"].value == steps["raw TTA"].value * steps["normalisation"].value
    assert steps["convergence"].working == "(15 + 15 + 16) / 3"
    assert steps["normalisation"].working == "15.75 / 15.3333"
    assert steps["TTA"].working == "100 × 1.02717"


@pytest.mark.parametrize(
    ("epochs", "others", "violations", "told"),
    [
        ([16, 16, 16, 17, 17], {}, [], ""),
        ([14, 14, 15, 15, 15], {}, [("converges_too_fast", None)], "at least 15.2126 epoch_num"),
        # A run that hides its convergence.
        ([16, 16, 16, 16, None], {}, [("no_convergence", "run_4.log")], ""),
    ],
)
def test_slower_set_keeps_its_time(benchmark, epochs, others, violations, told):
    result = scored(benchmark, epochs, **others)

    assert [(v.code, v.file) for v in result.violations][:1] == violations
    assert told in "".join(f"{v.message} {v.expected}" for v in result.violations)
    assert result.tta_seconds == result.raw_tta_seconds == 100.0


def test_what_has_no_points_is_not_checked(benchmark, make_benchmark):
    settings = {"value": 90.0, "dropped": 2, "clock": "mlperf", "rcp": benchmark.rcp}

    assert scored(benchmark, [1] * 5, division="open").rcp is None
    assert scored(make_benchmark(**settings | {"rcp": None, "count": 5}), [1] * 5).rcp is None
    # Nor are too few runs to drop from.
    assert scored(make_benchmark(**settings, count=6), [16] * 4).rcp is None
    assert scored(make_benchmark(**settings, count=6), [16] * 5).rcp is not None


def test_convergence_is_taken_from_the_runs_of_the_median_window(benchmark):
    """Windows of 5 of 7 runs take 100, 103 and 103.3 s: the second is scored."""
    times = [100.0, 100.0, 100.0, 100.0, 100.0, 109.0, 110.0]
    epochs = [1.0, 16.0, 16.0, 16.0, 16.0, 16.0, 1.0]
    runs = [
        a_run(epoch, n, stop_seconds=seconds)
        for n, (epoch, seconds) in enumerate(zip(epochs, times, strict=True))
    ]
    result = score_set(benchmark, runs)

    assert (result.rcp.submission_mean, result.violations) == (16.0, ())


# Which of the two a table has is an accident of its history; it has exactly one.
FIGURES = {"Epochs to converge", "samples to converge"}


def read_table(path, *, steps):
    found = []
    for record in json.loads(path.read_bytes()).values():
        (figures,) = FIGURES & record.keys()
        samples = record["BS"] if steps else 1
        found.append(
            ReferencePoint(record["BS"], tuple(float(each * samples) for each in record[figures]))
        )
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
            points = read_table(table, steps=benchmark.target.steps)
            assert benchmark.rcp.points == points, benchmark.benchmark_id
            checked += 1
    assert checked == 68
