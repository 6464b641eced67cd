"""Whose workers stand behind the counted runs of a pool: those that trained or checked them."""

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from server.board_versions import raise_board_version
from server.database import utc_now
from server.models import Attempt, Pool, PoolRun, User, Verification, WorkerRow
from server.workers.owners import is_organisers

# All organisers' workers count as one owner's.
THE_ORGANISERS = None


def count_owners(session: Session, pool: Pool) -> None:
    """Count the owners behind a pool's runs, and date when they became enough for a record."""
    owners = _owners(session, pool)
    pool.owners, pool.by_organisers = len(owners), THE_ORGANISERS in owners
    if not (pool.by_organisers or pool.owners > 1):
        pool.attested_at = None
    elif pool.attested_at is None:
        pool.attested_at = utc_now()


def follow_owners(session: Session, pool: Pool) -> None:
    """Count the owners again; a board whose figures change says so."""
    before = (pool.owners, pool.by_organisers)
    count_owners(session, pool)
    if (pool.owners, pool.by_organisers) != before:
        raise_board_version(session, pool.benchmark_id)


def follow_worker(session: Session, name: str) -> None:
    """Count the owners again behind each pool that a worker trained or checked runs of."""
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
    counted = (PoolRun.pool_id == pool.id, PoolRun.counted.is_(True))
    trained = select(PoolRun.attempt_id).where(*counted)
    behind = select(PoolRun.verification_id).where(*counted)
    agreed = and_(
        Verification.checks_id.in_(behind),
        Verification.outcome == "verified",
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
