"""Calibrations against those in digits.toml and against scipy, and runs that follow one."""

import dataclasses
import hashlib
import math
import statistics

import pytest

from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.scoring.tta import crossing_epochs, curves_at, interpolated_epochs, pooled
from finishline.rules.statistics.aggregate import Reference, reference_of
from finishline.rules.statistics.gaps import two_sided_p
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.calibration import calibrated_by, judged_beside, runs_sha256
from finishline.rules.verification.control_points import band_for
from server.benchmarks.calibrations import (
    band_at,
    chunk_sizes,
    compare_calibrations,
    convergence_at,
    why_not_adoptable,
)


def make_runs(*curves, batch_size=64):
    return [ReferenceRun(batch_size, seed, tuple(curve)) for seed, curve in enumerate(curves)]


def whole_epochs(digits, batch_size):
    """The first evaluation at 97.5, counted by hand from the file's curves."""
    return [
        next(j for j, quality in enumerate(run.quality, 1) if quality >= 97.5)
        for run in digits.reference_runs_at(batch_size)
    ]


def test_the_table_has_mean_and_deviation_of_the_epochs_to_the_target(digits):
    for size in (32, 64, 128):
        point = convergence_at(digits, digits.reference_runs, size)
        epochs = whole_epochs(digits, point.batch_size)
        assert list(point.epochs) == epochs
        assert point.runs == 40
        assert point.mean == pytest.approx(statistics.mean(epochs))
        assert point.stdev == pytest.approx(statistics.stdev(epochs))


@pytest.mark.parametrize(
    ("curves", "epochs", "mean", "stdev"),
    [
        # A run that never was at the target counts as a run without epochs.
        (([50.0, 97.5], [50.0, 97.4], [99.0, 99.0]), (2.0, 1.0), 1.5, math.sqrt(0.5)),
        (([50.0],), (), None, None),
        (([98.0],), (1.0,), 1.0, None),
    ],
)
def test_figures_that_nobody_measured_are_absent(digits, curves, epochs, mean, stdev):
    point = convergence_at(digits, make_runs(*curves), 64)
    assert (point.runs, point.epochs, point.mean) == (len(curves), epochs, mean)
    assert point.stdev == (None if stdev is None else pytest.approx(stdev))


def test_the_band_is_that_of_a_replay_judged_by_these_runs(digits):
    runs = [run for run in digits.reference_runs if run.seed < 1015]
    claim = Claim("digits", "closed", "m", "f", System("s", "c", "p"), ("r",), {"batch_size": 32.0})
    judged = dataclasses.replace(digits, reference_runs=tuple(runs))

    band = band_at(digits, runs, 32)
    assert band == band_for(judged, claim, runs=digits.replay.max_runs)
    assert len(band) == 20
    assert band != band_at(digits, digits.reference_runs, 32)
    # Fewer than twice the runs of a replay make none. digits.toml: max_runs = 3.
    known = digits.reference_runs_at(64)
    assert [len(band_at(digits, known[:count], 64)) for count in (5, 6)] == [0, 20]


@pytest.mark.parametrize(
    ("runs", "chunks"),
    [(0, []), (1, [1]), (10, [10]), (11, [6, 5]), (20, [10, 10]), (25, [9, 8, 8])],
)
def test_chunks_are_even_and_of_at_most_ten_runs(runs, chunks):
    assert chunk_sizes(runs) == chunks


def test_what_a_seal_covers_is_the_json_of_the_runs_whatever_their_order(digits):
    runs = make_runs([50.0, 98.5], [40.0, 97.5])
    sealed = hashlib.sha256(b"[[64,0,[50.0,98.5]],[64,1,[40.0,97.5]]]").hexdigest()

    assert runs_sha256(runs) == runs_sha256(runs[::-1]) == sealed != runs_sha256(runs[:1])
    # Runs of a calibration stand in for those of the file.
    judged = calibrated_by(digits, runs)
    beside = {"calibration": "cal-1", "reference_runs_sha256": sealed}
    assert judged_beside("cal-1", judged) == beside
    assert (judged.reference_runs, judged.sha256) == (tuple(runs), digits.sha256)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([8.0, 8.0], [8.0, 8.0], 1.0),
        ([1.5] * 5, [1.5] * 7, 1.0),  # Their means differ in the last digit.
        ([8.0, 8.0], [9.0, 9.0], 0.0),
        ([9.0, 9.0], [8.0, 8.0], 0.0),
        ([8.0], [9.0, 8.0], None),
        ([], [], None),
    ],
)
def test_p_of_samples_without_scatter_or_of_one_value(first, second, p):
    assert two_sided_p(first, second) == p


def test_a_comparison_tells_means_difference_and_bands_by_common_batch_size(digits):
    first = [run for run in digits.reference_runs if run.batch_size != 128 and run.seed < 1020]
    second = [run for run in digits.reference_runs if run.batch_size != 32 and run.seed >= 1020]
    (size,) = compare_calibrations(digits, first, second)

    def gap(values):
        return pytest.approx(statistics.mean(values[:20]) - statistics.mean(values[20:]))

    assert (size.batch_size, size.difference) == (64, gap(whole_epochs(digits, 64)))
    assert 0.0 < size.p_value <= 1.0
    third = size.band[2]
    at_third = [run.quality[2] for run in digits.reference_runs_at(64)]
    assert (third.index, third.mean_difference) == (3, gap(at_third))
    halves = (band_at(digits, first, 64)[2], band_at(digits, second, 64)[2])
    assert third.lower_difference == pytest.approx(halves[0].lower - halves[1].lower)
    assert third.upper_difference == pytest.approx(halves[0].upper - halves[1].upper)


