"""Runs of pools: those of a report that count, the owners behind them, and the spread of times."""

from collections import defaultdict

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.tta import calibrated_spread
from finishline.rules.statistics.aggregate import Spread, pooled_spread
from finishline.rules.verification.judge import why_not_timed
from finishline.rules.verification.messages import ReplayReport
from server.base.board_versions import raise_board_version
from server.base.models import Attempt, Pool, PoolRun, User, Verification, WorkerRow
from server.verifications.queries import is_of_latest_report
from server.verifications.sealed_runs import SealedRun, sealed_runs
from server.verifications.workers import is_organisers


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


# All organisers' workers count as one owner's.
THE_ORGANISERS = None


def count_owners(session: Session, pool: Pool) -> None:
    """Count the owners behind a pool's runs."""
    owners = _owners(session, pool)
    pool.owners, pool.by_organisers = len(owners), THE_ORGANISERS in owners


def follow_owners(session: Session, pool: Pool) -> None:
    """Count the owners again; raises the board's version if the count changes."""
    before = (pool.owners, pool.by_organisers)
    count_owners(session, pool)
    if (pool.owners, pool.by_organisers) != before:
        raise_board_version(session, pool.benchmark_id)


def follow_worker(session: Session, name: str) -> None:
    """Count the owners again for each pool with runs that a worker trained or checked."""
    session.flush()
    behind = or_(
        Verification.id == PoolRun.verification_id,
        Verification.checks_id == PoolRun.verification_id,
    )
    statement = (
        select(Pool)
        .join(PoolRun, PoolRun.pool_id == Pool.id)
        .join(Verification, behind)
        .join(Attempt, Attempt.verification_id == Verification.id)
        .where(Attempt.worker == name)
    )
    for pool in session.scalars(statement).unique().all():
        follow_owners(session, pool)


def _owners(session: Session, pool: Pool) -> set[int | None]:
    trained = select(PoolRun.attempt_id).where(PoolRun.pool_id == pool.id)
    behind = select(PoolRun.verification_id).where(PoolRun.pool_id == pool.id)
    agreed = and_(
        Verification.checks_id.in_(behind),
        Verification.outcome == "verified",
        is_of_latest_report(),
        Attempt.state == "done",
    )
    # Members of one organisation count as one owner.
    whose = func.coalesce(-User.organisation_id, WorkerRow.user_id).label("whose")
    statement = (
        select(whose, User.role, WorkerRow.confirmed_at, WorkerRow.confirmed_by)
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(WorkerRow, WorkerRow.name == Attempt.worker)
        .outerjoin(User, User.id == WorkerRow.user_id)
        .where(or_(Attempt.id.in_(trained), agreed))
        .distinct()
    )
    rows = session.execute(statement).all()
    return {THE_ORGANISERS if is_organisers(row) else row.whose for row in rows}


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
