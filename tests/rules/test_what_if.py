"""What-if views, ghosts and words of evidence: figures that a board shows beside its ranks."""

from dataclasses import replace
from json import dumps

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.definition_tables import ReachRule, RunsRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.logs import clock_of_log
from finishline.rules.run import Clock, Evaluation, Ledger, Run, curve_row
from finishline.rules.scoring.scoring import score
from server.boards.live import (
    GhostPointView,
    epochs_per_evaluation,
    mean_curve,
    median_run,
    run_curve,
)
from server.boards.query import WhatIf, make_what_if
from server.boards.what_if import NO_LEDGER, RunTime, StoredRun, time_of_run, time_of_set

QUALITIES = [50.0, 80.0, 94.0, 93.0, 95.0]


def evaluation(number, quality, *, pace=10.0, init=2.0):
    """`pace` seconds of training and one of evaluation an epoch, after `init` seconds."""
    ledger = Ledger(init=init, train=number * pace, eval=float(number))
    return Evaluation(float(number), number * (pace + 1), quality, 100 * number, ledger)


def stored(*, name="run.log", qualities=QUALITIES, told=True, **others):
    reached = others.pop("reached", True)
    evaluations = [evaluation(j, q, **others) for j, q in enumerate(qualities, 1)]
    if not told:
        evaluations = [replace(e, ledger=None) for e in evaluations]
    return StoredRun(name, reached, dumps([curve_row(e) for e in evaluations]))


def time_through(run, benchmark, *, clock=None, target=None):
    what_if = make_what_if(benchmark, clock=clock, target=target)
    return time_of_run(run, what_if, benchmark, division="closed")


@pytest.fixture
def on_mlperf(make_benchmark):
    """94 %, three runs of which one is dropped at each end, the clock of MLPerf."""
    return make_benchmark(clock="mlperf", count=3, dropped=1)


WITHOUT_LEDGER = StoredRun("run.log", True, "[[1.0, 11.0, 95.0, null]]")


@pytest.mark.parametrize(
    ("run", "query", "time"),
    [
        (stored(), {"clock": "dawnbench"}, RunTime(2 + 30, 3.0)),
        (stored(), {"clock": "speedrun"}, RunTime(30, 3.0)),
        (stored(), {"target": 80.0}, RunTime(22.0, 2.0)),
        (stored(), {"target": 80.01}, RunTime(33.0, 3.0)),
        (stored(), {"target": 94.5}, RunTime(55.0, 5.0)),
        (stored(), {"target": 95.01}, RunTime(None, None)),
        (stored(), {"clock": "dawnbench", "target": 80.0}, RunTime(2 + 20, 2.0)),
        # Preparation beyond the free half hour is on the clock.
        (stored(init=1800.0 + 7.0), {"target": 80.0}, RunTime(7 + 22, 2.0)),
        # A log without a ledger is seen on its own clock alone.
        (stored(told=False), {"target": 80.0}, RunTime(22.0, 2.0)),
        (stored(told=False), {"clock": "dawnbench"}, RunTime(None, 3.0, NO_LEDGER)),
        (WITHOUT_LEDGER, {"clock": "speedrun"}, RunTime(None, 1.0, NO_LEDGER)),
        (WITHOUT_LEDGER, {"target": 90.0}, RunTime(11.0, 1.0)),
        # A run that failed by its own word reaches no more on another clock.
        (stored(reached=False), {"clock": "dawnbench"}, RunTime(None)),
        (stored(reached=False), {"target": 80.0}, RunTime(22.0, 2.0)),
        (StoredRun("a.log", False, "[]"), {"target": 1.0}, RunTime(None)),
    ],
)
def test_another_clock_and_target_count_other_seconds(run, query, time, on_mlperf):
    assert time_through(run, on_mlperf, **query) == time
    assert NO_LEDGER == "no ledger: the log does not separate evaluation time"


def test_a_curve_of_dawnbench_counts_on_the_clock_of_dawnbench(make_benchmark):
    curve = stored(name="entry.tsv", told=False)

    assert time_through(curve, make_benchmark(), target=80.0).seconds == 22.0
    assert time_through(curve, make_benchmark(), clock="mlperf").reason == NO_LEDGER
    clocks = [clock_of_log(name, make_benchmark()) for name in ("Entry.TSV", "run_0.log")]
    assert clocks == ["dawnbench", "mlperf"]
    # The log is on MLPerf's clock: it had no time for want of a ledger, whatever it reached.
    silent = stored(told=False, reached=False)
    assert time_through(silent, make_benchmark(), clock="mlperf").seconds == 33.0