def test_without_bands_the_means_still_compare(digits):
    (size,) = compare_calibrations(digits, make_runs([50.0, 98.0]), make_runs([52.0, 97.0]))

    assert [d.mean_difference for d in size.band] == [-2.0, 1.0]
    assert {d.lower_difference for d in size.band} == {None}
    assert (size.difference, size.p_value) == (None, None)
    known = digits.reference_runs
    (one_sided,) = compare_calibrations(digits, known, make_runs([52.0, 97.0]))
    assert {(d.lower_difference, d.upper_difference) for d in one_sided.band} == {(None, None)}
    assert [s.batch_size for s in compare_calibrations(digits, known, known)] == [32, 64, 128]


def test_too_few_runs_cannot_judge(digits):
    """Twice max_runs = 3 at each batch size."""
    known, unreplayed = digits.reference_runs_at, dataclasses.replace(digits, replay=None)
    for benchmark, runs, why in (
        (digits, [*known(32), *known(64)[:5]], "batch size 64 has 5 runs of at least 6"),
        (digits, [*known(32), *known(64)[:6]], None),
        (digits, [], "it has no run"),
        (unreplayed, make_runs([98.0], [98.0]), None),
        (unreplayed, make_runs([98.0]), "batch size 64 has 1 run of at least 2"),
    ):
        assert why_not_adoptable(benchmark, runs) == why
    assert band_at(unreplayed, known(32), 32) == []
    assert "fewer than two runs reached" in why_not_adoptable(digits, make_runs(*[[50.0]] * 8))


def test_between_two_batch_sizes_mean_and_spread_lie_on_the_line(digits):
    """96 lies half way between 64 and 128, 80 a quarter; 2 x 3 runs stand for them."""
    low, high = whole_epochs(digits, 64), whole_epochs(digits, 128)
    means = statistics.mean(low), statistics.mean(high)

    half = interpolated_epochs(digits, 96, fractional=False)
    quarter = interpolated_epochs(digits, 80, fractional=False)

    assert half.mean == pytest.approx(sum(means) / 2)
    assert half.stdev == pytest.approx((statistics.stdev(low) + statistics.stdev(high)) / 2)
    assert quarter.mean == pytest.approx(0.75 * means[0] + 0.25 * means[1])
    assert half.count == quarter.count == 6


@pytest.mark.parametrize(("batch_size", "mean", "stdev"), [(48, 7.38, 0.59), (96, 8.32, 0.69)])
def test_the_interpolated_epochs_are_those_of_real_trainings(digits, batch_size, mean, stdev):
    """Forty trainings each took 7.38 +- 0.59 epochs at batch size 48 and 8.32 +- 0.69 at 96."""
    found = interpolated_epochs(digits, batch_size, fractional=False)
    assert found.mean == pytest.approx(mean, abs=0.5 * stdev)


@pytest.mark.parametrize("batch_size", [16, 32, 128, 256])
def test_at_the_ends_and_beyond_nothing_is_interpolated(digits, batch_size):
    assert interpolated_epochs(digits, batch_size, fractional=False) is None


@pytest.mark.parametrize(("low", "high", "known"), [(1, 40, False), (2, 2, True), (40, 1, False)])
def test_a_line_takes_two_calibrated_runs_at_either_end(digits, low, high, known):
    few = (*digits.reference_runs_at(64)[:low], *digits.reference_runs_at(128)[:high])
    benchmark = dataclasses.replace(digits, reference_runs=few)

    assert (interpolated_epochs(benchmark, 96, fractional=False) is not None) is known


@pytest.mark.parametrize(("fractional", "epochs"), [(False, (2.0,)), (True, (1.5,))])
def test_a_calibrated_run_that_missed_the_target_tells_no_epochs(digits, fractional, epochs):
    curves = ((97.0, 98.0), (90.0, 97.4))

    assert crossing_epochs(curves, digits.target, digits.reach, fractional=fractional) == epochs


def test_crossings_lie_within_the_epoch_before_the_evaluation(digits):
    curves = curves_at(digits, 64)
    whole = crossing_epochs(curves, digits.target, digits.reach, fractional=False)
    between = crossing_epochs(curves, digits.target, digits.reach, fractional=True)

    assert list(whole) == whole_epochs(digits, 64)
    assert all(0 <= w - f < 1 for w, f in zip(whole, between, strict=True))
    assert statistics.stdev(between) < statistics.stdev(whole)


def test_pooling_two_references_is_as_taking_all_their_figures():
    first, second = [7.0, 8.0, 8.0, 9.0], [6.5, 7.5]
    found = pooled(reference_of(first), reference_of(second))
    assert found.mean == pytest.approx(statistics.mean([*first, *second]))
    assert found.stdev == pytest.approx(statistics.stdev([*first, *second]))
    assert found.count == 6
    single = pooled(reference_of([7.0, 9.0]), Reference(8.0, 0.0, 1))
    assert (single.mean, single.stdev, single.count) == (8.0, pytest.approx(1.0), 3)
