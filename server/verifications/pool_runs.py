"""Runs of pools: runs of lost attempts, the owners behind the runs, and the spread of times."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.scoring.calibrated_runs import calibrated_spread
from finishline.rules.statistics.aggregate import Spread, pooled_spread
from finishline.rules.verification.cross_check import compare_runs
from finishline.rules.verification.judge_time import why_not_timed
from finishline.rules.verification.messages import ReplayReport, ReplayRun, WorkerSystem
from finishline.rules.verification.report_check import check_report
from finishline.rules.verification.report_stream import CLOCK_SLACK_SECONDS
from server.base.board_versions import raise_board_version
from server.base.models import (
    Attempt,
    Pool,
    PoolRun,
    ReplayEventRow,
    User,
    Verification,
    WorkerRow,
)
from server.verifications.queries import is_of_latest_report
from server.verifications.report_checks import posted_events, why_refused
from server.verifications.sealed_runs import SealedRun, sealed_runs, streamed_runs
from server.verifications.workers import is_organisers, is_organisers_worker

ENDED_EARLY = ("lost", "failed")


def posted_runs(session: Session, attempt: Attempt, benchmark: Benchmark) -> list[ReplayRun]:
    """Read the finished runs of an attempt from its events. Raises RuleError for invalid events."""
    rows = session.scalars(
        select(ReplayEventRow.event)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence)
    )
    return streamed_runs(benchmark, rows.all(), seeds=attempt.verification.seeds)


# A worker that said one thing and posted another, or is out, is not believed about any run.
NOT_BELIEVED = ("report_refused", "worker_drifted", "device_unfit")


@dataclass(frozen=True)
class LostAttempt:
    """The finished runs of an attempt, as its worker would have reported them."""

    attempt_id: str
    report: ReplayReport
    by_organisers: bool


def first_finished(
    session: Session,
    verification: Verification,
    benchmark: Benchmark,
    report: ReplayReport | None,
    *,
    hardware_class: str,
) -> list[tuple[str, SealedRun]]:
    """Sealed runs of a verification: for each seed, the training that finished first.

    Each comes with the id of its attempt. A control or a repeat is none of them.

    Without a `report` only runs of lost attempts are returned. Runs that were not timed on a quiet
    worker of the class are left out.
    """
    own_runs = verification.own_runs
    found: dict[int, tuple[str, SealedRun]] = {}
    for lost in _lost_attempts(session, verification, benchmark):
        believed = [run for run in lost.report.runs if _is_believed(lost, run, benchmark, report)]
        timed = replace(lost.report, runs=believed)
        if why_not_timed(timed, hardware_class=hardware_class) is None:
            for run in sealed_runs(benchmark, timed, own_runs=own_runs):
                found.setdefault(run.index, (lost.attempt_id, run))
    if report is not None and why_not_timed(report, hardware_class=hardware_class) is None:
        for run in sealed_runs(benchmark, report, own_runs=own_runs):
            found.setdefault(run.index, (verification.attempts[-1].id, run))
    untimed = verification.control_runs | verification.repeat_runs
    return [found[index] for index in sorted(found) if index not in untimed]


def _is_believed(
    lost: LostAttempt, run: ReplayRun, benchmark: Benchmark, report: ReplayReport | None
) -> bool:
    if lost.by_organisers:
        return True
    if report is None:
        return False
    limit = None if benchmark.replay is None else benchmark.replay.equal_seed_distance
    agreement = compare_runs(run, report.runs[run.index], limit=limit)
    return agreement is not None and agreement.agrees and agreement.paced


def _lost_attempts(
    session: Session, verification: Verification, benchmark: Benchmark
) -> Iterator[LostAttempt]:
    codes = [
        (attempt.worker, (attempt.failure or {}).get("code")) for attempt in verification.attempts
    ]
    not_believed = {worker for worker, code in codes if code in NOT_BELIEVED}
    for attempt in verification.attempts:
        if attempt.state not in ENDED_EARLY or attempt.worker in not_believed:
            continue
        worker = None if attempt.worker is None else session.get(WorkerRow, attempt.worker)
        if worker is None:
            continue
        report = _finished_runs(session, attempt, benchmark, worker)
        if report is not None:
            yield LostAttempt(attempt.id, report, is_organisers_worker(session, worker.name))


def _finished_runs(
    session: Session, attempt: Attempt, benchmark: Benchmark, worker: WorkerRow
) -> ReplayReport | None:
    """Report of the finished runs of an attempt; None unless it passes all checks of reports."""
    seeds = attempt.verification.seeds
    try:
        runs = posted_runs(session, attempt, benchmark)
        report = ReplayReport(runs=runs, system=WorkerSystem(**worker.system))
        check_report(report, seeds=seeds[: len(runs)])
    except (RuleError, TypeError):  # A worker of another version may say less of its system.
        return None
    posted = [event for event in posted_events(session, attempt) if event.run < len(runs)]
    why = why_refused(session, attempt, report, posted, slack_seconds=CLOCK_SLACK_SECONDS)
    return report if runs and why is None else None


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
