"""Reports that cannot be true are refused before anything is judged by them."""

from dataclasses import replace
from typing import Any

import pytest

from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import (
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
    WorkerSystem,
)
from finishline.rules.verification.report_check import check_report

SYSTEM = WorkerSystem("w", "cpu", "any", 2, 24.0, None, 0, 1, {})
SEEDS = [11, 12]


def make_run(index: int) -> ReplayRun:
    evaluations = [ReplayEvaluation(float(j), j * 100, j * 0.5, 90.0 + j, {}) for j in (1, 2, 3)]
    return ReplayRun(
        index=index,
        seed=SEEDS[index],
        status="reached",
        evaluations=evaluations,
        ledger={},
        tta_seconds=1.5,
        parent_seconds=1.5,
        child_seconds=1.5,
        cpu_seconds=1.5,
    )


def report(**changes: Any) -> ReplayReport:
    """A consistent report, but for what is changed in its second run."""
    return ReplayReport([make_run(0), replace(make_run(1), **changes)], SYSTEM)


def test_a_consistent_report_passes() -> None:
    check_report(report(), seeds=SEEDS)


def test_a_run_that_did_not_reach_needs_no_time() -> None:
    check_report(report(status="not_reached", tta_seconds=None), seeds=SEEDS)


def test_two_evaluations_may_have_one_time_and_a_run_may_take_less_than_a_second() -> None:
    at_once = [ReplayEvaluation(j / 2, j, 0.4, 97.0 + j, {}) for j in (1, 2)]
    changes = {"tta_seconds": 0.4, "parent_seconds": 0.4, "child_seconds": 0.4}
    check_report(report(evaluations=at_once, **changes), seeds=SEEDS)


BACKWARDS = [ReplayEvaluation(1.0, 100, 0.9, 91.0, {}), ReplayEvaluation(2.0, 200, 0.8, 98.0, {})]
NEGATIVE = [ReplayEvaluation(1.0, 100, -0.1, 98.0, {})]


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"seed": 13}, "runs.seed"),
        ({"index": 0}, "runs[1].index"),
        ({"evaluations": BACKWARDS, "tta_seconds": 0.8}, "runs[1].evaluations.seconds"),
        ({"evaluations": NEGATIVE, "tta_seconds": -0.1}, "runs[1].evaluations.seconds"),
        ({"evaluations": []}, "runs[1].tta_seconds"),
        ({"tta_seconds": None}, "runs[1].tta_seconds"),
        ({"tta_seconds": 0.7}, "runs[1].tta_seconds"),
        ({"tta_seconds": 1.0}, "runs[1].tta_seconds"),  # it went on after its target
        ({"parent_seconds": 0.0}, "runs[1].parent_seconds"),
        ({"child_seconds": None}, "runs[1].child_seconds"),
    ],
)
def test_an_impossible_report_is_refused_by_field(changes: dict[str, Any], field: str) -> None:
    with pytest.raises(RuleError) as refused:
        check_report(report(**changes), seeds=SEEDS)
    assert refused.value.field == field


def test_the_refusal_does_not_tell_the_seeds() -> None:
    with pytest.raises(RuleError) as refused:
        check_report(report(seed=13), seeds=SEEDS)
    assert "12" not in str(refused.value)


@pytest.mark.parametrize("seconds", [0.5, 1.0, 1.5])
def test_a_run_that_goes_on_to_its_end_may_have_reached_at_any_evaluation(seconds: float) -> None:
    check_report(report(tta_seconds=seconds), seeds=SEEDS, stop_at="end")


@pytest.mark.parametrize("seconds", [0.0, 0.7, 2.0])
def test_a_time_between_evaluations_is_refused_for_a_run_to_its_end_too(seconds: float) -> None:
    with pytest.raises(RuleError) as refused:
        check_report(report(tta_seconds=seconds), seeds=SEEDS, stop_at="end")
    assert refused.value.field == "runs[1].tta_seconds"
