import dataclasses
import statistics

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.calibrated_runs import (
    crossing_epochs,
    curves_at,
    interpolated_epochs,
    pooled,
)
from finishline.rules.statistics.significance import Reference, reference_of


def whole_epochs(digits: Benchmark, batch_size: int) -> list[int]:
    """Counted here, by eye of the definition: the first evaluation of at least 97.5 %."""
    return [
        next(j for j, quality in enumerate(run.quality, 1) if quality >= 97.5)
        for run in digits.reference_runs_at(batch_size)
    ]


def test_between_two_batch_sizes_mean_and_spread_lie_on_the_line(digits: Benchmark) -> None:
    """96 lies half way between 64 and 128, 80 a quarter; 2 x 3 runs stand for them."""
    low, high = whole_epochs(digits, 64), whole_epochs(digits, 128)
    means = statistics.mean(low), statistics.mean(high)
    stdevs = statistics.stdev(low), statistics.stdev(high)

    half = interpolated_epochs(digits, 96, fractional=False)
    quarter = interpolated_epochs(digits, 80, fractional=False)

    assert half is not None
    assert quarter is not None
    assert half.mean == pytest.approx(sum(means) / 2)
    assert half.stdev == pytest.approx(sum(stdevs) / 2)
    assert quarter.mean == pytest.approx(0.75 * means[0] + 0.25 * means[1])
    assert half.count == quarter.count == 6


def test_the_interpolated_epochs_are_those_of_real_trainings(digits: Benchmark) -> None:
    """Forty trainings each took 7.38 +- 0.59 epochs at batch size 48 and 8.32 +- 0.69 at 96."""
    for batch_size, measured, stdev in ((48, 7.38, 0.59), (96, 8.32, 0.69)):
        found = interpolated_epochs(digits, batch_size, fractional=False)

        assert found is not None
        assert found.mean == pytest.approx(measured, abs=0.5 * stdev)


@pytest.mark.parametrize("batch_size", [16, 32, 128, 256])
def test_at_the_ends_and_beyond_nothing_is_interpolated(digits: Benchmark, batch_size: int) -> None:
    assert interpolated_epochs(digits, batch_size, fractional=False) is None


@pytest.mark.parametrize(("low", "high", "known"), [(1, 40, False), (2, 2, True), (40, 1, False)])
def test_a_line_takes_two_calibrated_runs_at_either_end(
    digits: Benchmark, low: int, high: int, known: bool
) -> None:
    few = (*digits.reference_runs_at(64)[:low], *digits.reference_runs_at(128)[:high])
    benchmark = dataclasses.replace(digits, reference_runs=few)

    assert (interpolated_epochs(benchmark, 96, fractional=False) is not None) is known


@pytest.mark.parametrize(("fractional", "epochs"), [(False, (2.0,)), (True, (1.5,))])
def test_a_calibrated_run_that_missed_the_target_tells_no_epochs(
    digits: Benchmark, fractional: bool, epochs: tuple[float, ...]
) -> None:
    curves = ((97.0, 98.0), (90.0, 97.4))

    assert crossing_epochs(curves, digits.target, digits.reach, fractional=fractional) == epochs


def test_crossings_lie_within_the_epoch_before_the_evaluation(digits: Benchmark) -> None:
    curves = curves_at(digits, 64)
    whole = crossing_epochs(curves, digits.target, digits.reach, fractional=False)
    between = crossing_epochs(curves, digits.target, digits.reach, fractional=True)

    assert list(whole) == whole_epochs(digits, 64)
    assert all(0 <= w - f < 1 for w, f in zip(whole, between, strict=True))
    assert statistics.stdev(between) < statistics.stdev(whole)


def test_pooling_two_references_is_as_taking_all_their_figures() -> None:
    first, second = [7.0, 8.0, 8.0, 9.0], [6.5, 7.5]
    together = [*first, *second]

    found = pooled(reference_of(first), reference_of(second))

    assert found.mean == pytest.approx(statistics.mean(together))
    assert found.stdev == pytest.approx(statistics.stdev(together))
    assert found.count == 6


def test_a_single_figure_is_pooled_too() -> None:
    found = pooled(reference_of([7.0, 9.0]), Reference(8.0, 0.0, 1))

    assert (found.mean, found.stdev, found.count) == (8.0, pytest.approx(1.0), 3)
