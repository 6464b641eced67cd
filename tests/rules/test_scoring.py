"""Scores of runs, of submissions, and of the sealed runs of a measurement."""

import dataclasses
import math
import statistics
from functools import partial

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.benchmark import load_benchmark
from finishline.rules.benchmarks.definition_tables import RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.logs import parse_run_log
from finishline.rules.logs.lines import mllog_line
from finishline.rules.run import Evaluation, Run
from finishline.rules.scoring.scoring import run_uses, score
from finishline.rules.statistics.aggregate import (
    Spread,
    coefficient_of_variation_percent,
    dropped_at_each_end,
    mean,
    measured_seconds,
    median_window,
    olympic_mean,
    olympic_weight,
    pooled_spread,
    resolution_of,
    standard_deviation,
    variance_of_mean,
)
from finishline.rules.statistics.gaps import interval_of


@pytest.fixture
def five_runs(make_run):
    """Reach 94 % after 90, 100, 101, 105 and 500 s: two epochs of half that."""
    return [
        make_run([90.0, 94.5], name=f"run_{i}.log", seconds_per_epoch=seconds / 2, seed=i)
        for i, seconds in enumerate([100.0, 90.0, 105.0, 500.0, 101.0])
    ]


def score_of(runs, benchmark, *, price=None, **others):
    return score(runs, benchmark, division="open", price_usd_per_hour=price, **others)


def test_a_dawnbench_entry_is_scored_as_published(make_benchmark):
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
    assert result.tta_display == "44.4 s"
    assert result.cost_usd == pytest.approx(0.10500631, abs=1e-8)
    assert (result.epochs_to_target, result.best_quality) == (21.0, 94.18)
    assert (result.started, result.reached, result.eligible) == (1, 1, True)
    assert result.cv_percent is None
    assert result.tta_low_seconds is None


def test_several_runs_are_averaged_olympically_and_every_step_is_kept(make_benchmark, five_runs):
    result = score_of(five_runs, make_benchmark(count=5, dropped=1), price=3.6)

    assert result.tta_seconds == 102.0  # (100 + 101 + 105) / 3
    assert result.cost_usd == pytest.approx(0.102)
    # numpy.std([100, 90, 105, 500, 101]) / numpy.mean(...) * 100
    assert result.cv_percent == pytest.approx(89.5514, abs=1e-4)
    assert result.tta_low_seconds is None  # Nothing tells how much such runs scatter.
    assert result.evaluation_interval_seconds == 250.0

    steps = result.steps
    assert [step.name for step in steps] == [
        *[f"TTA of run_{i}.log" for i in range(5)],
        "TTA",
        "coefficient of variation",
        "cost to accuracy",
    ]
    assert [step.working for step in steps] == [
        *("counts", "dropped as fastest", "counts", "dropped as slowest", "counts"),
        "(100 + 101 + 105) / 3",
        "160.476 / 179.2 × 100",
        "102 / 3600 × 3.6",
    ]
    first, tta, cost = steps[0], steps[5], steps[7]
    assert "clock to the first evaluation with top-1 accuracy >= 94 percent" in first.formula
    assert (first.value, first.unit) == (100.0, "s")
    seconds = [100.0, 90.0, 105.0, 500.0, 101.0]
    assert tta.numbers == {f"run_{i}.log": each for i, each in enumerate(seconds)}
    assert tta.value == 102.0
    assert (cost.value, cost.unit) == (pytest.approx(0.102), "USD")
    assert cost.numbers == {"TTA (s)": 102.0, "price (USD/h)": 3.6}


def test_of_many_runs_the_sum_is_written_out(make_benchmark, make_run):
    runs = [
        make_run([94.5], name=f"run_{i}.log", seconds_per_epoch=float(i), seed=i)
        for i in range(1, 14)
    ]
    result = score_of(runs, make_benchmark(count=13, dropped=1))
    tta = next(step for step in result.steps if step.name == "TTA")
    assert (tta.working, tta.value) == ("77 / 11", 7.0)  # From 2 to 12.


