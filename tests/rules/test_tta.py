"""Time to accuracy: clocks, curves, and where a run crosses its target."""

import dataclasses
import json
from dataclasses import FrozenInstanceError, asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.benchmarks.benchmark import QualityTarget, ReachRule
from finishline.rules.errors import RuleError
from finishline.rules.scoring.run import (
    CLOCK_NAMES,
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
    excess_preparation_seconds,
    find_crossing,
    first_evaluation_at_target,
    time_to_accuracy,
)

TOP1 = QualityTarget("top1Accuracy", 94.0, "percent", "higher")


LOSS = QualityTarget("loss", 0.8, "nats/byte", "lower")


FIRST = ReachRule("first_crossing")


DAWNBENCH = Clock("dawnbench")


def tta(run, target=TOP1, reach=FIRST):
    return time_to_accuracy(run, target, reach, clock=DAWNBENCH, division="open")


def test_tta_is_first_evaluation_at_target(make_run):
    """Source: dawn-bench-entries README, "CIFAR10 Training"."""
    assert tta(make_run([80.0, 93.99, 94.2, 95.0], seconds_per_epoch=100.0)) == 300.0


def test_exactly_at_the_target_counts(make_run):
    assert tta(make_run([93.999999, 94.0])) == 20.0


def test_later_dips_below_the_target_do_not_matter(make_run):
    assert tta(make_run([94.1, 60.0, 60.0])) == 10.0


def test_a_run_that_never_reaches_the_target_has_no_time(make_run):
    assert tta(make_run([93.0, 93.9])) is None


def test_the_first_in_log_order_counts_even_if_another_was_earlier():
    run = Run(
        "a.tsv",
        "dawnbench",
        (Evaluation(2.0, 50.0, 94.0), Evaluation(1.0, 40.0, 94.5)),
    )

    assert tta(run) == 50.0


def test_for_a_loss_lower_is_better_and_the_target_itself_counts(make_run):
    assert tta(make_run([2.0, 0.81, 0.8, 0.7]), LOSS) == 30.0
    assert tta(make_run([2.0, 0.81]), LOSS) is None


def test_a_run_without_evaluations_is_an_error():
    with pytest.raises(RuleError, match="without evaluations"):
        tta(Run("a.log", "dawnbench", ()))


@pytest.mark.parametrize(
    ("qualities", "epoch"),
    [
        ([94.0, 93.0, 94.0, 94.0, 94.0], 5.0),  # a dip starts the count again
        ([94.0, 94.0, 94.0, 90.0], 3.0),
        ([94.0, 94.0, 90.0], None),
        ([94.0, 94.0], None),
    ],
)
def test_sustained_is_reached_at_the_last_of_so_many_in_a_row(make_run, qualities, epoch):
    found = first_evaluation_at_target(
        make_run(qualities).evaluations, TOP1, ReachRule("sustained", 3)
    )

    assert (found.epoch if found else None) == epoch


def test_at_a_fixed_stop_the_last_evaluation_counts_whatever_its_quality(make_run):
    assert tta(make_run([94.0, 95.0, 93.0]), reach=ReachRule("fixed_stop")) == 30.0


def test_a_log_with_a_run_stop_counts_to_its_run_stop(make_run):
    """Source: MLPerf training_rules.adoc, "Benchmark results"."""
    run = make_run([90.0, 94.0], clock="mlperf", status="success", stop_seconds=21.5)

    assert time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division="closed") == 21.5


@pytest.mark.parametrize("status", ["aborted", "", "SUCCESS"])
def test_a_run_that_did_not_stop_with_success_has_no_time(make_run, status):
    run = make_run([94.0], clock="mlperf", status=status, stop_seconds=11.0)

    assert time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division="closed") is None


def test_preparation_beyond_the_allowance_is_added_on_the_mlperf_clock(make_run):
    run = make_run(
        [94.0],
        clock="mlperf",
        status="success",
        stop_seconds=11.0,
        preparation_seconds=1820.0,
    )

    closed = time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division="closed")
    opened = time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division="open")

    assert (closed, opened) == (31.0, 11.0)  # 20 more than closed, within open


def test_on_another_clock_the_ledger_of_that_evaluation_decides():
    ledger = Ledger(init=5.0, train=20.0, eval=3.0)
    run = Run(
        "a.log",
        "mlperf",
        (
            Evaluation(1.0, 12.0, 90.0, ledger=Ledger(init=5.0, train=10.0, eval=1.0)),
            Evaluation(2.0, 23.0, 94.0, ledger=ledger),
            Evaluation(3.0, 34.0, 95.0, ledger=Ledger(init=5.0, train=30.0, eval=4.0)),
        ),
        status="success",
        stop_seconds=34.5,
    )

    assert tta(run) == 25.0


