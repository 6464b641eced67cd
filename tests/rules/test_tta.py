"""Time to accuracy: clocks, curves, and where a run crosses its target."""

import json

import pytest

from finishline.rules.benchmarks.definition_tables import ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.errors import RuleError
from finishline.rules.run import (
    Clock,
    Evaluation,
    Ledger,
    Phase,
    Run,
    curve_row,
    ledger_of,
)
from finishline.rules.scoring.tta import (
    display_seconds,
    evaluation_interval_seconds,
    find_crossing,
    stopwatch,
    time_to_accuracy,
)

TOP1 = QualityTarget("top1Accuracy", 94.0, "percent", "higher")
LOSS = QualityTarget("loss", 0.8, "nats/byte", "lower")
FIRST = ReachRule("first_crossing")
DAWNBENCH = Clock("dawnbench")


def tta(run, target=TOP1, reach=FIRST):
    return time_to_accuracy(run, target, reach, clock=DAWNBENCH, division="open")


@pytest.mark.parametrize(
    ("qualities", "target", "reach", "seconds"),
    [
        # Source: dawn-bench-entries README, "CIFAR10 Training".
        ([80.0, 93.99, 94.2, 95.0], TOP1, FIRST, 30.0),
        ([93.999999, 94.0], TOP1, FIRST, 20.0),
        ([94.1, 60.0, 60.0], TOP1, FIRST, 10.0),
        ([93.0, 93.9], TOP1, FIRST, None),
        ([2.0, 0.81, 0.8, 0.7], LOSS, FIRST, 30.0),
        ([2.0, 0.81], LOSS, FIRST, None),
        # Sustained is reached at the last of so many in a row. A dip starts the count again.
        ([94.0, 93.0, 94.0, 94.0, 94.0], TOP1, ReachRule("sustained", 3), 50.0),
        ([94.0, 94.0, 94.0, 90.0], TOP1, ReachRule("sustained", 3), 30.0),
        ([94.0, 94.0, 90.0], TOP1, ReachRule("sustained", 3), None),
        ([94.0, 94.0], TOP1, ReachRule("sustained", 3), None),
        # At a fixed stop the last evaluation counts, whatever its quality.
        ([94.0, 95.0, 93.0], TOP1, ReachRule("fixed_stop"), 30.0),
    ],
)
def test_tta_is_first_evaluation_at_target(make_run, qualities, target, reach, seconds):
    assert tta(make_run(qualities), target, reach) == seconds


def test_the_first_in_log_order_counts_even_if_another_was_earlier():
    curve = (Evaluation(2.0, 50.0, 94.0), Evaluation(1.0, 40.0, 94.5))
    assert tta(Run("a.tsv", "dawnbench", curve)) == 50.0
    with pytest.raises(RuleError, match="without evaluations"):
        tta(Run("a.log", "dawnbench", ()))


@pytest.mark.parametrize(
    ("status", "preparation", "division", "seconds"),
    [
        # Source: MLPerf training_rules.adoc, "Benchmark results".
        ("success", None, "closed", 21.5),
        ("aborted", None, "closed", None),
        ("", None, "closed", None),
        ("SUCCESS", None, "closed", None),
        # 20 s more than closed allows, within open.
        ("success", 1820.0, "closed", 41.5),
        ("success", 1820.0, "open", 21.5),
    ],
)
def test_log_counts_to_its_run_stop(make_run, status, preparation, division, seconds):
    run = make_run(
        [90.0, 94.0],
        clock="mlperf",
        status=status,
        stop_seconds=21.5,
        preparation_seconds=preparation,
    )
    found = time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division=division)
    assert found == seconds


@pytest.mark.parametrize(
    ("times", "interval"),
    [
        ([7.0], None),
        ([7.0, 14.0], 7.0),
        ([0.0, 1.0, 3.0, 100.0, 104.0], 3.0),  # gaps 1, 2, 97, 4
        ([0.0, 1.0, 3.0, 100.0], 2.0),
    ],
)
def test_the_evaluation_interval_is_the_median_gap(times, interval):
    run = Run("a.log", "mlperf", tuple(Evaluation(None, t, 1.0) for t in times))
    assert evaluation_interval_seconds(run) == interval


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (27.976464, "0:00:28"),  # Kakao Brain, first of the published CIFAR10 board
        (44.442936, "0:00:45"),  # BaiduNet9P: rounding to the nearest would show 44
        (74.041416, "0:01:15"),  # David Page
        (173.958958, "0:02:54"),  # fast.ai
        (0.07 * 3600, "0:04:12"),  # 252.00000000000003
        (252.000001, "0:04:13"),
        (2755.0000000008, "0:45:56"),
        (0.0, "0:00:00"),
        (28.0, "0:00:28"),
        (59.0001, "0:01:00"),
        (3599.5, "1:00:00"),
        (3600.0, "1:00:00"),
        (100 * 3600.0, "100:00:00"),
    ],
)
def test_shown_times_are_rounded_up_as_dawnbench_published_them(seconds, shown):
    assert stopwatch(seconds) == shown


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        *((0.03, "0.0300 s"), (0.8531, "0.853 s"), (12.345, "12.3 s"), (59.98, "60.0 s")),
        *((60.0, "0:01:00"), (60.01, "0:01:01"), (0.0, "0 s")),
    ],
)
def test_a_time_below_a_minute_is_shown_in_seconds(seconds, shown):
    assert display_seconds(seconds) == shown


