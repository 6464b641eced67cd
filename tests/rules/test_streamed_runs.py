"""What an attempt without a report had finished, by the events that it posted."""

from dataclasses import asdict, replace
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark, ReachRule
from finishline.rules.errors import RuleError
from finishline.rules.verification.messages import Failure, ReplayRun
from finishline.rules.verification.sealed_runs import sealed_runs, streamed_runs
from tests.server.conftest import build_report

SEEDS = [11, 12, 13]


def events_of(run: ReplayRun, *, ended: bool = True, **end: Any) -> list[dict[str, Any]]:
    """The events of a run, as they are stored."""
    told: list[dict[str, Any]] = [{"run": run.index, "kind": "run_started"}]
    for item in run.evaluations:
        told.append({"run": run.index, "kind": "evaluation", **asdict(item)})
    finish = {
        "run": run.index,
        "kind": "run_finished",
        "status": run.status,
        "ledger": run.ledger,
        "cpu_seconds": run.cpu_seconds,
        "failure": None,
    }
    return [*told, finish | end] if ended else told


@pytest.fixture
def runs() -> list[ReplayRun]:
    return build_report(SEEDS).runs


def test_a_run_is_read_as_it_would_be_reported(digits: Benchmark, runs: list[ReplayRun]) -> None:
    events = [event for run in runs for event in events_of(run)]
    found = streamed_runs(digits, events, seeds=SEEDS)

    assert [run.seed for run in found] == SEEDS
    for run, reported in zip(found, runs, strict=True):
        assert run.parent_seconds == pytest.approx(reported.parent_seconds)
        assert replace(run, parent_seconds=None, child_seconds=None) == replace(
            reported, parent_seconds=None, child_seconds=None
        )


def test_a_run_at_the_target_is_finished_though_its_end_was_not_posted(
    digits: Benchmark, runs: list[ReplayRun]
) -> None:
    under_way = replace(runs[1], evaluations=runs[1].evaluations[:-1])
    events = events_of(runs[0], ended=False) + events_of(under_way, ended=False)
    (found,) = streamed_runs(digits, events, seeds=SEEDS)

    assert (found.index, found.tta_seconds) == (0, runs[0].tta_seconds)


def test_where_every_run_goes_to_its_end_only_that_finishes_it(
    digits: Benchmark, runs: list[ReplayRun]
) -> None:
    fixed = replace(digits, reach=ReachRule("fixed_stop", 1))

    assert streamed_runs(fixed, events_of(runs[0], ended=False), seeds=SEEDS) == []
    assert len(streamed_runs(fixed, events_of(runs[0]), seeds=SEEDS)) == 1


@pytest.mark.parametrize(
    ("kind", "code", "counted"),
    [("time_limit", "run_time_limit", 1), ("infrastructure", "child_died", 0)],
)
def test_a_run_past_its_limit_counts_and_one_that_the_machinery_ended_does_not(
    kind: Any, code: Any, counted: int, digits: Benchmark, runs: list[ReplayRun]
) -> None:
    short = replace(runs[0], evaluations=runs[0].evaluations[:3])
    failure = asdict(Failure(kind, code, "it ended", "look"))
    found = streamed_runs(digits, events_of(short, status="failed", failure=failure), seeds=SEEDS)
    report = replace(build_report(SEEDS), runs=found)

    sealed = sealed_runs(digits, report, own_runs=0)
    assert [run.seconds for run in sealed] == [None] * counted


def test_an_evaluation_without_a_figure_is_refused(
    digits: Benchmark, runs: list[ReplayRun]
) -> None:
    events = events_of(runs[0])
    events[1]["ledger"] = None

    with pytest.raises(RuleError, match="ledger"):
        streamed_runs(digits, events, seeds=SEEDS)


def test_nothing_posted_is_no_run(digits: Benchmark) -> None:
    assert streamed_runs(digits, [{"run": 0, "kind": "run_started"}], seeds=SEEDS) == []
