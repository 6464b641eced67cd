from collections.abc import Sequence

import pytest

from finishline.rules.benchmarks.benchmark import QualityTarget, ReachRule
from finishline.rules.scoring.run import Evaluation
from finishline.rules.scoring.tta import find_crossing

HIGHER = QualityTarget("top1Accuracy", 94.0, "percent", "higher")
LOWER = QualityTarget("loss", 3.0, "loss", "lower")
FIRST = ReachRule("first_crossing")


def curve(qualities: Sequence[float], *, interval: float = 1.0) -> list[Evaluation]:
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
def test_the_crossing_lies_on_the_line_between_two_evaluations(
    qualities: list[float], target: QualityTarget, fraction: float
) -> None:
    found = find_crossing(curve(qualities), target, FIRST)

    assert found is not None
    assert found.fraction == pytest.approx(fraction)
    assert (found.epoch, found.interval_epochs) == (3.0, 1.0)


def test_the_interval_is_that_of_the_evaluations() -> None:
    found = find_crossing(curve([90.0, 93.0, 95.0], interval=0.5), HIGHER, FIRST)

    assert found is not None
    assert (found.epoch, found.fraction, found.interval_epochs) == (1.5, 1.25, 0.5)


def test_a_row_counts_from_its_first_evaluation_and_is_reached_at_its_last() -> None:
    found = find_crossing(curve([93.0, 95.0, 96.0, 96.5]), HIGHER, ReachRule("sustained", 3))

    assert found is not None
    assert (found.epoch, found.fraction) == (4.0, 3.5)


def test_nothing_lies_before_the_first_evaluation() -> None:
    found = find_crossing(curve([95.0, 96.0]), HIGHER, FIRST)

    assert found is not None
    assert (found.epoch, found.fraction, found.interval_epochs) == (1.0, 1.0, None)


def test_between_two_evaluations_of_one_epoch_there_is_no_line() -> None:
    twice = [Evaluation(2.0, 10.0, 93.0), Evaluation(2.0, 11.0, 95.0)]

    found = find_crossing(twice, HIGHER, FIRST)

    assert found is not None
    assert (found.epoch, found.fraction, found.interval_epochs) == (2.0, 2.0, None)


@pytest.mark.parametrize("evaluations", [[], [Evaluation(1.0, 1.0, 90.0)]])
def test_a_curve_that_never_gets_there_has_no_crossing(evaluations: list[Evaluation]) -> None:
    assert find_crossing(evaluations, HIGHER, FIRST) is None


def test_without_epochs_there_is_no_crossing() -> None:
    assert find_crossing([Evaluation(None, 1.0, 95.0, 100)], HIGHER, FIRST) is None
