"""Sealed runs of a replay: which count in a pool, and which finished."""

from dataclasses import dataclass

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.control_points import has_default_settings, is_calibrated
from finishline.rules.verification.judge import is_excused
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import (
    ReplayReport,
)


@dataclass(frozen=True)
class SealedRun:
    """Run `index` of a verification; `seconds` is None of a miss, which counts as infinite."""

    index: int
    seed: int
    seconds: float | None
    epochs: float | None


def sealed_runs(benchmark: Benchmark, report: ReplayReport) -> list[SealedRun]:
    """Runs of a report that count in a pool.

    A run that the infrastructure ended is left out. One that missed the target is infinite.
    """
    found = []
    for run in report.runs:
        if is_excused(run):
            continue
        reached = evaluation_at_target(benchmark, run)
        if reached is None or run.tta_seconds is None:
            found.append(SealedRun(run.index, run.seed, None, None))
        else:
            seconds = max(run.tta_seconds, SHORTEST_SECONDS)
            found.append(SealedRun(run.index, run.seed, seconds, reached.epoch))
    return found


def is_uncalibrated(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether a claim has the reference's settings at a batch size without calibration."""
    return has_default_settings(benchmark, claim) and not is_calibrated(benchmark, claim)
