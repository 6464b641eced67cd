import dataclasses
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from finishline.rules.benchmarks.benchmark import QualityTarget, ReachRule
from finishline.rules.errors import RuleError
from finishline.rules.scoring.run import Clock, Evaluation, Ledger, Run
from finishline.rules.scoring.tta import (
    display_seconds,
    evaluation_interval_seconds,
    excess_preparation_seconds,
    first_evaluation_at_target,
    time_to_accuracy,
)

TOP1 = QualityTarget("top1Accuracy", 94.0, "percent", "higher")
LOSS = QualityTarget("loss", 0.8, "nats/byte", "lower")
FIRST = ReachRule("first_crossing")
DAWNBENCH = Clock("dawnbench")

MakeRun = Callable[..., Run]


def tta(run: Run, target: QualityTarget = TOP1, reach: ReachRule = FIRST) -> float | None:
    return time_to_accuracy(run, target, reach, clock=DAWNBENCH, division="open")


def test_tta_is_first_evaluation_at_target(make_run: MakeRun) -> None:
    """Source: dawn-bench-entries README, "CIFAR10 Training"."""
    assert tta(make_run([80.0, 93.99, 94.2, 95.0], seconds_per_epoch=100.0)) == 300.0


def test_exactly_at_the_target_counts(make_run: MakeRun) -> None:
    assert tta(make_run([93.999999, 94.0])) == 20.0


def test_later_dips_below_the_target_do_not_matter(make_run: MakeRun) -> None:
    assert tta(make_run([94.1, 60.0, 60.0])) == 10.0


def test_a_run_that_never_reaches_the_target_has_no_time(make_run: MakeRun) -> None:
    assert tta(make_run([93.0, 93.9])) is None


def test_the_first_in_log_order_counts_even_if_another_was_earlier() -> None:
    run = Run(
        "a.tsv",
        "dawnbench",
        (Evaluation(2.0, 50.0, 94.0), Evaluation(1.0, 40.0, 94.5)),
    )

    assert tta(run) == 50.0


def test_for_a_loss_lower_is_better_and_the_target_itself_counts(make_run: MakeRun) -> None:
    assert tta(make_run([2.0, 0.81, 0.8, 0.7]), LOSS) == 30.0
    assert tta(make_run([2.0, 0.81]), LOSS) is None


def test_a_run_without_evaluations_is_an_error() -> None:
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
def test_sustained_is_reached_at_the_last_of_so_many_in_a_row(
    make_run: MakeRun, qualities: list[float], epoch: float | None
) -> None:
    found = first_evaluation_at_target(
        make_run(qualities).evaluations, TOP1, ReachRule("sustained", 3)
    )

    assert (found.epoch if found else None) == epoch


def test_at_a_fixed_stop_the_last_evaluation_counts_whatever_its_quality(
    make_run: MakeRun,
) -> None:
    assert tta(make_run([94.0, 95.0, 93.0]), reach=ReachRule("fixed_stop")) == 30.0


def test_a_log_with_a_run_stop_counts_to_its_run_stop(make_run: MakeRun) -> None:
    """Source: MLPerf training_rules.adoc, "Benchmark results"."""
    run = make_run([90.0, 94.0], clock="mlperf", status="success", stop_seconds=21.5)

    assert time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division="closed") == 21.5


@pytest.mark.parametrize("status", ["aborted", "", "SUCCESS"])
def test_a_run_that_did_not_stop_with_success_has_no_time(make_run: MakeRun, status: str) -> None:
    run = make_run([94.0], clock="mlperf", status=status, stop_seconds=11.0)

    assert time_to_accuracy(run, TOP1, FIRST, clock=Clock("mlperf"), division="closed") is None


def test_preparation_beyond_the_allowance_is_added_on_the_mlperf_clock(
    make_run: MakeRun,
) -> None:
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


def test_on_another_clock_the_ledger_of_that_evaluation_decides() -> None:
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


def test_on_another_clock_without_a_ledger_nobody_measured_it(make_run: MakeRun) -> None:
    assert tta(make_run([94.0], clock="mlperf")) is None


@pytest.mark.parametrize(
    ("qualities", "interval"), [([1.0], None), ([1.0, 2.0], 7.0), ([1.0] * 6, 7.0)]
)
def test_the_evaluation_interval_is_the_median_gap(
    make_run: MakeRun, qualities: list[float], interval: float | None
) -> None:
    assert evaluation_interval_seconds(make_run(qualities, seconds_per_epoch=7.0)) == interval


def test_one_long_gap_does_not_move_the_evaluation_interval() -> None:
    times = [0.0, 1.0, 3.0, 100.0, 104.0]  # gaps 1, 2, 97, 4: the median is 3
    run = Run("a.log", "mlperf", tuple(Evaluation(None, t, 1.0) for t in times))

    assert evaluation_interval_seconds(run) == 3.0
    fewer = dataclasses.replace(run, evaluations=run.evaluations[:4])  # 1, 2, 97
    assert evaluation_interval_seconds(fewer) == 2.0


@pytest.mark.parametrize(("clock", "excess"), [("mlperf", 600.0), ("dawnbench", 0.0)])
def test_preparation_beyond_the_allowance_counts_on_the_clock_of_mlperf_alone(
    clock: str, excess: float
) -> None:
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
        (0.0, "0:00:00"),
        (28.0, "0:00:28"),
        (59.0001, "0:01:00"),
        (3599.5, "1:00:00"),
        (3600.0, "1:00:00"),
        (100 * 3600.0, "100:00:00"),
    ],
)
def test_shown_times_are_rounded_up_as_dawnbench_published_them(seconds: float, shown: str) -> None:
    assert display_seconds(seconds) == shown


def test_every_published_dawnbench_time_is_shown_as_published(archives: Path) -> None:
    expected = json.loads((archives / "dawnbench/expected.json").read_text())
    published = [e for e in expected["entries"] if e.get("tta_seconds") is not None]

    assert len(published) >= 10
    for entry in published:
        assert display_seconds(entry["tta_seconds"]) == entry["tta_display"], entry["path"]
