"""An organiser's request for fresh runs that failed or were cancelled."""

from sqlalchemy.orm import Session

from server.audit.service import Subject, record
from server.board_versions import raise_board_version
from server.dependencies import Caller
from server.errors import ConflictError
from server.models import Verification
from server.pools.fresh import ask_for_fresh_runs, earliest_live
from server.pools.queries import find_pool


def ask_again_for_fresh_runs(session: Session, caller: Caller, pool_id: str) -> Verification:
    """Ask for the fresh runs of an unconfirmed pool; written to the audit log.

    Raises NotFoundError, ConflictError if the pool does not wait for any.
    """
    pool = find_pool(session, pool_id)
    # The board's row is locked by this, so that two requests take turns.
    raise_board_version(session, pool.benchmark_id)
    session.refresh(pool)
    submission = earliest_live(session, pool)
    if pool.state != "unconfirmed" or pool.closed_at is not None or submission is None:
        raise ConflictError(
            f"Pool {pool.id} waits for no fresh runs ({pool.state}); expected a pool that is "
            "unconfirmed, with a submission that ranks."
        )
    verification = ask_for_fresh_runs(
        session, pool, submission, requested_by=caller.user_id, reason="fresh runs: asked again"
    )
    record(
        session,
        caller,
        "pool.fresh_runs",
        Subject("pool", pool.id),
        reason=None,
        before={"state": "unconfirmed"},
        after={"verification": verification.id, "seal": verification.seal},
    )
    return verification