def test_on_another_clock_without_a_ledger_nobody_measured_it(make_run):
    assert tta(make_run([94.0], clock="mlperf")) is None


@pytest.mark.parametrize(
    ("qualities", "interval"), [([1.0], None), ([1.0, 2.0], 7.0), ([1.0] * 6, 7.0)]
)
def test_the_evaluation_interval_is_the_median_gap(make_run, qualities, interval):
    assert evaluation_interval_seconds(make_run(qualities, seconds_per_epoch=7.0)) == interval


def test_one_long_gap_does_not_move_the_evaluation_interval():
    times = [0.0, 1.0, 3.0, 100.0, 104.0]  # gaps 1, 2, 97, 4: the median is 3
    run = Run("a.log", "mlperf", tuple(Evaluation(None, t, 1.0) for t in times))

    assert evaluation_interval_seconds(run) == 3.0
    fewer = dataclasses.replace(run, evaluations=run.evaluations[:4])  # 1, 2, 97
    assert evaluation_interval_seconds(fewer) == 2.0


@pytest.mark.parametrize(("clock", "excess"), [("mlperf", 600.0), ("dawnbench", 0.0)])
def test_preparation_beyond_the_allowance_counts_on_the_clock_of_mlperf_alone(clock, excess):
    """40 minutes, of which 30 are free in the closed division."""
    run = Run("a.log", "mlperf", (), preparation_seconds=2400.0)

    assert excess_preparation_seconds(run, Clock(clock), "closed") == excess


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (27.976464, "0:00:28"),  # Kakao Brain, first of the published CIFAR10 board
        (44.442936, "0:00:45"),  # BaiduNet9P: rounding to the nearest would show 44
        (74.041416, "0:01:15"),  # David Page
        (173.958958, "0:02:54"),  # fast.ai
        (0.07 * 3600, "0:04:12"),  # 252.00000000000003
        (252.000001, "0:04:13"),
        (0.0, "0:00:00"),
        (28.0, "0:00:28"),
        (59.0001, "0:01:00"),
        (3599.5, "1:00:00"),
        (3600.0, "1:00:00"),
        (100 * 3600.0, "100:00:00"),
    ],
)
def test_shown_times_are_rounded_up_as_dawnbench_published_them(seconds, shown):
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


@pytest.mark.parametrize(
    ("division", "preparation", "counted"),
    [
        ("closed", 1800.0, 0.0),  # exactly 30 minutes are free
        ("closed", 1800.5, 0.5),
        ("open", 4 * 3600.0, 0.0),  # exactly 4 hours are free
        ("open", 4 * 3600.0 + 60, 60.0),
    ],
)
def test_on_the_mlperf_clock_only_preparation_beyond_the_allowance_counts(
    division, preparation, counted
):
    ledger = Ledger(init=preparation - 200, compile=150, warmup=50, train=10)

    assert Clock("mlperf").seconds(ledger, division=division) == pytest.approx(10 + counted)


@pytest.mark.parametrize("clock", CLOCK_NAMES)
def test_an_empty_ledger_is_no_time_on_any_clock(clock):
    assert Clock(clock).seconds(Ledger(), division="closed") == 0.0


@given(st.sampled_from(CLOCK_NAMES), st.sampled_from(list(Phase)), st.floats(0, 1e6))
def test_more_time_in_a_phase_never_makes_a_run_faster(clock, phase, seconds):
    before = Clock(clock).seconds(LEDGER, division="closed")

    after = Clock(clock).seconds(LEDGER.plus(phase, seconds), division="closed")

    assert before <= after <= before + seconds + 1e-9


HIGHER = QualityTarget("top1Accuracy", 94.0, "percent", "higher")


LOWER = QualityTarget("loss", 3.0, "loss", "lower")


def curve(qualities, *, interval=1.0):
    return [Evaluation(j * interval, 10.0 * j, q) for j, q in enumerate(qualities, 1)]


@pytest.mark.parametrize(
    ("qualities", "target", "fraction"),
    [
        ([90.0, 93.0, 95.0], HIGHER, 2.5),  # 94 lies half way from 93 to 95
        ([90.0, 93.0, 94.0], HIGHER, 3.0),  # exactly at the target
        ([90.0, 93.0, 97.0, 80.0, 96.0], HIGHER, 2.25),  # the first crossing counts
        ([5.0, 4.0, 2.0], LOWER, 2.5),
    ],
)
def test_the_crossing_lies_on_the_line_between_two_evaluations(qualities, target, fraction):
    found = find_crossing(curve(qualities), target, FIRST)

    assert found is not None
    assert found.fraction == pytest.approx(fraction)
    assert (found.epoch, found.interval_epochs) == (3.0, 1.0)


