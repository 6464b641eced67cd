"""Organisers' requests about pools: read, and close after a change."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from server.base.board_versions import raise_board_version
from server.base.errors import ConflictError, no_such
from server.base.models import Pool, PoolRun, Submission, Verification
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.verifications.pool_views import PoolRunView, PoolView
from server.verifications.pools import close_pool, follow_evidence


def find_pool(session: Session, pool_id: str) -> Pool:
    """A pool by id. Raises NotFoundError."""
    pool = session.get(Pool, pool_id)
    if pool is None:
        raise no_such("pool", pool_id)
    return pool


def _lock_pool(session: Session, pool_id: str) -> Pool:
    """Lock the board of a pool, so that requests about it take turns, and read the pool again."""
    pool = find_pool(session, pool_id)
    raise_board_version(session, pool.benchmark_id)
    session.refresh(pool)
    return pool


def view_pool(session: Session, pool_id: str) -> PoolView:
    """A pool with its runs. Raises NotFoundError where the reader may see none of its submissions.

    Those are the submissions that it measures, and those that were trained for it.
    """
    pool = find_pool(session, pool_id)
    trained = select(Verification.submission_id).where(Verification.pool_id == pool.id)
    named = or_(Submission.pool_id == pool.id, Submission.id.in_(trained))
    statement = select(Submission.id).where(named)
    seen = session.scalars(statement.order_by(Submission.submitted_at, Submission.id)).all()
    if not seen:
        raise no_such("pool", pool_id)
    return PoolView.of(
        pool,
        benchmark=pool.benchmark_id,
        submissions=list(seen),
        runs=[_run_view(run) for run in _runs(session, pool)],
    )


def _runs(session: Session, pool: Pool) -> list[PoolRun]:
    """Runs of a pool in training order."""
    statement = (
        select(PoolRun)
        .join(Verification, Verification.id == PoolRun.verification_id)
        .where(PoolRun.pool_id == pool.id)
        .order_by(Verification.created_at, PoolRun.verification_id, PoolRun.index)
    )
    return list(session.scalars(statement))


def _run_view(run: PoolRun) -> PoolRunView:
    return PoolRunView.of(run, run=run.index)


def close_as_organiser(session: Session, caller: Caller, pool_id: str, reason: str) -> Pool:
    """Close a pool, so that the next replay of its configuration opens another one.

    Its submissions are claimed until then.
    Raises NotFoundError, ConflictError if it is closed.
    """
    pool = _lock_pool(session, pool_id)
    if pool.closed_at is not None:
        raise ConflictError(f"Pool {pool.id} is closed ({pool.closed_because}).")
    before = {"state": pool.state, "measured_seconds": pool.measured_seconds, "runs": pool.runs}
    close_pool(pool, reason)
    dropped = _let_go(session, pool)
    record(
        session,
        caller,
        "pool.close",
        Subject("pool", pool.id),
        reason=reason,
        before=before,
        after={
            "closed_at": pool.closed_at,
            "consequence": f"{count_text(len(dropped), 'submission')} dropped from measured to "
            "claimed until the configuration is trained again",
            "submissions": dropped,
        },
    )
    return pool


def _let_go(session: Session, pool: Pool) -> list[str]:
    """Release the submissions measured by a pool, which become claimed; returns their ids."""
    dropped = []
    for submission in session.scalars(select(Submission).where(Submission.pool_id == pool.id)):
        if submission.evidence == "measured":
            dropped.append(submission.id)
        submission.pool_id = None
        follow_evidence(session, submission)
    return dropped
