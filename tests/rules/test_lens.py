"""Lenses, ghosts and words of evidence: figures that a board shows beside its ranks."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.benchmark import Benchmark, QualityTarget, ReachRule, RunsRule
from finishline.rules.errors import RuleError
from finishline.rules.logs import clock_of_log
from finishline.rules.ranking.evidence import (
    check_of,
    consequence,
    evidence_of,
    is_timed,
    may_be_measured,
)
from finishline.rules.ranking.ghost import (
    GhostPoint,
    epochs_per_evaluation,
    mean_curve,
    median_run,
    run_curve,
)
from finishline.rules.ranking.lens import (
    NO_LEDGER,
    Lens,
    LensTime,
    StoredRun,
    make_lens,
    result_of_set,
    time_of_run,
)
from finishline.rules.scoring.run import Clock, Evaluation, Ledger, Run, curve_row
from finishline.rules.scoring.scoring import score

MakeBenchmark = Callable[..., Benchmark]


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
    return StoredRun(name, reached, [curve_row(e) for e in evaluations])


def time_through(run, benchmark, *, clock=None, target=None):
    lens = make_lens(benchmark, clock=clock, target=target)
    assert lens is not None
    return time_of_run(run, lens, benchmark, division="closed")


@pytest.fixture
def on_mlperf(make_benchmark):
    """94 %, three runs of which one is dropped at each end, the clock of MLPerf."""
    return make_benchmark(clock="mlperf", count=3, dropped=1)


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [("dawnbench", 2 + 30), ("speedrun", 30)],
)
def test_another_clock_counts_other_seconds_of_the_ledger(clock, seconds, on_mlperf):
    assert time_through(stored(), on_mlperf, clock=clock) == LensTime(seconds, 3.0)


@pytest.mark.parametrize(
    ("target", "seconds", "epoch"),
    [(80.0, 22.0, 2.0), (80.01, 33.0, 3.0), (94.5, 55.0, 5.0), (95.01, None, None)],
)
def test_another_target_is_reached_at_the_first_evaluation_there(target, seconds, epoch, on_mlperf):
    assert time_through(stored(), on_mlperf, target=target) == LensTime(seconds, epoch)


def test_clock_and_target_change_together(on_mlperf):
    found = time_through(stored(), on_mlperf, clock="dawnbench", target=80.0)

    assert found == LensTime(2 + 20, 2.0)


def test_preparation_beyond_the_free_half_hour_is_on_the_clock(on_mlperf):
    slow = stored(init=1800.0 + 7.0)

    assert time_through(slow, on_mlperf, target=80.0).seconds == pytest.approx(7 + 22)


def test_a_log_without_a_ledger_is_seen_on_its_own_clock_alone(on_mlperf):
    silent = stored(told=False)

    assert time_through(silent, on_mlperf, target=80.0) == LensTime(22.0, 2.0)
    unmeasured = time_through(silent, on_mlperf, clock="dawnbench")
    assert unmeasured == LensTime(None, 3.0, NO_LEDGER)
    assert unmeasured.reason == "no ledger: the log does not separate evaluation time"


def test_a_curve_of_dawnbench_counts_on_the_clock_of_dawnbench(make_benchmark):
    curve = stored(name="entry.tsv", told=False)

    assert time_through(curve, make_benchmark(), target=80.0).seconds == 22.0
    assert time_through(curve, make_benchmark(), clock="mlperf").reason == NO_LEDGER
    assert (clock_of_log("Entry.TSV"), clock_of_log("run_0.log")) == ("dawnbench", "mlperf")


def test_a_row_stored_before_ledgers_were_kept_is_one_without(on_mlperf):
    old = StoredRun("run.log", True, [[1.0, 11.0, 95.0, None]])

    assert time_through(old, on_mlperf, clock="speedrun").reason == NO_LEDGER
    assert time_through(old, on_mlperf, target=90.0).seconds == 11.0


def test_a_run_that_failed_by_its_own_word_reaches_no_more_on_another_clock(on_mlperf):
    failed = stored(reached=False)

    assert time_through(failed, on_mlperf, clock="dawnbench") == LensTime(None)
    assert time_through(failed, on_mlperf, target=80.0).seconds == 22.0


def test_a_run_without_a_time_for_want_of_a_ledger_is_not_one_that_failed(make_benchmark):
    """The benchmark is on DAWNBench's clock, the log on MLPerf's: no time, whatever it reached."""
    silent = stored(told=False, reached=False)

    assert time_through(silent, make_benchmark(), clock="mlperf").seconds == 33.0


def test_a_run_without_an_evaluation_reaches_nothing(on_mlperf):
    assert time_through(StoredRun("a.log", False, []), on_mlperf, target=1.0) == LensTime(None)


def test_sustained_stays_sustained(make_benchmark):
    benchmark = make_benchmark(reach="sustained", evaluations=2, clock="mlperf")

    assert time_through(stored(), benchmark, target=80.0) == LensTime(33.0, 3.0)


def test_where_less_is_better_the_target_is_a_limit(on_mlperf):
    loss = QualityTarget("loss", 0.5, "loss", "lower")
    run = stored(qualities=[3.0, 2.0, 1.0])

    assert time_through(run, replace(on_mlperf, target=loss), target=2.0).seconds == 22.0


def test_the_own_clock_and_target_are_no_lens(on_mlperf):
    assert make_lens(on_mlperf, clock=None, target=None) is None
    assert make_lens(on_mlperf, clock="mlperf", target=94.0) is None
    assert make_lens(on_mlperf, clock="speedrun", target=94.0) == Lens(
        Clock("speedrun"), on_mlperf.target, own_target=True
    )


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, -0.5, 100.5])
def test_a_target_outside_the_range_of_the_metric_is_refused(value, on_mlperf):
    with pytest.raises(RuleError) as raised:
        make_lens(on_mlperf, clock=None, target=value, field="query.target")
    assert raised.value.field == "query.target"
    assert raised.value.expected == "a top1Accuracy from 0 to 100 (percent)"


@pytest.mark.parametrize(
    ("unit", "highest", "expected"),
    [
        ("fraction", 1.0, "from 0 to 1 "),
        ("BLEU", 100.0, "from 0 to 100 "),
        ("nats/token", 1e9, "at least 0 "),
    ],
)
def test_the_range_is_that_of_the_unit(unit, highest, expected, on_mlperf):
    benchmark = replace(on_mlperf, target=QualityTarget("metric", 0.5, unit, "higher"))

    assert make_lens(benchmark, clock=None, target=highest) is not None
    for outside in (-0.1, math.inf):
        with pytest.raises(RuleError) as raised:
            make_lens(benchmark, clock=None, target=outside)
        assert expected in (raised.value.expected or "")


def test_a_clock_that_is_none_is_refused(on_mlperf):
    with pytest.raises(RuleError) as raised:
        make_lens(on_mlperf, clock="sundial", target=None)
    assert (raised.value.field, raised.value.expected) == (
        "clock",
        "dawnbench or mlperf or speedrun",
    )


def test_where_all_runs_stop_at_one_step_there_is_no_other_target(make_benchmark):
    benchmark = make_benchmark(reach="fixed_stop", clock="mlperf")

    with pytest.raises(RuleError, match="stops at the same step"):
        make_lens(benchmark, clock=None, target=80.0)
    assert make_lens(benchmark, clock=None, target=94.0) is None
    assert time_through(stored(), benchmark, clock="speedrun") == LensTime(50.0, 5.0)


def result_through(times, benchmark, **others):
    lens = make_lens(benchmark, clock="speedrun", target=others.get("target"))
    assert lens is not None
    listed = [LensTime(t, None if t is None else 8.0) for t in times]
    return result_of_set(listed, lens, benchmark, factor=others.get("factor", 1.0))


def test_a_set_is_averaged_as_the_benchmark_says(on_mlperf):
    found = result_through([10.0, 12.0, 20.0], on_mlperf)

    assert (found.tta_seconds, found.raw_tta_seconds, found.epochs_to_target) == (12.0, 12.0, 8.0)
    assert found.runs == (10.0, 12.0, 20.0)
    assert found.cv_percent == pytest.approx(np.std([10, 12, 20]) / 14 * 100)
    assert result_through([10.0, None, 20.0], on_mlperf).tta_seconds == 20.0
    failed = result_through([10.0, None, None], on_mlperf)
    assert (failed.tta_seconds, failed.runs, failed.reason) == (None, (10.0,), None)
    assert result_through([10.0, 12.0], on_mlperf).tta_seconds is None


def test_the_factor_of_convergence_holds_on_another_clock_but_at_no_other_target(on_mlperf):
    raised = result_through([10.0, 12.0, 20.0], on_mlperf, factor=1.5)
    plain = result_through([10.0, 12.0, 20.0], on_mlperf, factor=1.5, target=80.0)

    assert (raised.tta_seconds, raised.raw_tta_seconds) == (18.0, 12.0)
    assert raised.runs == (15.0, 18.0, 30.0)
    assert (plain.tta_seconds, plain.runs) == (12.0, (10.0, 12.0, 20.0))


def test_one_run_that_nobody_timed_leaves_the_set_without_a_time(on_mlperf):
    lens = make_lens(on_mlperf, clock="speedrun", target=None)
    assert lens is not None
    times = [LensTime(10.0, 8.0), LensTime(None, 8.0, NO_LEDGER), LensTime(12.0, 8.0)]

    found = result_of_set(times, lens, on_mlperf, factor=1.0)

    assert (found.tta_seconds, found.runs, found.reason) == (None, (), NO_LEDGER)


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
    official = score(runs, benchmark, division="closed", price_usd_per_hour=None)
    expected = score(
        runs, benchmark, division="closed", price_usd_per_hour=None, clock=Clock(clock)
    )
    lens = make_lens(benchmark, clock=clock, target=None)
    assert lens is not None
    times = [
        time_of_run(
            StoredRun(run.name, scored.reached, [curve_row(e) for e in run.evaluations]),
            lens,
            benchmark,
            division="closed",
        )
        for run, scored in zip(runs, official.runs, strict=True)
    ]

    found = result_of_set(times, lens, benchmark, factor=1.0)

    assert [t.seconds for t in times] == [run.tta_seconds for run in expected.runs]
    for name in (
        "tta_seconds",
        "cv_percent",
        "epochs_to_target",
    ):
        assert getattr(found, name) == getattr(expected, name), name


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
        GhostPoint(index=1, epoch=1, seconds=2.0, quality=60.0, runs=3),
        GhostPoint(index=2, epoch=2, seconds=3.0, quality=85.0, runs=2),
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


WELL = {
    "status": "verified",
    "kind": "train",
    "trained_with": "reference",
    "same_class": True,
    "timed": True,
}


def test_archive_is_published_whatever_was_replayed():
    assert evidence_of(archive=True, measured=True) == "published"
    assert evidence_of(archive=False, measured=True) == "measured"
    assert evidence_of(archive=False, measured=False) == "claimed"


@pytest.mark.parametrize(
    ("status", "check"),
    [
        ("claimed", "none"),
        ("verifying", "queued"),
        ("verified", "epochs_agree"),
        ("inconclusive", "undecided"),
        ("rejected", "contradicted"),
    ],
)
def test_check_follows_the_verdict_of_a_claim(status, check):
    assert check_of("claimed", status) == check
    assert check_of("measured", status) is None
    assert check_of("published", status) is None


def test_check_tells_running_from_queued_and_uncalibrated_from_agreeing():
    assert check_of("claimed", "verifying", running=True) == "running"
    assert check_of("claimed", "verified", uncalibrated=True) == "undecided"
    assert check_of("claimed", "rejected", uncalibrated=True) == "contradicted"


@pytest.mark.parametrize(
    "otherwise",
    [
        {"status": "inconclusive"},
        {"kind": "inference"},
        {"trained_with": "own"},
        {"same_class": False},
        {"timed": False},
    ],
)
def test_only_what_was_trained_on_a_quiet_worker_of_its_class_is_measured(otherwise):
    assert may_be_measured(**WELL)
    assert not may_be_measured(**WELL | otherwise)


@pytest.mark.parametrize("code", ["hardware_differs", "worker_drifted", "noisy_host"])
def test_replay_is_not_timed_where_its_reasons_say_so(code):
    agrees = {"code": "convergence_agrees"}
    assert is_timed([agrees])
    assert not is_timed([agrees, {"code": code}])


MEASURED = {"evidence": "measured", "check": None}


AGREES = {"evidence": "claimed", "check": "epochs_agree"}


CLAIMED = {"evidence": "claimed", "check": "none"}


@pytest.mark.parametrize(
    ("before", "after", "words"),
    [
        (MEASURED, CLAIMED, "drops from measured to claimed"),
        (MEASURED, AGREES, "drops from measured to claimed · epochs agree"),
        (AGREES, MEASURED, "rises from claimed to measured"),
        (CLAIMED, AGREES, "changes from claimed to claimed · epochs agree"),
        (MEASURED, MEASURED, "stays measured"),
    ],
)
def test_a_decision_says_what_becomes_of_the_row(before, after, words):
    assert consequence(before, after) == words
