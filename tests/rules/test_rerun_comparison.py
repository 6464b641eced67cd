"""Two replays of one submission: means, ratio, and how likely the difference is by chance."""

from typing import Any

import numpy as np
import pytest
from scipy import stats

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.rerun_comparison import (
    compare_replays,
    compare_systems,
    figures_of,
    two_sided_p,
)

SYSTEM = WorkerSystem("w", "cpu", "any", 2, 24.0, None, 0, 1, {"torch": "2.13.0"})


def report(seconds: list[float], *, quality: float = 98.0, **system: Any) -> ReplayReport:
    runs = [
        ReplayRun(
            index=index,
            seed=index,
            status="reached" if quality >= 97.5 else "not_reached",
            evaluations=[
                ReplayEvaluation(1.0, 100, s / 2, 50.0, {}),
                ReplayEvaluation(2.0 + index, 200, s, quality, {}),
            ],
            ledger={},
            tta_seconds=s if quality >= 97.5 else None,
        )
        for index, s in enumerate(seconds)
    ]
    return ReplayReport(runs, WorkerSystem(**(vars(SYSTEM) | system)))


def test_the_p_value_is_that_of_welchs_test_on_log_times(digits: Benchmark) -> None:
    first, second = [1.0, 1.1, 1.05, 0.98], [1.3, 1.25, 1.4]
    times, epochs = compare_replays(digits, report(first), report(second))
    wanted = stats.ttest_ind(np.log(first), np.log(second), equal_var=False).pvalue

    assert times.p_value == pytest.approx(wanted)
    assert times.ratio == pytest.approx(1.0325 / (3.95 / 3))
    assert (times.figure, times.comparable) == ("tta_seconds", True)
    assert (epochs.first_mean, epochs.second_mean) == (3.5, 3.0)


def test_times_on_other_hardware_are_not_compared_but_epochs_are(digits: Benchmark) -> None:
    times, epochs = compare_replays(
        digits, report([1.0, 1.1]), report([2.0, 2.1], hardware_class="gpu")
    )

    assert (times.comparable, times.p_value) == (False, None)
    assert (epochs.comparable, epochs.p_value) == (True, pytest.approx(1.0))


def test_replays_without_a_time_have_no_means(digits: Benchmark) -> None:
    times, epochs = compare_replays(digits, report([1.0]), report([1.0, 2.0], quality=90.0))

    assert (times.first_mean, times.second_mean, times.ratio, times.p_value) == (
        1,
        None,
        None,
        None,
    )
    assert epochs.p_value is None
    assert [run.best_quality for run in figures_of(digits, report([1.0], quality=90.0))] == [90.0]


@pytest.mark.parametrize(
    ("first", "second", "wanted"),
    [([2.0, 2.0], [2.0, 2.0], 1.0), ([3.0, 3.0], [2.0, 2.0], 0.0), ([2.0, 2.0], [3.0, 3.0], 0.0)],
)
def test_without_any_scatter_the_same_is_chance_and_a_difference_is_not(
    first: list[float], second: list[float], wanted: float
) -> None:
    assert two_sided_p(first, second) == wanted


def test_systems_differ_where_they_differ() -> None:
    other = report([1.0], threads=2, software={"torch": "2.14.0", "numpy": "2"})
    found = [(d.field, d.first, d.second) for d in compare_systems(report([1.0]), other)]

    assert found == [
        ("software.numpy", None, "2"),
        ("software.torch", "2.13.0", "2.14.0"),
        ("threads", "1", "2"),
    ]
