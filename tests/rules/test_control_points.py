"""The expected bands come from scipy.stats.t and numpy, which the code under test does not use."""

import numpy as np
import pytest
import scipy.stats

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.control_points import control_points, first_break
from finishline.rules.verification.messages import ControlPoint


def test_the_band_is_the_prediction_interval_of_student_shared_by_all_evaluations() -> None:
    curves = np.random.default_rng(1).normal([20.0, 80.0, 97.0], [5.0, 2.0, 0.4], (12, 3))
    n, m, runs, alpha = 12, 3, 4, 0.01

    points = control_points(curves.tolist(), runs=runs, alpha=alpha, resolution=0.01)

    quantile = scipy.stats.t.ppf(1 - alpha / (2 * m * runs), n - 1)
    half = quantile * curves.std(axis=0, ddof=1) * np.sqrt(1 + 1 / n)
    centre = curves.mean(axis=0)
    assert [p.index for p in points] == [1, 2, 3]
    assert [p.mean for p in points] == pytest.approx(centre.tolist())
    assert [p.lower for p in points] == pytest.approx((centre - half).tolist())
    assert [p.upper for p in points] == pytest.approx((centre + half).tolist())


def test_the_band_is_never_narrower_than_the_resolution_of_the_metric() -> None:
    points = control_points([[50.0, 90.0]] * 6, runs=3, alpha=0.01, resolution=0.25)

    assert [(p.lower, p.upper) for p in points] == [(49.75, 50.25), (89.75, 90.25)]


@pytest.mark.parametrize(("curves", "runs", "known"), [(5, 3, False), (6, 3, True), (1, 1, False)])
def test_a_band_takes_twice_as_many_reference_runs_as_replays(
    curves: int, runs: int, known: bool
) -> None:
    reference = [[50.0 + i, 90.0 + i] for i in range(curves)]

    assert bool(control_points(reference, runs=runs, alpha=0.01, resolution=0.1)) is known


def test_without_reference_runs_there_is_no_band() -> None:
    assert control_points([], runs=1, alpha=0.01, resolution=0.1) == []


def test_curves_count_to_the_shortest() -> None:
    points = control_points([[1.0, 2.0, 3.0], [1.5, 2.5]], runs=1, alpha=0.1, resolution=0.0)

    assert len(points) == 2


def test_more_replays_or_a_smaller_alpha_widen_the_band() -> None:
    curves = np.random.default_rng(2).normal(90.0, 1.0, (20, 5)).tolist()

    def width(*, runs: int, alpha: float) -> float:
        point = control_points(curves, runs=runs, alpha=alpha, resolution=0.0)[0]
        return point.upper - point.lower

    assert width(runs=1, alpha=0.01) < width(runs=8, alpha=0.01) < width(runs=8, alpha=0.001)


def test_all_evaluations_of_all_replays_stay_inside_as_often_as_promised() -> None:
    """Whole verifications of 3 replays of 8 evaluations at alpha = 0.1: at most 10 % break out."""
    random = np.random.default_rng(3)
    broken = 0
    trials = 1500
    for _ in range(trials):
        curves = random.normal(90.0, 1.0, (10 + 3, 8))
        points = control_points(curves[:10].tolist(), runs=3, alpha=0.1, resolution=0.0)
        broken += any(
            first_break(curve.tolist(), points, higher_is_better=True) for curve in curves[10:]
        )

    assert 0.03 < broken / trials <= 0.1 + 3 * np.sqrt(0.1 * 0.9 / trials)


@pytest.mark.parametrize("batch_size", [32, 64, 128])
def test_at_most_one_shipped_reference_run_in_forty_leaves_the_band_of_the_others(
    digits: Benchmark, batch_size: int
) -> None:
    """Each calibrated run held against all others of its batch size, as a replay would be.

    Real curves have stragglers that a normal distribution has not, which is why one replay below
    the band does not reject a claim where one run is dropped.
    """
    curves = [run.quality for run in digits.reference_runs_at(batch_size)]
    broken = 0
    for i, curve in enumerate(curves):
        others = curves[:i] + curves[i + 1 :]
        points = control_points(others, runs=3, alpha=0.005, resolution=100 / 599)
        broken += first_break(curve, points, higher_is_better=True) is not None

    assert len(curves) >= 40
    assert broken <= 1


POINTS = [ControlPoint(1, 50.0, 40.0, 60.0), ControlPoint(2, 90.0, 88.0, 92.0)]


@pytest.mark.parametrize("curve", [[], [40.0], [60.0, 88.0], [50.0, 92.0], [50.0, 90.0, 0.0]])
def test_the_edges_are_inside_and_what_has_no_control_point_is_not_judged(
    curve: list[float],
) -> None:
    assert first_break(curve, POINTS, higher_is_better=True) is None


@pytest.mark.parametrize(
    ("curve", "higher_is_better", "index", "side"),
    [
        ([39.9, 90.0], True, 1, "below"),
        ([60.1, 10.0], True, 1, "above"),
        ([50.0, 87.9], True, 2, "below"),
        ([50.0, 92.1], True, 2, "above"),
        ([60.1], False, 1, "below"),  # of a loss, more is worse
        ([39.9], False, 1, "above"),
    ],
)
def test_the_first_break_tells_where_and_on_which_side(
    curve: list[float], higher_is_better: bool, index: int, side: str
) -> None:
    broken = first_break(curve, POINTS, higher_is_better=higher_is_better)

    assert broken is not None
    assert (broken.index, broken.side) == (index, side)
    assert broken.quality == curve[index - 1]
    assert (broken.lower, broken.upper) == (POINTS[index - 1].lower, POINTS[index - 1].upper)


def test_a_quality_that_is_no_number_is_outside() -> None:
    assert first_break([float("nan")], POINTS, higher_is_better=True) is not None
