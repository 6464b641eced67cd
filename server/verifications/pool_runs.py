"""Runs of pools: those of a report that count, and the spread of times."""

from collections import defaultdict
from dataclasses import dataclass

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.tta import calibrated_spread
from finishline.rules.statistics.aggregate import SHORTEST_SECONDS, Spread, pooled_spread
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.control_points import has_default_settings, is_calibrated
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.replay import is_excused, why_not_timed
from server.base.models import Pool, PoolRun, Verification


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


def counted_runs(
    verification: Verification, benchmark: Benchmark, report: ReplayReport, *, hardware_class: str
) -> list[SealedRun]:
    """Measured runs of a report that measure a time: no control, no repeat.

    There is no such run unless a worker of the class trained them that had not drifted.
    """
    if why_not_timed(report, hardware_class=hardware_class) is not None:
        return []
    untimed = verification.control_runs | verification.repeat_runs
    runs = sealed_runs(benchmark, report)
    return [run for run in runs if run.index not in untimed]


class Spreads:
    """Spread of each hardware class; below ten runs, that of the calibrated epochs."""

    def __init__(self, session: Session, benchmark: Benchmark) -> None:
        self._of_class = _of_classes(session, benchmark.benchmark_id)
        self._calibrated = calibrated_spread(benchmark)

    def of(self, hardware_class: str) -> Spread | None:
        """Spread of one run's log time on a class; None without a basis for it."""
        return self._of_class.get(hardware_class) or self._calibrated


def _of_classes(session: Session, benchmark_id: str) -> dict[str, Spread]:
    statement = (
        select(Pool.hardware_class, Pool.id, PoolRun.seconds)
        .join(PoolRun, PoolRun.pool_id == Pool.id)
        .where(Pool.benchmark_id == benchmark_id, PoolRun.seconds.is_not(None))
    )
    pools: defaultdict[str, defaultdict[str, list[float]]]
    pools = defaultdict(lambda: defaultdict(list))
    for hardware_class, pool_id, seconds in session.execute(statement):
        if seconds is not None:
            pools[hardware_class][pool_id].append(seconds)
    found = {name: pooled_spread(those.values()) for name, those in pools.items()}
    return {name: spread for name, spread in found.items() if spread is not None}
