"""The sealed runs of a replay: which count in a pool, with which time."""

from dataclasses import dataclass

from rules.benchmark import Benchmark
from rules.judge_convergence import evaluation_at_target
from rules.measurements import QUIET_CPU_SHARE
from rules.messages import ReplayReport
from rules.significance import SHORTEST_SECONDS
from rules.verification import is_excused


@dataclass(frozen=True)
class SealedRun:
    """Run `index` of a verification; `seconds` is None of a miss, which counts as infinite."""

    index: int
    seed: int
    seconds: float | None
    epochs: float | None


def sealed_runs(benchmark: Benchmark, report: ReplayReport, *, own_runs: int) -> list[SealedRun]:
    """The runs of a report that count in the pool of its configuration.

    The first `own_runs` have the claim's own seeds, which nobody sealed. A run that the machinery
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


def why_not_timed(report: ReplayReport, *, hardware_class: str) -> str | None:
    """Why a report's times measure nothing on a hardware class, or None if they do."""
    if report.system.hardware_class != hardware_class:
        return f"trained on {report.system.hardware_class}, not on {hardware_class}"
    if report.drift is not None:
        return f"the worker was {report.drift}"
    if report.system.accelerator_count:
        return None
    shares = [
        run.cpu_seconds / run.parent_seconds
        for run in report.runs
        if run.cpu_seconds is not None and run.parent_seconds
    ]
    if min(shares, default=1.0) < QUIET_CPU_SHARE:
        return f"the worker's processor was shared: {min(shares):.0%} of it was left"
    return None