@pytest.mark.parametrize(
    ("rule", "times", "uses"),
    [
        # The window of three runs in a row with the median of the three means: runs 2 to 4.
        (
            RunsRule(3, 1),
            [30.0, 20.0, 21.0, 22.0, 10.0],
            ["not counted", "dropped as fastest", "counts", "dropped as slowest", "not counted"],
        ),
        (
            RunsRule(2, 0, started=4),
            [None, 5.0, 4.0, 3.0],
            ["not counted", "counts", "counts", "not counted"],
        ),
        (RunsRule(2, 0, started=4), [None, None, None, 3.0], ["not counted"] * 4),
    ],
)
def test_each_run_says_how_its_time_counts(rule, times, uses):
    assert run_uses(times, rule) == uses


@pytest.mark.parametrize(
    ("count", "started", "words"),
    [(3, None, "Of 3 runs in a row"), (3, 5, "Of the first 3 runs that reached the target")],
)
def test_the_step_says_of_which_runs_the_mean_is(make_benchmark, five_runs, count, started, words):
    result = score_of(five_runs, make_benchmark(runs=RunsRule(count, 0, started=started)))
    assert next(step for step in result.steps if step.name == "TTA").formula.startswith(words)


def test_a_run_that_ended_without_success_has_no_epochs_to_the_target(make_benchmark, make_run):
    aborted = make_run([90.0, 94.5], status="aborted")
    (run,) = score_of([aborted], make_benchmark()).runs

    assert (run.reached, run.epochs_to_target, run.convergence) == (False, None, None)


def test_offline_target_converges_where_first_reached(make_benchmark, make_run):
    run = make_run([90.0, 94.5, 95.0], status="success", clock="mlperf", stop_seconds=40.0)
    at_once = make_benchmark(clock="mlperf")
    afterwards = dataclasses.replace(at_once.target, offline=True)

    (last,) = score_of([run], at_once).runs
    (first,) = score_of([run], dataclasses.replace(at_once, target=afterwards)).runs

    assert (last.convergence, first.convergence) == (3.0, 2.0)


def test_runs_without_any_time_at_all_have_no_spread(make_benchmark, make_run):
    runs = [make_run([94.0], name=f"{i}.log", seconds_per_epoch=0.0) for i in range(3)]
    result = score_of(runs, make_benchmark(count=3, dropped=1))
    assert (result.tta_seconds, result.cv_percent) == (0.0, None)


def test_a_score_needs_runs_that_were_evaluated(make_benchmark, make_run):
    few = score_of([make_run([94.0])], make_benchmark(count=5, dropped=1))
    assert ([v.code for v in few.violations], few.eligible) == (["too_few_runs"], False)
    assert few.tta_seconds is None
    silent = score_of([Run("a.log", "dawnbench", ())], make_benchmark())
    assert (silent.started, silent.reached, silent.tta_seconds) == (1, 0, None)
    assert (silent.best_quality, silent.eligible) == (None, False)
    assert [(v.code, v.file) for v in silent.violations] == [("no_evaluation", "a.log")]
    with pytest.raises(RuleError, match="no runs"):
        score_of([], make_benchmark())


def test_the_interval_of_a_claim_is_by_the_spread_of_the_calibrated_epochs(digits):
    """seconds * exp(+- t * s * sqrt(0.449)) for three runs; s here by numpy within batch sizes."""
    curve = (Evaluation(1.0, 1.0, 50.0), Evaluation(8.0, 8.0, 98.0))
    runs = [Run(f"{n}.log", "mlperf", curve, status="success", seed=n) for n in (1, 2, 3)]
    result = score(runs, digits, division="closed", price_usd_per_hour=None)

    groups = [
        np.log([min(e for e, q in enumerate(r.quality, 1) if q >= 97.5) for r in of_size])
        for of_size in map(digits.reference_runs_at, (32, 64, 128))
    ]
    freedom = sum(len(group) - 1 for group in groups)
    spread = (sum(((group - group.mean()) ** 2).sum() for group in groups) / freedom) ** 0.5
    spread = max(spread, 7.0 / 8.0 / 12**0.5)  # Evaluations are that far apart.
    half = np.exp(scipy.stats.t.ppf(0.975, freedom) * spread * 0.449**0.5)
    assert result.tta_seconds == 8.0
    assert (result.tta_low_seconds, result.tta_high_seconds) == pytest.approx((8 / half, 8 * half))


