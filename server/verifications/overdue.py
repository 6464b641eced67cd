"""Attempts that end without a report: the worker went silent, or took too long."""

from dataclasses import asdict

from sqlalchemy import ColumnElement, select, update
from sqlalchemy.orm import Session

from rules.messages import Failure
from server.database import utc_now
from server.models import Attempt
from server.verifications.attempts import is_over_limit, retry_or_give_up
from server.verifications.queries import lock_verification


def expire_leases(session: Session) -> int:
    """Declare lost every attempt whose worker went silent, and queue another try for each."""
    now = utc_now()
    silent = (Attempt.state == "running") & (Attempt.lease_expires_at < now)
    lost = 0
    for attempt in session.scalars(select(Attempt).where(silent).order_by(Attempt.id)).unique():
        if not _end(session, attempt, silent, state="lost"):
            continue
        lost += 1
        failure = Failure(
            kind="infrastructure",
            code="worker_lost",
            message=f"worker {attempt.worker} went silent and its lease ran out",
            next_step="nothing to do: another attempt is queued while any are left",
        )
        attempt.failure = asdict(failure)
        retry_or_give_up(session, attempt, failure)
    return lost


def end_overdue(session: Session) -> int:
    """End every running attempt that is past its verification's time limit."""
    running = Attempt.state == "running"
    ended = 0
    for attempt in session.scalars(select(Attempt).where(running).order_by(Attempt.id)).unique():
        if not is_over_limit(attempt) or not _end(session, attempt, running, state="failed"):
            continue
        ended += 1
        failure = Failure(
            kind="time_limit",
            code="run_time_limit",
            message=f"the replay took longer than {attempt.verification.limit_seconds:.0f} s",
            next_step="ask for a verification on faster hardware",
        )
        attempt.failure = asdict(failure)
        retry_or_give_up(session, attempt, failure)
    return ended


def _end(session: Session, attempt: Attempt, condition: ColumnElement[bool], *, state: str) -> bool:
    """End an attempt if the condition still holds and no other transaction is at its verification.

    Skipping what is locked keeps this loop from waiting for a report that waits for this loop.
    """
    if lock_verification(session, attempt.verification_id, skip_locked=True) is None:
        return False
    ended = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt.id, condition)
        .values(state=state, ended_at=utc_now())
        .returning(Attempt.id)
    ).first()
    session.refresh(attempt)
    return ended is not None
