"""Sealed runs of a replay: which count in a pool, and which finished."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.verification.judge import is_excused
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import (
    Failure,
    ReplayEvaluation,
    ReplayReport,
    ReplayRun,
)
from finishline.rules.verification.report_check import ledger_of, seconds_after_preparation
from finishline.rules.verification.report_stream import COMPARED


@dataclass(frozen=True)
class SealedRun:
    """Run `index` of a verification; `seconds` is None of a miss, which counts as infinite."""

    index: int
    seed: int
    seconds: float | None
    epochs: float | None


def sealed_runs(benchmark: Benchmark, report: ReplayReport, *, own_runs: int) -> list[SealedRun]:
    """The runs of a report that count in the pool of its configuration.

    The first `own_runs` have the claim's own seeds, which were not sealed. A run that the machinery
    ended is no run; one that missed the target or ran into its limit is infinite.
    """
    found = []
    for run in report.runs:
        if run.index < own_runs or is_excused(run):
            continue
        reached = evaluation_at_target(benchmark, run)
        if reached is None or run.tta_seconds is None:
            found.append(SealedRun(run.index, run.seed, None, None))
        else:
            seconds = max(run.tta_seconds, SHORTEST_SECONDS)
            found.append(SealedRun(run.index, run.seed, seconds, reached.epoch))
    return found


Event = Mapping[str, Any]
NEEDED = ("epoch", "seconds", "quality", "ledger")


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
    # Only the worker's clock is posted, so it replaces the training's own.
    span = seconds_after_preparation(ledger_of(run.ledger, f"runs[{index}]"))
    return replace(
        run,
        tta_seconds=None if reached is None else reached.seconds,
        parent_seconds=span,
        child_seconds=span,
    )


def _evaluation(event: Event) -> ReplayEvaluation:
    missing = [name for name in NEEDED if event[name] is None]
    if missing:
        raise RuleError(
            "missing", field=f"runs[{event['run']}].evaluations.{missing[0]}", expected="a figure"
        )
    told: dict[str, Any] = {name: event.get(name) for name in COMPARED}
    return ReplayEvaluation(**told)


def _failure(told: Mapping[str, Any] | None) -> Failure | None:
    return None if told is None else Failure(**told)