SECONDS = st.floats(0.01, 1e7)


TIMES = [float(t) for t in range(36)]  # unet3d: 40 runs, 4 + 4 dropped


@pytest.mark.parametrize(
    ("times", "dropped", "seconds"),
    [
        # Source: MLPerf training_rules.adoc, "Benchmark results".
        ([90.0, 100.0, 101.0, 105.0, 500.0], 1, 102.0),
        # As many runs as are dropped may have missed.
        ([*TIMES, *[None] * 4], 4, mean(range(4, 36))),
        ([*TIMES[:35], *[None] * 5], 4, None),
        ([1.0, 2.0, 6.0], 0, 3.0),
        ([1.0, None], 0, None),
        ([27.9], 0, 27.9),
        ([5.0, 5.0, 5.0], 1, 5.0),
    ],
)
def test_the_fastest_and_the_slowest_run_are_dropped(times, dropped, seconds):
    assert olympic_mean(times, dropped=dropped) == seconds


@pytest.mark.parametrize(("times", "dropped"), [([], 0), ([1.0, 2.0], 1), ([1.0] * 8, 4)])
def test_too_few_runs_to_drop_from_are_an_error(times, dropped):
    with pytest.raises(RuleError, match="to drop at each end"):
        olympic_mean(times, dropped=dropped)


@given(st.lists(SECONDS, min_size=3, max_size=20), st.randoms(use_true_random=False))
def test_the_olympic_mean_is_that_of_a_trimmed_sample_in_any_order(times, random):
    oracle = scipy.stats.trim_mean(times, 1.0 / len(times) + 1e-9)
    shuffled = random.sample(times, len(times))

    assert olympic_mean(times, dropped=1) == pytest.approx(oracle, rel=1e-9)
    assert olympic_mean(shuffled, dropped=1) == olympic_mean(times, dropped=1)


@pytest.mark.parametrize(("count", "dropped"), [(3, 1), (5, 1), (10, 1), (40, 4), (5, 0)])
def test_an_olympic_mean_scatters_less_than_the_mean_of_as_many_runs_as_it_is_worth(count, dropped):
    figures = np.sort(np.random.default_rng(5).normal(size=(20_000, count)), axis=1)
    variance = figures[:, dropped : count - dropped].mean(axis=1).var()

    assert 0.8 < variance * olympic_weight(count, dropped=dropped) < 1.03


@pytest.mark.parametrize(
    ("times", "window"),
    [
        # Source: MLPerf training_rules.adoc, "Benchmark results": N runs in a row out of M.
        # Windows of 3, olympic: 51, 52, 90. The middle one is 51, 52, 90.
        ([50.0, 51.0, 52.0, 90.0, 91.0], [51.0, 52.0, 90.0]),
        # Here they are 50, 60, 45: the first.
        ([50.0, 60.0, 40.0, 70.0, 45.0], [50.0, 60.0, 40.0]),
        # Of an even number the slower of the middle two.
        ([1.0, 2.0, 3.0, 4.0], [2.0, 3.0, 4.0]),
        # Olympic means: 51, 52 (the failure dropped), invalid. The median is the second.
        ([50.0, 51.0, 52.0, None, None], [51.0, 52.0, None]),
        ([9.0, None, None, None, 9.0], None),
        ([3.0, 1.0, 2.0], [3.0, 1.0, 2.0]),
        ([3.0], [3.0]),
    ],
)
def test_of_more_runs_the_window_with_the_median_score_counts(times, window):
    found = times[median_window(times, count=3, dropped=1)]
    if window is None:
        assert olympic_mean(found, dropped=1) is None
    else:
        assert found == window