def test_the_interval_is_that_of_the_evaluations():
    found = find_crossing(curve([90.0, 93.0, 95.0], interval=0.5), HIGHER, FIRST)

    assert found is not None
    assert (found.epoch, found.fraction, found.interval_epochs) == (1.5, 1.25, 0.5)


def test_a_row_counts_from_its_first_evaluation_and_is_reached_at_its_last():
    found = find_crossing(curve([93.0, 95.0, 96.0, 96.5]), HIGHER, ReachRule("sustained", 3))

    assert found is not None
    assert (found.epoch, found.fraction) == (4.0, 3.5)


def test_a_fixed_stop_crosses_nothing():
    """A curve that stands still where it stops is at no share of the way."""
    found = find_crossing(curve([93.0, 95.0, 95.0]), HIGHER, ReachRule("fixed_stop", 1))
    assert found is not None
    assert (found.epoch, found.fraction) == (3.0, 3.0)


def test_nothing_lies_before_the_first_evaluation():
    found = find_crossing(curve([95.0, 96.0]), HIGHER, FIRST)

    assert found is not None
    assert (found.epoch, found.fraction, found.interval_epochs) == (1.0, 1.0, None)


def test_between_two_evaluations_of_one_epoch_there_is_no_line():
    twice = [Evaluation(2.0, 10.0, 93.0), Evaluation(2.0, 11.0, 95.0)]

    found = find_crossing(twice, HIGHER, FIRST)

    assert found is not None
    assert (found.epoch, found.fraction, found.interval_epochs) == (2.0, 2.0, None)


@pytest.mark.parametrize("evaluations", [[], [Evaluation(1.0, 1.0, 90.0)]])
def test_a_curve_that_never_gets_there_has_no_crossing(evaluations):
    assert find_crossing(evaluations, HIGHER, FIRST) is None


def test_without_epochs_there_is_no_crossing():
    assert find_crossing([Evaluation(None, 1.0, 95.0, 100)], HIGHER, FIRST) is None


def test_a_row_has_the_phases_that_took_seconds():
    evaluation = Evaluation(2.0, 5.5, 94.0, 128, Ledger(init=1.5, train=5.0, eval=0.5), line=7)

    row = curve_row(evaluation)

    assert row == [2.0, 5.5, 94.0, 128, {"init": 1.5, "train": 5.0, "eval": 0.5}]
    assert ledger_of(json.loads(json.dumps(row))) == evaluation.ledger


def test_a_row_of_a_log_that_does_not_tell_ends_before_the_ledger():
    assert curve_row(Evaluation(None, 5.5, 94.0)) == [None, 5.5, 94.0, None]
    assert ledger_of([None, 5.5, 94.0, None]) is None


def test_a_ledger_of_no_seconds_is_one_all_the_same():
    assert ledger_of(curve_row(Evaluation(0.0, 0.0, 10.0, 0, Ledger()))) == Ledger()


def test_a_ledger_adds_up_all_its_phases():
    ledger = Ledger()
    for phase in Phase:
        ledger = ledger.plus(phase, 1.5)

    assert ledger.total() == 1.5 * 8


def test_seconds_are_added_to_one_phase_and_the_old_ledger_stays():
    before = Ledger(train=2.0, eval=1.0)

    after = before.plus(Phase.TRAIN, 0.5)

    assert after == Ledger(train=2.5, eval=1.0)
    assert before == Ledger(train=2.0, eval=1.0)


@pytest.mark.parametrize("kind", [Ledger, Evaluation])
def test_what_is_built_at_once_is_a_frozen_dataclass_like_any_other(kind):
    names = [field.name for field in fields(kind)]
    values = [float(place) for place in range(len(names))]

    built = kind(*values)

    assert asdict(built) == dict(zip(names, values, strict=True))
    assert built == kind(**asdict(built))
    assert hash(built) == hash(kind(*values))
    for name in names:
        assert replace(built, **{name: -1.0}) != built
        with pytest.raises(FrozenInstanceError):
            setattr(built, name, 0.0)


def test_a_phase_without_seconds_and_what_a_log_does_not_tell_need_no_naming():
    assert asdict(Ledger()) == dict.fromkeys((phase.value for phase in Phase), 0.0)
    assert asdict(Evaluation(1.0, 2.0, 3.0)) == {
        "epoch": 1.0,
        "seconds": 2.0,
        "quality": 3.0,
        "samples": None,
        "ledger": None,
        "line": None,
        "others": None,
    }
