import json
import statistics
from pathlib import Path

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from finishline.rules.errors import RuleError
from finishline.rules.scoring.aggregate import (
    coefficient_of_variation_percent,
    mean,
    median_window,
    olympic_mean,
    olympic_weight,
    standard_deviation,
)

SECONDS = st.floats(0.01, 1e7)


def test_the_fastest_and_the_slowest_run_are_dropped() -> None:
    """Source: MLPerf training_rules.adoc, "Benchmark results"."""
    assert olympic_mean([90.0, 100.0, 101.0, 105.0, 500.0], dropped=1) == 102.0


def test_one_run_that_did_not_converge_is_dropped_as_the_slowest() -> None:
    assert olympic_mean([100.0, None, 102.0, 90.0, 101.0], dropped=1) == 101.0


def test_two_runs_that_did_not_converge_make_the_result_invalid() -> None:
    assert olympic_mean([100.0, None, 102.0, None, 101.0], dropped=1) is None


def test_four_may_fail_where_four_are_dropped() -> None:
    times: list[float | None] = [float(t) for t in range(36)]  # unet3d: 40 runs, 4 + 4 dropped

    assert olympic_mean([*times, None, None, None, None], dropped=4) == mean(range(4, 36))
    assert olympic_mean([*times[:35], *[None] * 5], dropped=4) is None


def test_nothing_dropped_is_the_plain_mean_and_no_run_may_fail() -> None:
    assert olympic_mean([1.0, 2.0, 6.0], dropped=0) == 3.0
    assert olympic_mean([1.0, None], dropped=0) is None


def test_one_run_alone_is_its_own_mean() -> None:
    assert olympic_mean([27.9], dropped=0) == 27.9


def test_equal_times_lose_one_at_each_end_all_the_same() -> None:
    assert olympic_mean([5.0, 5.0, 5.0], dropped=1) == 5.0


@pytest.mark.parametrize(("times", "dropped"), [([], 0), ([1.0, 2.0], 1), ([1.0] * 8, 4)])
def test_too_few_runs_to_drop_from_are_an_error(times: list[float], dropped: int) -> None:
    with pytest.raises(RuleError, match="to drop at each end"):
        olympic_mean(times, dropped=dropped)


@given(st.lists(SECONDS, min_size=3, max_size=20), st.randoms(use_true_random=False))
def test_the_olympic_mean_does_not_depend_on_the_order(times: list[float], random: object) -> None:
    shuffled = list(times)
    random.shuffle(shuffled)  # type: ignore[attr-defined]

    assert olympic_mean(shuffled, dropped=1) == olympic_mean(times, dropped=1)


@given(st.lists(SECONDS, min_size=3, max_size=20))
def test_the_olympic_mean_is_that_of_a_trimmed_sample(times: list[float]) -> None:
    oracle = scipy.stats.trim_mean(times, 1.0 / len(times) + 1e-9)

    assert olympic_mean(times, dropped=1) == pytest.approx(oracle, rel=1e-9)


def test_published_olympic_means_come_out(archives: Path) -> None:
    """Source: mlperf-logging's own figures for MLPerf Training v5.1."""
    expected = json.loads((archives / "mlperf/expected_v51.json").read_text())
    checked = 0
    for group in expected["groups"]:
        published = group.get("olympic_unscaled_min")
        minutes = [r["tta_min"] if r["converged"] else None for r in group["runs"]]
        if published is None or len(minutes) != group["n_expected"]:
            continue
        dropped = 4 if group["benchmark"] == "unet3d" else 1
        assert olympic_mean(minutes, dropped=dropped) == pytest.approx(published, rel=1e-9)
        checked += 1

    assert checked >= 10


@pytest.mark.parametrize(("count", "dropped"), [(3, 1), (5, 1), (10, 1), (40, 4), (5, 0)])
def test_an_olympic_mean_scatters_less_than_the_mean_of_as_many_runs_as_it_is_worth(
    count: int, dropped: int
) -> None:
    figures = np.sort(np.random.default_rng(5).normal(size=(20_000, count)), axis=1)
    variance = figures[:, dropped : count - dropped].mean(axis=1).var()

    assert 0.8 < variance * olympic_weight(count, dropped=dropped) < 1.03


