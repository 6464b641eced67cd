"""The runs that an attempt without a report had finished, read from the events that it posted."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from rules.benchmark import Benchmark
from rules.errors import RuleError
from rules.judge_convergence import evaluation_at_target
from rules.messages import Failure, ReplayEvaluation, ReplayRun
from rules.report_ledger import ledger_of, seconds_after_preparation

Event = Mapping[str, Any]
FIELDS = ("epoch", "samples", "seconds", "quality", "ledger")


def streamed_runs(
    benchmark: Benchmark, events: Sequence[Event], *, seeds: Sequence[int]
) -> list[ReplayRun]:
    """Read the finished runs of an attempt, in order, up to the first that was under way.

    A run is finished once its end was posted, or an evaluation at the target: a worker that falls
    silent after a slow run takes nothing back. Raises RuleError for an evaluation without a figure.
    """
    found = []
    for index, seed in enumerate(seeds):
        own = [event for event in events if event["run"] == index]
        run = _finished(benchmark, index, seed, own)
        if run is None:
            break
        found.append(run)
    return found


def _finished(
    benchmark: Benchmark, index: int, seed: int, events: Sequence[Event]
) -> ReplayRun | None:
    evaluations = [_evaluation(event) for event in events if event["kind"] == "evaluation"]
    end = next((event for event in events if event["kind"] == "run_finished"), None)
    if end is None and not evaluations:
        return None
    told = end or {"status": "reached", "ledger": evaluations[-1].ledger}
    run = ReplayRun(
        index=index,
        seed=seed,
        status=told["status"],
        evaluations=evaluations,
        ledger=told["ledger"] or {},
        cpu_seconds=told.get("cpu_seconds"),
        failure=_failure(told.get("failure")),
    )
    reached = evaluation_at_target(benchmark, run)
    if end is None and (reached is None or benchmark.reach.name == "fixed_stop"):
        return None
    # Only the worker's clock is posted, so it stands for the training's own.
    span = seconds_after_preparation(ledger_of(run.ledger, f"runs[{index}]"))
    return replace(
        run,
        tta_seconds=None if reached is None else reached.seconds,
        parent_seconds=span,
        child_seconds=span,
    )


def _evaluation(event: Event) -> ReplayEvaluation:
    missing = [name for name in FIELDS if event[name] is None]
    if missing:
        raise RuleError(
            "missing", field=f"runs[{event['run']}].evaluations.{missing[0]}", expected="a figure"
        )
    return ReplayEvaluation(**{name: event[name] for name in FIELDS})


def _failure(told: Mapping[str, Any] | None) -> Failure | None:
    return None if told is None else Failure(**told)