def test_a_speedrun_board_takes_the_times_of_a_log_without_a_ledger(make_benchmark):
    speedrun = make_benchmark(clock="speedrun")
    assert time_through(WITHOUT_LEDGER, speedrun, target=90.0) == RunTime(11.0, 1.0)
    assert time_through(WITHOUT_LEDGER, speedrun, clock="mlperf") == RunTime(None, 1.0, NO_LEDGER)


def test_other_targets_are_reached_by_the_rule_of_the_benchmark(make_benchmark, on_mlperf):
    sustained = make_benchmark(reach="sustained", evaluations=2, clock="mlperf")
    assert time_through(stored(), sustained, target=80.0) == RunTime(33.0, 3.0)
    falling = replace(on_mlperf, target=QualityTarget("loss", 0.5, "loss", "lower"))
    run = stored(qualities=[3.0, 2.0, 1.0])
    assert time_through(run, falling, target=2.0).seconds == 22.0


def test_the_own_clock_and_target_are_no_what_if(on_mlperf):
    assert make_what_if(on_mlperf, clock=None, target=None) is None
    assert make_what_if(on_mlperf, clock="mlperf", target=94.0) is None
    assert make_what_if(on_mlperf, clock="speedrun", target=94.0) == WhatIf(
        Clock("speedrun"), on_mlperf.target, own_target=True
    )


def test_a_target_may_be_negative_where_the_metric_may_be(on_mlperf):
    benchmark = replace(on_mlperf, target=QualityTarget("score", -5.0, "score", "higher"))
    assert make_what_if(benchmark, clock=None, target=-4.0).target.value == -4.0


def test_where_all_runs_stop_at_one_step_there_is_no_other_target(make_benchmark):
    benchmark = make_benchmark(reach="fixed_stop", clock="mlperf")

    with pytest.raises(RuleError, match="stops at the same step"):
        make_what_if(benchmark, clock=None, target=80.0)
    assert make_what_if(benchmark, clock=None, target=94.0) is None
    assert time_through(stored(), benchmark, clock="speedrun") == RunTime(50.0, 5.0)


def result_through(times, benchmark, *, target=None, factor=1.0):
    what_if = make_what_if(benchmark, clock="speedrun", target=target)
    listed = [t if isinstance(t, RunTime) else RunTime(t, t and 8.0) for t in times]
    return time_of_set(listed, what_if, benchmark, factor=factor)


def test_a_set_is_averaged_as_the_benchmark_says(on_mlperf):
    found = result_through([10.0, 12.0, 20.0], on_mlperf)

    assert found == {
        "tta_seconds": 12.0,
        "raw_tta_seconds": 12.0,
        "cv_percent": pytest.approx(np.std([10, 12, 20]) / 14 * 100),
        "epochs_to_target": 8.0,
        "runs_reached": 3,
    }
    assert result_through([10.0, None, 20.0], on_mlperf)["tta_seconds"] == 20.0
    failed = result_through([10.0, None, None], on_mlperf)
    assert (failed["tta_seconds"], failed["runs_reached"]) == (None, 1)
    assert result_through([10.0, 12.0], on_mlperf)["tta_seconds"] is None
    # One run that nobody timed leaves the set without a time.
    silent = result_through([10.0, RunTime(None, 8.0, NO_LEDGER), 12.0], on_mlperf)
    assert (silent["tta_seconds"], silent["runs_reached"]) == (None, 0)


def test_the_factor_of_convergence_holds_on_another_clock_but_at_no_other_target(on_mlperf):
    raised = result_through([10.0, 12.0, 20.0], on_mlperf, factor=1.5)
    plain = result_through([10.0, 12.0, 20.0], on_mlperf, factor=1.5, target=80.0)

    assert (raised["tta_seconds"], raised["raw_tta_seconds"]) == (18.0, 12.0)
    assert plain["tta_seconds"] == 12.0