@pytest.mark.parametrize(
    ("values", "percent"),
    [
        ([2.0, 4.0], 100 / 3),  # over the whole population
        ([], None),
        ([5.0], None),
        ([5.0, 5.0], 0.0),
    ],
)
def test_variation_takes_two_runs_and_a_time(values, percent):
    found = coefficient_of_variation_percent(values)
    assert found == (None if percent is None else pytest.approx(percent))


@given(st.lists(SECONDS, min_size=2, max_size=30))
def test_standard_deviations_are_those_of_the_statistics_module(values):
    assert standard_deviation(values, ddof=0) == pytest.approx(
        statistics.pstdev(values), rel=1e-6, abs=1e-6
    )
    assert standard_deviation(values, ddof=1) == pytest.approx(
        statistics.stdev(values), rel=1e-6, abs=1e-6
    )


@pytest.mark.parametrize(
    ("runs", "dropped"), [(3, 1), (4, 1), (10, 1), (14, 1), (15, 2), (20, 2), (25, 3), (30, 3)]
)
def test_a_tenth_is_dropped_at_each_end_and_at_least_one(runs, dropped):
    assert dropped_at_each_end(runs) == dropped


@pytest.mark.parametrize(
    ("runs", "seconds"),
    [
        ([4.0, 2.0, 9.0], 4.0),
        ([4.0, 2.0], None),
        # A miss counts as the slowest, and two of three leave no time.
        ([4.0, None, 2.0], 4.0),
        ([4.0, None, None], None),
        ([1.0, *[5.0] * 8, 100.0], 5.0),
    ],
)
def test_sealed_runs_are_measured_by_their_olympic_mean(runs, seconds):
    assert measured_seconds(runs) == seconds


@pytest.mark.parametrize(
    ("runs", "dropped", "c"),
    [(1, 0, None), (2, 1, None), (2, 0, 1 / 2), (3, 0, 1 / 3), (3, 1, 0.449), (10, 1, 0.105)],
)
def test_variance_of_the_olympic_mean_is_that_of_trimmed_means(runs, dropped, c):
    assert variance_of_mean(runs, dropped=dropped) == c


@pytest.mark.parametrize(
    ("runs", "dropped"), [(3, 1), (4, 1), (5, 2), (6, 1), (7, 2), (10, 2), (25, 3), (40, 4)]
)
def test_variance_of_the_olympic_mean_is_what_a_simulation_gives(runs, dropped):
    figures = np.sort(np.random.default_rng(0).normal(size=(100_000, runs)), axis=1)
    variance = figures[:, dropped : runs - dropped].mean(axis=1).var()
    assert variance_of_mean(runs, dropped=dropped) == pytest.approx(variance, rel=0.03)


def test_interval_of_a_claim_is_that_of_the_runs_that_were_scored(digits):
    """Source: MLPerf v0.5 NCF counts the first 50 of 100 runs."""
    curve = (Evaluation(1.0, 1.0, 50.0), Evaluation(8.0, 8.0, 98.0))

    def interval_of_first(count, rule):
        runs = [Run(f"{n}.log", "mlperf", curve, status="success", seed=n) for n in range(count)]
        benchmark = dataclasses.replace(digits, runs=rule)
        result = score(runs, benchmark, division="closed", price_usd_per_hour=None)
        return result.tta_low_seconds, result.tta_high_seconds

    alone = interval_of_first(50, RunsRule(50, 1))
    assert None not in alone
    assert interval_of_first(100, RunsRule(50, 1, started=100)) == alone
    assert interval_of_first(10, RunsRule(10, 1)) != interval_of_first(10, RunsRule(10, 3))


