"""What calibration runs say, held against the calibration in digits.toml and against scipy."""

import dataclasses
import hashlib
import math
import statistics
import tomllib

import pytest
from scipy import stats

from finishline.rules.benchmarks.benchmark import Benchmark, ReferenceRun
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
from finishline.rules.submissions.claim import Claim, System
from finishline.rules.verification.replay_plan import band_for

ENTROPY = bytes(range(32))


def make_runs(*curves: list[float], batch_size: int = 64) -> list[ReferenceRun]:
    return [ReferenceRun(batch_size, seed, tuple(curve)) for seed, curve in enumerate(curves)]


def epochs_by_hand(digits: Benchmark, batch_size: int) -> list[int]:
    """The first evaluation at 97.5, counted by hand from the file's curves."""
    return [
        next(j for j, quality in enumerate(run.quality, 1) if quality >= 97.5)
        for run in digits.reference_runs
        if run.batch_size == batch_size
    ]


def test_the_table_has_mean_and_deviation_of_the_epochs_to_the_target(digits: Benchmark) -> None:
    table = convergence_table(digits, digits.reference_runs)

    assert [point.batch_size for point in table] == [32, 64, 128]
    for point in table:
        epochs = epochs_by_hand(digits, point.batch_size)
        assert list(point.epochs) == epochs
        assert point.runs == 40
        assert point.mean == pytest.approx(statistics.mean(epochs))
        assert point.stdev == pytest.approx(statistics.stdev(epochs))


def test_a_run_that_never_was_at_the_target_counts_as_a_run_without_epochs(
    digits: Benchmark,
) -> None:
    (point,) = convergence_table(digits, make_runs([50.0, 97.5], [50.0, 97.4], [99.0, 99.0]))

    assert (point.runs, point.epochs) == (3, (2.0, 1.0))
    assert (point.mean, point.stdev) == (1.5, pytest.approx(math.sqrt(0.5)))


def test_figures_that_nobody_measured_are_absent(digits: Benchmark) -> None:
    (none,) = convergence_table(digits, make_runs([50.0]))
    (one,) = convergence_table(digits, make_runs([98.0]))

    assert (none.mean, none.stdev) == (None, None)
    assert (one.mean, one.stdev) == (1.0, None)


def test_the_band_is_that_of_a_replay_judged_by_these_runs(digits: Benchmark) -> None:
    assert digits.replay is not None
    runs = [run for run in digits.reference_runs if run.seed < 1015]
    claim = Claim("digits", "closed", "m", "f", System("s", "c", "p"), ("r",), {"batch_size": 32.0})
    judged = dataclasses.replace(digits, reference_runs=tuple(runs))

    band = band_at(digits, runs, 32)
    assert band == band_for(judged, claim, runs=digits.replay.max_runs)
    assert len(band) == 20
    assert band != band_at(digits, digits.reference_runs, 32)


def test_fewer_than_twice_the_runs_of_a_replay_make_no_band(digits: Benchmark) -> None:
    """digits.toml: max_runs = 3."""
    runs = digits.reference_runs_at(64)

    assert band_at(digits, runs[:5], 64) == []
    assert len(band_at(digits, runs[:6], 64)) == 20


@pytest.mark.parametrize(
    ("runs", "chunks"),
    [(0, []), (1, [1]), (10, [10]), (11, [6, 5]), (20, [10, 10]), (25, [9, 8, 8])],
)
def test_chunks_are_even_and_of_at_most_ten_runs(runs: int, chunks: list[int]) -> None:
    assert chunk_sizes(runs) == chunks


def test_what_a_seal_covers_is_the_json_of_the_runs_whatever_their_order() -> None:
    runs = make_runs([50.0, 98.5], [40.0, 97.5])
    text = "[[64,0,[50.0,98.5]],[64,1,[40.0,97.5]]]"

    assert runs_sha256(runs) == hashlib.sha256(text.encode()).hexdigest()
    assert runs_sha256(runs[::-1]) == runs_sha256(runs)
    assert runs_sha256(runs[:1]) != runs_sha256(runs)


def test_runs_of_a_calibration_stand_in_for_those_of_the_file(digits: Benchmark) -> None:
    runs = make_runs([50.0, 98.5])
    judged = calibrated_by(digits, runs)
    assert judged_beside("cal-1", judged) == {
        "calibration": "cal-1",
        "reference_runs_sha256": hashlib.sha256(b"[[64,0,[50.0,98.5]]]").hexdigest(),
    }

    assert judged.reference_runs == tuple(runs)
    assert judged.sha256 == digits.sha256


def test_p_is_welchs_on_log_values() -> None:
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
def test_p_of_samples_without_scatter_or_of_one_value(
    first: list[float], second: list[float], p: float | None
) -> None:
    assert two_sided_p(first, second) == p


def test_a_comparison_tells_means_difference_and_bands_by_common_batch_size(
    digits: Benchmark,
) -> None:
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


def test_without_bands_the_means_still_compare(digits: Benchmark) -> None:
    (size,) = compare_calibrations(digits, make_runs([50.0, 98.0]), make_runs([52.0, 97.0]))

    assert [d.mean_difference for d in size.band] == [-2.0, 1.0]
    assert {d.lower_difference for d in size.band} == {None}
    assert (size.difference, size.p_value) == (None, None)
    known = digits.reference_runs
    (one_sided,) = compare_calibrations(digits, known, make_runs([52.0, 97.0]))
    assert {(d.lower_difference, d.upper_difference) for d in one_sided.band} == {(None, None)}
    assert [s.batch_size for s in compare_calibrations(digits, known, known)] == [32, 64, 128]


def test_too_few_runs_cannot_judge(digits: Benchmark) -> None:
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


def test_the_toml_of_a_run_is_read_back_by_a_benchmark_file(digits: Benchmark) -> None:
    run = digits.reference_runs[0]
    (table,) = tomllib.loads(reference_run_toml(run))["reference_runs"]

    assert table == {"batch_size": 32, "seed": 1000, "quality": list(run.quality)}
