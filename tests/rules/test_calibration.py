"""Calibrations against those in digits.toml and against scipy, and runs that follow one."""

import dataclasses
import hashlib
import math
import statistics
import tomllib

import pytest
from scipy import stats

from finishline.rules.benchmarks.benchmark import ReferenceRun
from finishline.rules.benchmarks.calibrated_runs import (
    crossing_epochs,
    curves_at,
    interpolated_epochs,
    pooled,
)
from finishline.rules.benchmarks.calibration import (
    band_at,
    calibrated_by,
    chunk_sizes,
    compare_calibrations,
    convergence_table,
    judged_beside,
    reference_run_toml,
    runs_sha256,
    two_sided_p,
    why_not_adoptable,
)
from finishline.rules.statistics.significance import Reference, reference_of
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.replay_plan import band_for

ENTROPY = bytes(range(32))


def make_runs(*curves, batch_size=64):
    return [ReferenceRun(batch_size, seed, tuple(curve)) for seed, curve in enumerate(curves)]


def epochs_by_hand(digits, batch_size):
    """The first evaluation at 97.5, counted by hand from the file's curves."""
    return [
        next(j for j, quality in enumerate(run.quality, 1) if quality >= 97.5)
        for run in digits.reference_runs
        if run.batch_size == batch_size
    ]


def test_the_table_has_mean_and_deviation_of_the_epochs_to_the_target(digits):
    table = convergence_table(digits, digits.reference_runs)

    assert [point.batch_size for point in table] == [32, 64, 128]
    for point in table:
        epochs = epochs_by_hand(digits, point.batch_size)
        assert list(point.epochs) == epochs
        assert point.runs == 40
        assert point.mean == pytest.approx(statistics.mean(epochs))
        assert point.stdev == pytest.approx(statistics.stdev(epochs))


def test_a_run_that_never_was_at_the_target_counts_as_a_run_without_epochs(digits):
    (point,) = convergence_table(digits, make_runs([50.0, 97.5], [50.0, 97.4], [99.0, 99.0]))

    assert (point.runs, point.epochs) == (3, (2.0, 1.0))
    assert (point.mean, point.stdev) == (1.5, pytest.approx(math.sqrt(0.5)))


def test_figures_that_nobody_measured_are_absent(digits):
    (none,) = convergence_table(digits, make_runs([50.0]))
    (one,) = convergence_table(digits, make_runs([98.0]))

    assert (none.mean, none.stdev) == (None, None)
    assert (one.mean, one.stdev) == (1.0, None)


def test_the_band_is_that_of_a_replay_judged_by_these_runs(digits):
    assert digits.replay is not None
    runs = [run for run in digits.reference_runs if run.seed < 1015]
    claim = Claim("digits", "closed", "m", "f", System("s", "c", "p"), ("r",), {"batch_size": 32.0})
    judged = dataclasses.replace(digits, reference_runs=tuple(runs))

    band = band_at(digits, runs, 32)
    assert band == band_for(judged, claim, runs=digits.replay.max_runs)
    assert len(band) == 20
    assert band != band_at(digits, digits.reference_runs, 32)


def test_fewer_than_twice_the_runs_of_a_replay_make_no_band(digits):
    """digits.toml: max_runs = 3."""
    runs = digits.reference_runs_at(64)

    assert band_at(digits, runs[:5], 64) == []
    assert len(band_at(digits, runs[:6], 64)) == 20


@pytest.mark.parametrize(
    ("runs", "chunks"),
    [(0, []), (1, [1]), (10, [10]), (11, [6, 5]), (20, [10, 10]), (25, [9, 8, 8])],
)
def test_chunks_are_even_and_of_at_most_ten_runs(runs, chunks):
    assert chunk_sizes(runs) == chunks


def test_what_a_seal_covers_is_the_json_of_the_runs_whatever_their_order():
    runs = make_runs([50.0, 98.5], [40.0, 97.5])
    text = "[[64,0,[50.0,98.5]],[64,1,[40.0,97.5]]]"

    assert runs_sha256(runs) == hashlib.sha256(text.encode()).hexdigest()
    assert runs_sha256(runs[::-1]) == runs_sha256(runs)
    assert runs_sha256(runs[:1]) != runs_sha256(runs)