def test_interval_is_symmetric_on_the_log_scale():
    """Worked by hand: t(0.975, 9) = 2.262157, s = 5 %, c = 0.449 at three runs."""
    interval = interval_of(10.0, runs=3, spread=Spread(0.05, 9))
    half = math.exp(2.262157 * 0.05 * math.sqrt(0.449))
    assert interval.high == pytest.approx(10.0 * half, rel=1e-6)
    assert interval.low == pytest.approx(10.0 / half, rel=1e-6)
    for runs, spread in ((3, None), (1, Spread(0.05, 9)), (3, Spread(1e4, 9))):
        assert interval_of(10.0, runs=runs, spread=spread) is None


def test_spread_is_within_pools_and_needs_ten_runs():
    """Two pools far apart scatter no more for it: each holds x and x * e^0.2 five times."""
    pool = [1.0, math.exp(0.2)] * 3
    spread = pooled_spread([pool, [100 * seconds for seconds in pool]])
    assert spread.degrees_of_freedom == 10
    assert spread.stdev == pytest.approx(math.sqrt(12 * 0.01 / 10))
    assert pooled_spread([pool, pool[:3]]) is None
    assert pooled_spread([[1.0]] * 10) is None


def test_spread_is_never_below_the_resolution():
    """Equal times of ten seconds read off a step of one second: 0.1 / sqrt(12)."""
    resolution = resolution_of(step_seconds=1.0, seconds=10.0)
    assert resolution == pytest.approx(0.0288675, rel=1e-5)
    assert Spread(0.0, 9).at_least(resolution).stdev == resolution
    assert Spread(0.5, 9).at_least(resolution).stdev == 0.5
    assert resolution_of(step_seconds=None, seconds=10.0) == 0.0


@pytest.mark.parametrize(
    ("benchmark_id", "reached"),
    [
        ("mlperf-v5.1-bert", [True, False, False]),
        ("mlperf-v0.5-resnet", [True, True, False]),  # Its run_stop may have no status.
        ("cifar10", [True, True, True]),
    ],
)
def test_run_stop_says_whether_it_converged(make_run, make_benchmark, benchmark_id, reached):
    """Source: MLPerf training_rules.adoc, "Benchmark results"."""
    ends = [{"stop_seconds": 300.0, "status": "success"}]
    ends += [{"stop_seconds": 300.0}, {}]
    runs = [make_run([90.0, 94.5], clock="mlperf", seed=i, **end) for i, end in enumerate(ends)]
    benchmark = make_benchmark(clock="mlperf", benchmark_id=benchmark_id)

    assert [run.reached for run in score_of(runs, benchmark).runs] == reached


def test_a_speedrun_takes_the_times_of_a_log_without_phases(benchmarks_dir):
    """Its clock pauses at evaluations already, so the last one's time counts without a run_stop."""
    benchmark = load_benchmark(benchmarks_dir / "grammar.toml")

    def log(loss):
        at = partial(mllog_line, time_ms=1_790_000_000_000.0)
        late = partial(mllog_line, time_ms=1_790_000_079_712.0)
        lines = [at("submission_benchmark", "grammar"), at("submission_division", "open")]
        lines += [at("seed", round(loss * 1e5)), at("global_batch_size", 32), at("run_start")]
        lines += [late("eval_accuracy", loss, metadata={"epoch_num": 20})]
        return b"".join(lines)

    logs = {f"{loss}.log": log(loss) for loss in (0.781, 0.782, 0.783, 0.784, 0.785)}
    runs = [parse_run_log(text, name=name, benchmark=benchmark) for name, text in logs.items()]
    result = score(runs, benchmark, division="open", price_usd_per_hour=None)
    assert (result.tta_seconds, result.violations) == (pytest.approx(79.712), ())
    assert (result.at_stop.runs, result.at_stop.step) == (5, 20)
    assert result.at_stop.p_value < 0.01