@st.composite
def sets_of_runs(draw):
    """Three runs of an MLPerf log each, that succeeded just if they reached 94 %."""
    runs = []
    for index in range(3):
        qualities = draw(
            st.lists(st.sampled_from([50.0, 93.9, 94.0, 97.0]), min_size=1, max_size=6)
        )
        pace = draw(st.floats(0.5, 100.0))
        evaluations = tuple(
            evaluation(j, q, pace=pace, init=draw(st.sampled_from([0.0, 5.0, 2000.0])))
            for j, q in enumerate(qualities, 1)
        )
        reached = max(qualities) >= 94.0
        runs.append(
            Run(
                name=f"run_{index}.log",
                clock="mlperf",
                evaluations=evaluations,
                status="success" if reached else "aborted",
                stop_seconds=evaluations[-1].seconds,
                seed=index,
                ledger=evaluations[-1].ledger,
            )
        )
    return runs


@pytest.mark.parametrize("clock", ["dawnbench", "speedrun"])
@given(runs=sets_of_runs())
def test_stored_curves_give_what_the_raw_logs_give_under_that_clock(runs, clock, digits):
    benchmark = replace(
        digits,
        target=replace(digits.target, value=94.0),
        clock=Clock("mlperf"),
        reach=ReachRule("first_crossing"),
        runs=RunsRule(3, 1),
    )
    settings = {"division": "closed", "price_usd_per_hour": None}
    official = score(runs, benchmark, **settings)
    expected = score(runs, benchmark, clock=Clock(clock), **settings)
    times = [
        time_through(
            StoredRun(run.name, scored.reached, dumps([curve_row(e) for e in run.evaluations])),
            benchmark,
            clock=clock,
        )
        for run, scored in zip(runs, official.runs, strict=True)
    ]

    what_if = make_what_if(benchmark, clock=clock, target=None)
    found = time_of_set(times, what_if, benchmark, factor=1.0)

    assert [t.seconds for t in times] == [run.tta_seconds for run in expected.runs]
    for name in ("tta_seconds", "cv_percent", "epochs_to_target"):
        assert found[name] == getattr(expected, name), name


def curve(*points):
    return [Evaluation(epoch=e, seconds=s, quality=q) for e, s, q in points]


def test_the_median_run_is_one_that_was_made():
    assert median_run([9.0, None, 7.0, 8.0]) == 3
    assert median_run([9.0, 7.0, None, 8.0, 6.0]) == 1  # The faster of the two in the middle.
    assert median_run([None, None]) is None
    assert median_run([]) is None


def test_the_mean_curve_ends_where_most_runs_have_ended():
    runs = [
        curve((1, 1.0, 50.0), (2, 2.0, 80.0), (3, 3.0, 95.0)),
        curve((1, 2.0, 60.0), (2, 4.0, 90.0)),
        curve((1, 3.0, 70.0)),
    ]
    assert mean_curve(runs) == [
        GhostPointView(index=1, epoch=1, seconds=2.0, quality=60.0, runs=3),
        GhostPointView(index=2, epoch=2, seconds=3.0, quality=85.0, runs=2),
    ]
    assert mean_curve([]) == []
    # Of two runs one is half: the curve goes on with it.
    assert [point.runs for point in mean_curve(runs[1:])] == [2, 1]


def test_evaluations_are_set_beside_those_of_the_same_epoch():
    every_second_epoch = curve((1.0, 10.0, 50.0), (2.0, 20.0, 80.0), (5.999, 60.0, 95.0))
    points = run_curve(every_second_epoch, epochs_per_evaluation=2.0)
    assert [point.index for point in points] == [None, 1, 3]
    assert [point.seconds for point in points] == [10.0, 20.0, 60.0]
    before_the_first = run_curve(curve((0.001, 1.0, 50.0)), epochs_per_evaluation=2.0)
    assert [point.index for point in before_the_first] == [None]


@pytest.mark.parametrize(("epoch", "each"), [(None, 1.0), (7.0, None)])
def test_evaluations_without_epochs_are_counted(epoch, each):
    points = run_curve(curve((epoch, 1.0, 50.0), (epoch, 2.0, 60.0)), epochs_per_evaluation=each)
    assert [point.index for point in points] == [1, 2]


def test_epochs_between_evaluations_come_from_the_last():
    points = mean_curve([curve((0.5, 1.0, 50.0), (1.0, 2.0, 60.0))])
    assert epochs_per_evaluation(points) == 0.5
    assert epochs_per_evaluation(mean_curve([curve((None, 1.0, 50.0))])) is None
    assert epochs_per_evaluation([]) is None