def test_runs_of_a_calibration_stand_in_for_those_of_the_file(digits):
    runs = make_runs([50.0, 98.5])
    judged = calibrated_by(digits, runs)
    assert judged_beside("cal-1", judged) == {
        "calibration": "cal-1",
        "reference_runs_sha256": hashlib.sha256(b"[[64,0,[50.0,98.5]]]").hexdigest(),
    }

    assert judged.reference_runs == tuple(runs)
    assert judged.sha256 == digits.sha256


def test_p_is_welchs_on_log_values():
    first, second = [7.0, 8.0, 7.0, 9.0, 8.0], [8.0, 9.0, 10.0, 9.0, 9.0, 8.0]
    expected = stats.ttest_ind(
        [math.log(v) for v in first], [math.log(v) for v in second], equal_var=False
    ).pvalue

    assert two_sided_p(first, second) == pytest.approx(expected)
    assert two_sided_p(second, first) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("first", "second", "p"),
    [
        ([8.0, 8.0], [8.0, 8.0], 1.0),
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

    epochs = epochs_by_hand(digits, 64)
    assert size.batch_size == 64
    gap = statistics.mean(epochs[:20]) - statistics.mean(epochs[20:])
    assert size.difference == pytest.approx(gap)
    assert size.p_value is not None
    assert 0.0 < size.p_value <= 1.0
    at_third = [run.quality[2] for run in digits.reference_runs_at(64)]
    third = size.band[2]
    assert third.index == 3
    assert third.mean_difference == pytest.approx(
        statistics.mean(at_third[:20]) - statistics.mean(at_third[20:])
    )
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
    runs = [*digits.reference_runs_at(32), *digits.reference_runs_at(64)[:5]]

    assert why_not_adoptable(digits, runs) == "batch size 64 has 5 runs of at least 6"
    assert why_not_adoptable(digits, [*runs, digits.reference_runs_at(64)[7]]) is None
    assert why_not_adoptable(digits, []) == "it has no run"
    unreplayed = dataclasses.replace(digits, replay=None)
    assert why_not_adoptable(unreplayed, make_runs([98.0], [98.0])) is None
    assert why_not_adoptable(unreplayed, make_runs([98.0])) == (
        "batch size 64 has 1 run of at least 2"
    )
    assert band_at(unreplayed, runs, 32) == []
    never = make_runs(*[[50.0]] * 8)
    assert "fewer than two runs reached" in (why_not_adoptable(digits, never) or "")


def test_the_toml_of_a_run_is_read_back_by_a_benchmark_file(digits):
    run = digits.reference_runs[0]
    (table,) = tomllib.loads(reference_run_toml(run))["reference_runs"]

    assert table == {"batch_size": 32, "seed": 1000, "quality": list(run.quality)}


def whole_epochs(digits, batch_size):
    """Counted here, by eye of the definition: the first evaluation of at least 97.5 %."""
    return [
        next(j for j, quality in enumerate(run.quality, 1) if quality >= 97.5)
        for run in digits.reference_runs_at(batch_size)
    ]


def test_between_two_batch_sizes_mean_and_spread_lie_on_the_line(digits):
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


def test_the_interpolated_epochs_are_those_of_real_trainings(digits):
    """Forty trainings each took 7.38 +- 0.59 epochs at batch size 48 and 8.32 +- 0.69 at 96."""
    for batch_size, measured, stdev in ((48, 7.38, 0.59), (96, 8.32, 0.69)):
        found = interpolated_epochs(digits, batch_size, fractional=False)

        assert found is not None
        assert found.mean == pytest.approx(measured, abs=0.5 * stdev)


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
    together = [*first, *second]

    found = pooled(reference_of(first), reference_of(second))

    assert found.mean == pytest.approx(statistics.mean(together))
    assert found.stdev == pytest.approx(statistics.stdev(together))
    assert found.count == 6


def test_a_single_figure_is_pooled_too():
    found = pooled(reference_of([7.0, 9.0]), Reference(8.0, 0.0, 1))

    assert (found.mean, found.stdev, found.count) == (8.0, pytest.approx(1.0), 3)
