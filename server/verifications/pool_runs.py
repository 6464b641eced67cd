"""Runs of pools: those of a report that count, and the spread of times."""

from collections import defaultdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.tta import calibrated_spread
from finishline.rules.statistics.aggregate import Spread, pooled_spread
from finishline.rules.verification.judge import why_not_timed
from finishline.rules.verification.messages import ReplayReport
from server.base.models import Pool, PoolRun, Verification
from server.verifications.sealed_runs import SealedRun, sealed_runs


def counted_runs(
    verification: Verification, benchmark: Benchmark, report: ReplayReport, *, hardware_class: str
) -> list[SealedRun]:
    """Sealed runs of a report that measure a time: no control, no repeat.

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