# Powers of two: each sum tells which phases went into it.
LEDGER = Ledger(init=1, compile=2, warmup=4, data=8, train=16, eval=32, checkpoint=64, idle=128)


@pytest.mark.parametrize(
    ("clock", "seconds"),
    [
        ("dawnbench", 1 + 2 + 4 + 8 + 16 + 64 + 128),  # everything but evaluation
        ("mlperf", 8 + 16 + 32 + 64 + 128),  # all after the free preparation, evaluation too
        ("speedrun", 8 + 16 + 64 + 128),  # as mlperf, paused at evaluations
    ],
)
def test_each_clock_counts_its_own_phases(clock, seconds):
    assert Clock(clock).seconds(LEDGER, division="closed") == seconds


HIGHER = QualityTarget("top1Accuracy", 94.0, "percent", "higher")
LOWER = QualityTarget("loss", 3.0, "loss", "lower")


def curve(qualities, *, interval=1.0):
    return [Evaluation(j * interval, 10.0 * j, q) for j, q in enumerate(qualities, 1)]


@pytest.mark.parametrize(
    ("curve", "target", "reach", "epoch", "fraction", "interval"),
    [
        (curve([90.0, 93.0, 95.0]), HIGHER, FIRST, 3.0, 2.5, 1.0),  # 94 is half way to 95
        (curve([90.0, 93.0, 94.0]), HIGHER, FIRST, 3.0, 3.0, 1.0),  # exactly at the target
        (curve([90.0, 93.0, 97.0, 80.0, 96.0]), HIGHER, FIRST, 3.0, 2.25, 1.0),
        (curve([5.0, 4.0, 2.0]), LOWER, FIRST, 3.0, 2.5, 1.0),
        (curve([90.0, 93.0, 95.0], interval=0.5), HIGHER, FIRST, 1.5, 1.25, 0.5),
        # A row counts from its first evaluation and is reached at its last.
        (curve([93.0, 95.0, 96.0, 96.5]), HIGHER, ReachRule("sustained", 3), 4.0, 3.5, 1.0),
        # A curve that stands still where it stops is at no share of the way.
        (curve([93.0, 95.0, 95.0]), HIGHER, ReachRule("fixed_stop", 1), 3.0, 3.0, 1.0),
        # Nothing lies before the first evaluation, nor between two of one epoch.
        (curve([95.0, 96.0]), HIGHER, FIRST, 1.0, 1.0, None),
        (
            [Evaluation(2.0, 10.0, 93.0), Evaluation(2.0, 11.0, 95.0)],
            *(HIGHER, FIRST, 2.0, 2.0, None),
        ),
    ],
)
def test_crossing_lies_between_two_evaluations(curve, target, reach, epoch, fraction, interval):
    found = find_crossing(curve, target, reach)
    assert (found.epoch, found.interval_epochs) == (epoch, interval)
    assert found.fraction == pytest.approx(fraction)


@pytest.mark.parametrize(
    "evaluations",
    [[], [Evaluation(1.0, 1.0, 90.0)], [Evaluation(None, 1.0, 95.0, 100)]],
    ids=["nothing", "below", "no epochs"],
)
def test_a_curve_that_never_gets_there_has_no_crossing(evaluations):
    assert find_crossing(evaluations, HIGHER, FIRST) is None


SPENT = Ledger(init=1.5, train=5.0, eval=0.5)


@pytest.mark.parametrize(
    ("evaluation", "row"),
    [
        # A row has the phases that took seconds, and ends before the ledger without one.
        (
            Evaluation(2.0, 5.5, 94.0, 128, SPENT, line=7),
            [2.0, 5.5, 94.0, 128, {"init": 1.5, "train": 5.0, "eval": 0.5}],
        ),
        (Evaluation(None, 5.5, 94.0), [None, 5.5, 94.0, None]),
        (Evaluation(0.0, 0.0, 10.0, 0, Ledger()), [0.0, 0.0, 10.0, 0, {}]),
    ],
)
def test_a_row_of_a_curve_keeps_its_ledger(evaluation, row):
    assert curve_row(evaluation) == row
    assert ledger_of(json.loads(json.dumps(row))) == evaluation.ledger


def test_seconds_are_added_to_one_phase_and_the_old_ledger_stays():
    before = Ledger(train=2.0, eval=1.0)
    assert before.plus(Phase.TRAIN, 0.5) == Ledger(train=2.5, eval=1.0)
    assert before == Ledger(train=2.0, eval=1.0)
    assert LEDGER.total() == 255
