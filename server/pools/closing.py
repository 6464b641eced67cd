"""Closing a pool after a change of worker or software: its runs stay, and count no more."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from server.audit.service import Subject, record
from server.board_versions import raise_board_version
from server.dependencies import Caller
from server.errors import ConflictError
from server.models import Pool, Submission
from server.pools.evidence import follow_evidence
from server.pools.fresh import confirm_risen, fresh_runs_under_way
from server.pools.queries import find_pool
from server.pools.service import close_pool
from server.verifications.queries import lock_verification
from server.verifications.service import cancel_verification


def close_as_organiser(session: Session, caller: Caller, pool_id: str, reason: str) -> Pool:
    """Close a pool, so that the next replay of its configuration opens another one.

    Its submissions are claimed until then. Fresh runs of it that are under way are cancelled.
    Raises NotFoundError, ConflictError if it is closed.
    """
    pool = find_pool(session, pool_id)
    # The board's row is locked by this: of two requests the second finds the pool closed.
    raise_board_version(session, pool.benchmark_id)
    session.refresh(pool)
    if pool.closed_at is not None:
        raise ConflictError(f"Pool {pool.id} is closed ({pool.closed_because}).")
    fresh = fresh_runs_under_way(session, pool)
    if fresh is not None:
        lock_verification(session, fresh.id)
        cancel_verification(session, fresh)
    before = {"state": pool.state, "measured_seconds": pool.measured_seconds, "runs": pool.runs}
    close_pool(pool, reason)
    dropped = _let_go(session, pool)
    confirm_risen(session, pool, requested_by=caller.user_id)
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
    """The submissions that were measured by a pool, which are claimed from here on."""
    dropped = []
    for submission in session.scalars(select(Submission).where(Submission.pool_id == pool.id)):
        if submission.evidence == "measured":
            dropped.append(submission.id)
        submission.pool_id = None
        follow_evidence(session, submission)
        raise_board_version(session, pool.benchmark_id, submission_id=submission.id)
    return dropped