def window_of(times: list[float | None], *, count: int, dropped: int) -> list[float | None]:
    return times[median_window(times, count=count, dropped=dropped)]


def test_of_more_runs_the_window_with_the_median_score_counts() -> None:
    """Source: MLPerf training_rules.adoc, "Benchmark results": N runs in a row out of M."""
    times: list[float | None] = [50.0, 51.0, 52.0, 90.0, 91.0]
    # Windows of 3, olympic: 51, 52, 90. The middle one is 51, 52, 90.

    assert window_of(times, count=3, dropped=1) == [51.0, 52.0, 90.0]
    # Here they are 50, 60, 45: the first.
    assert window_of([50.0, 60.0, 40.0, 70.0, 45.0], count=3, dropped=1) == [50.0, 60.0, 40.0]


def test_of_an_even_number_of_windows_the_slower_middle_one_counts() -> None:
    assert window_of([1.0, 2.0, 3.0, 4.0], count=3, dropped=1) == [2.0, 3.0, 4.0]


def test_windows_with_too_many_failures_count_as_infinite() -> None:
    times = [50.0, 51.0, 52.0, None, None]
    # Olympic means: 51, 52 (the failure dropped), invalid. The median is the second.

    assert window_of(times, count=3, dropped=1) == [51.0, 52.0, None]
    assert (
        olympic_mean(window_of([9.0, None, None, None, 9.0], count=3, dropped=1), dropped=1) is None
    )


def test_no_more_runs_than_needed_all_count() -> None:
    assert window_of([3.0, 1.0, 2.0], count=3, dropped=1) == [3.0, 1.0, 2.0]
    assert window_of([3.0], count=3, dropped=1) == [3.0]


@pytest.mark.parametrize(
    ("result_set", "percent"),
    [
        ("nvidia/submission/results/dgx1_ngc18.11_pytorch/ssd", 0.548),
        ("nvidia/submission/results/dgx1_multi_ngc18.11_pytorch/ssd", 6.721),
        ("nvidia/submission/results/dgx1_ngc18.11_pytorch/transformer", 13.778),
        ("nvidia/submission/results/dgx1_ngc18.11_mxnet/resnet", 0.413),
        ("google/cloud_v2.512/resnet-tpuv2-512/results/tpu/resnet", 6.748),
    ],
)
def test_published_variation_of_mlperf_v05_comes_out(
    archives: Path, result_set: str, percent: float
) -> None:
    """Source: Verma et al., "Demystifying the MLPerf Training Benchmark Suite", and its logs."""
    runs = json.loads((archives / "mlperf/expected_v05.json").read_text())[result_set]

    cv = coefficient_of_variation_percent([run["t_stop"] for run in runs])

    assert cv == pytest.approx(percent, abs=0.0006)


def test_variation_is_over_the_whole_population() -> None:
    assert coefficient_of_variation_percent([2.0, 4.0]) == pytest.approx(100 / 3)


def test_variation_takes_two_runs_and_a_time() -> None:
    assert coefficient_of_variation_percent([]) is None
    assert coefficient_of_variation_percent([5.0]) is None
    assert coefficient_of_variation_percent([0.0, 0.0]) is None
    assert coefficient_of_variation_percent([5.0, 5.0]) == 0.0


@given(st.lists(SECONDS, min_size=2, max_size=30))
def test_standard_deviations_are_those_of_the_statistics_module(values: list[float]) -> None:
    assert standard_deviation(values, ddof=0) == pytest.approx(
        statistics.pstdev(values), rel=1e-6, abs=1e-6
    )
    assert standard_deviation(values, ddof=1) == pytest.approx(
        statistics.stdev(values), rel=1e-6, abs=1e-6
    )
