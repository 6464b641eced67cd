import pytest

from finishline.rules.verification.messages import ControlPoint, TargetSpec
from worker.stopwatch import is_below_band, is_reached

ACCURACY = TargetSpec("top1Accuracy", 97.5, "higher")
LOSS = TargetSpec("loss", 1.0, "lower")


@pytest.mark.parametrize(
    ("qualities", "reached"),
    [([], False), ([97.4], False), ([97.5], True), ([90.0, 97.6], True)],
)
def test_target_is_reached_at_or_above_its_value(qualities, reached):
    assert is_reached(qualities, ACCURACY) is reached


def test_a_loss_reaches_its_target_downwards():
    assert is_reached([1.2, 1.0], LOSS)
    assert not is_reached([1.2, 1.1], LOSS)


def test_sustained_target_needs_evaluations_in_a_row():
    twice = TargetSpec("top1Accuracy", 97.5, "higher", evaluations_in_a_row=2)
    assert not is_reached([98.0, 97.0, 98.0], twice)
    assert is_reached([98.0, 97.0, 98.0, 97.5], twice)


def test_a_run_with_a_fixed_stop_never_stops_at_its_target():
    stop = TargetSpec("loss", 1.0, "lower", fixed_stop=True)
    assert not is_reached([0.9, 0.8], stop)


POINTS = [
    ControlPoint(index=1, mean=50, lower=40, upper=60),
    ControlPoint(index=2, mean=80, lower=75, upper=85),
]


@pytest.mark.parametrize(
    ("qualities", "below"),
    [
        ([40.0], False),  # on the edge is inside
        ([39.9], True),
        ([61.0], False),  # above is for the server to judge
        ([50.0, 74.0], True),
        ([30.0, 80.0], False),  # the first evaluation had its turn
        ([50.0, 80.0, 1.0], False),  # no control point there
    ],
)
def test_only_the_latest_evaluation_below_its_control_point_stops(qualities, below):
    assert is_below_band(qualities, POINTS, ACCURACY) is below


def test_a_loss_is_below_the_band_when_it_is_larger():
    points = [ControlPoint(index=1, mean=2.0, lower=1.5, upper=2.5)]
    assert is_below_band([2.6], points, LOSS)
    assert not is_below_band([1.4], points, LOSS)
