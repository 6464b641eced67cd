"""Fresh runs: a configuration that would rank at the top is trained again and measured anew."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.ranking.records import Contender, measured_history
from finishline.rules.verification.purposes import REPLAY
from finishline.rules.verification.replay_plan import FRESH_RUNS
from finishline.rules.verification.sealed_runs import FIRST, HELD_BACK, why_fresh_runs
from server.base.board_versions import raise_board_version
from server.base.models import Pool, PoolRun, Submission, Verification
from server.base.models.visibility import ranks
from server.base.standing import OPEN
from server.benchmarks.queries import definition
from server.verifications.queueing import order_about, queue_job
from server.verifications.record_candidates import contenders


def follow_measurement(session: Session, verification: Verification) -> None:
    """Request fresh runs for a pool that was measured among the first of its division.

    If fresh runs measure nothing, their pool stays unconfirmed until it is measured again.
    """
    pool = None if verification.pool_id is None else session.get(Pool, verification.pool_id)
    if pool is None or pool.closed_at is not None:
        return
    if verification.fresh:
        _give_up_fresh_runs(session, pool)
    else:
        confirm_rank(session, pool, requested_by=verification.requested_by)


def confirm_rank(session: Session, pool: Pool, *, requested_by: int) -> None:
    """Request the fresh runs of an open pool, if its rank needs any that it lacks."""
    if _is_confirmed(session, pool) or fresh_runs_under_way(session, pool) is not None:
        return
    _nominate(session, pool, requested_by=requested_by)


def confirm_risen(session: Session, gone: Pool, *, requested_by: int) -> None:
    """Request fresh runs of the pool that became third of its division when another left."""
    if gone.state != "measured" or gone.measured_seconds is None or earliest_live(session, gone):
        return
    left = contenders(session, gone.benchmark_id).get((gone.division, "measured"), ())
    times = sorted((one.tta_seconds, one.pool) for one in left if one.tta_seconds and one.pool)
    if len(times) <= FIRST:
        return
    seconds, third = times[FIRST - 1]
    if seconds > gone.measured_seconds:
        confirm_rank(session, session.get_one(Pool, third), requested_by=requested_by)


def _give_up_fresh_runs(session: Session, pool: Pool) -> None:
    """Mark a pool unconfirmed if its fresh runs ended without measuring it."""
    if pool.state == "confirming":
        _change_state(session, pool, "unconfirmed")


def fresh_runs_under_way(session: Session, pool: Pool) -> Verification | None:
    """Verification that trains the fresh runs of a pool; None if none is under way."""
    return session.scalars(
        select(Verification).where(
            Verification.pool_id == pool.id,
            Verification.fresh.is_(True),
            Verification.state.in_(OPEN),
        )
    ).first()


def _is_confirmed(session: Session, pool: Pool) -> bool:
    fresh = select(PoolRun.index).where(PoolRun.pool_id == pool.id, PoolRun.fresh.is_(True))
    return session.scalars(fresh.limit(1)).first() is not None


def _nominate(session: Session, pool: Pool, *, requested_by: int) -> None:
    """Hold a pool back until its fresh runs are trained, or rank it if it needs none."""
    submission = earliest_live(session, pool)
    if submission is None or pool.measured_seconds is None:
        return
    why = _why_fresh_runs(session, pool, pool.measured_seconds)
    if why is not None:
        ask_for_fresh_runs(
            session, pool, submission, requested_by=requested_by, reason=f"fresh runs: {why}"
        )
    elif pool.state in HELD_BACK:
        _change_state(session, pool, "measured")


def earliest_live(session: Session, pool: Pool) -> Submission | None:
    """Submission that represents a pool on the board."""
    statement = (
        select(Submission)
        .where(
            Submission.pool_id == pool.id,
            Submission.evidence == "measured",
            Submission.eligible.is_(True),
            ranks(),
        )
        .order_by(Submission.submitted_at, Submission.id)
    )
    return session.scalars(statement).first()


def _why_fresh_runs(session: Session, pool: Pool, seconds: float) -> str | None:
    """Reason to train a measured pool again; None for one that ever held the record."""
    found = contenders(session, pool.benchmark_id).get((pool.division, "measured"), ())
    records = [_of(found, record.submission_id) for record in measured_history(found).records]
    if any(holder.pool == pool.id for holder in records):
        return None
    return why_fresh_runs(
        seconds,
        others=[one.tta_seconds for one in found if one.tta_seconds and one.pool != pool.id],
        record_seconds=records[-1].tta_seconds if records else None,
    )


def _of(found: Sequence[Contender], submission_id: str) -> Contender:
    return next(one for one in found if one.submission_id == submission_id)


def ask_for_fresh_runs(
    session: Session, pool: Pool, submission: Submission, *, requested_by: int, reason: str
) -> Verification:
    """Draw and seal the fresh runs of a pool, and queue them; its row is held back until then."""
    runs = definition(session, submission.benchmark_sha256).ranking.confirm_runs
    order = order_about(
        session,
        submission,
        purpose=REPLAY,
        wishes={FRESH_RUNS: runs},
        requested_by=requested_by,
        reason=reason,
        confirms=pool,
    )
    verification = queue_job(session, order)
    _change_state(session, pool, "confirming")
    return verification


def _change_state(session: Session, pool: Pool, state: str) -> None:
    pool.state = state
    session.flush()
    for submission_id in session.scalars(
        select(Submission.id).where(Submission.pool_id == pool.id)
    ):
        raise_board_version(session, pool.benchmark_id, submission_id=submission_id)
