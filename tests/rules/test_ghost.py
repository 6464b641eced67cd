"""Ghosts: the run in the middle, the mean of all, and where they stand beside a replay."""

import pytest

from finishline.rules.ranking.ghost import (
    GhostPoint,
    epochs_per_evaluation,
    mean_curve,
    median_run,
    run_curve,
)
from finishline.rules.scoring.run import Evaluation


def curve(*points: tuple[float | None, float, float]) -> list[Evaluation]:
    return [Evaluation(epoch=e, seconds=s, quality=q) for e, s, q in points]


def test_the_median_run_is_one_that_was_made() -> None:
    assert median_run([9.0, None, 7.0, 8.0]) == 3
    assert median_run([9.0, 7.0, None, 8.0, 6.0]) == 1  # The faster of the two in the middle.
    assert median_run([None, None]) is None
    assert median_run([]) is None


def test_the_mean_curve_ends_where_most_runs_have_ended() -> None:
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


def test_evaluations_are_set_beside_those_of_the_same_epoch() -> None:
    every_second_epoch = curve((1.0, 10.0, 50.0), (2.0, 20.0, 80.0), (5.999, 60.0, 95.0))
    points = run_curve(every_second_epoch, epochs_per_evaluation=2.0)
    assert [point.index for point in points] == [None, 1, 3]
    assert [point.seconds for point in points] == [10.0, 20.0, 60.0]
    before_the_first = run_curve(curve((0.001, 1.0, 50.0)), epochs_per_evaluation=2.0)
    assert [point.index for point in before_the_first] == [None]


@pytest.mark.parametrize(("epoch", "each"), [(None, 1.0), (7.0, None)])
def test_evaluations_without_epochs_are_counted(epoch: float | None, each: float | None) -> None:
    points = run_curve(curve((epoch, 1.0, 50.0), (epoch, 2.0, 60.0)), epochs_per_evaluation=each)
    assert [point.index for point in points] == [1, 2]


def test_epochs_between_evaluations_come_from_the_last() -> None:
    points = mean_curve([curve((0.5, 1.0, 50.0), (1.0, 2.0, 60.0))])
    assert epochs_per_evaluation(points) == 0.5
    assert epochs_per_evaluation(mean_curve([curve((None, 1.0, 50.0))])) is None
    assert epochs_per_evaluation([]) is None
