"""Is a replay report possible at all? A verdict is only as good as the numbers it stands on."""

from collections.abc import Sequence
from itertools import pairwise

from rules.benchmark import Benchmark
from rules.claim_checks_figures import is_possible, possible_in_words
from rules.counts import count_text
from rules.errors import RuleError
from rules.judge_convergence import evaluation_at_target
from rules.messages import ReplayReport, ReplayRun, StopAt


def check_report(report: ReplayReport, *, seeds: Sequence[int], stop_at: StopAt = "target") -> None:
    """Raise RuleError, naming the run, unless the report is one of this plan and consistent.

    The runs are those that were planned, in order and each with its seed; a run's times are not
    negative and do not decrease; a run that reached the target has a time that its evaluations
    and both clocks bear out: the last evaluation's where runs stop at the target, one of them
    where they go on to their end.
    """
    found = [run.seed for run in report.runs]
    if found != list(seeds):
        # What was drawn stays sealed: the message tells what was sent, not what is right.
        raise RuleError(
            f"the report has the seeds {found}",
            field="runs.seed",
            expected=f"the {count_text(len(seeds), 'seed')} of the plan, in order",
        )
    for position, run in enumerate(report.runs):
        if run.index != position:
            raise _impossible(position, "index", f"run {run.index}", f"{position}, as planned")
        _check_times(position, run, stop_at)


def check_qualities(run: ReplayRun, benchmark: Benchmark) -> None:
    """Raise RuleError, naming run and field, unless a run's qualities are possible.

    A run that reached the target has an evaluation at it.
    """
    for index, item in enumerate(run.evaluations):
        if not is_possible(benchmark.target, item.quality):
            field = f"evaluations[{index}].quality"
            found, expected = f"{item.quality:g}", possible_in_words(benchmark.target)
            raise _impossible(run.index, field, found, expected)
    if run.status == "reached" and evaluation_at_target(benchmark, run) is None:
        expected = benchmark.target.in_words
        raise _impossible(run.index, "status", "reached, by no evaluation", expected)


def _check_times(position: int, run: ReplayRun, stop_at: StopAt) -> None:
    times = [0.0, *(evaluation.seconds for evaluation in run.evaluations)]
    if any(later < earlier for earlier, later in pairwise(times)):
        raise _impossible(
            position, "evaluations.seconds", "time runs backwards", "times that do not decrease"
        )
    if run.status != "reached":
        return
    if run.tta_seconds is None or not run.evaluations:
        raise _impossible(position, "tta_seconds", "missing", "a time for a run that reached")
    possible = times[-1:] if stop_at == "target" else times[1:]
    if min(abs(run.tta_seconds - seconds) for seconds in possible) > 1e-6:
        whose = "the last evaluation's" if stop_at == "target" else "or an earlier evaluation's"
        raise _impossible(
            position, "tta_seconds", f"{run.tta_seconds:g}", f"{times[-1]:g}, {whose}"
        )
    for name, span in (
        ("parent_seconds", run.parent_seconds),
        ("child_seconds", run.child_seconds),
    ):
        if span is None or span <= 0:
            raise _impossible(position, name, f"{span}", "a positive span on either clock")


def _impossible(position: int, field: str, found: str, expected: str) -> RuleError:
    return RuleError(
        f"run {position} of the report: {found}",
        field=f"runs[{position}].{field}",
        expected=expected,
    )
