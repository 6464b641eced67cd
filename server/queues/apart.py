"""Sending cross-checks: each goes to a free worker of an owner that has not trained the run yet."""

import secrets
from datetime import datetime

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from server.models import Attempt, Verification
from server.queues.takers import Takers
from server.verifications.queueing import NOBODY_YET
from server.workers.owners import owner_of


def waiting_apart(session: Session, now: datetime) -> list[Attempt]:
    """Attempts at cross-checks that wait for a worker, the oldest first."""
    unclaimed = or_(Attempt.sent_to == NOBODY_YET, Attempt.send_after <= now)
    return list(
        session.scalars(
            select(Attempt)
            .join(Verification)
            .where(Attempt.state == "queued", Verification.kind == "cross_check", unclaimed)
            .order_by(Attempt.asked_at, Attempt.id)
        )
    )


def draw_apart(session: Session, takers: Takers, attempt: Attempt) -> str | None:
    """Take out a free worker of the attempt's class that another owner has; None without one."""
    barred = owners_at(session, attempt.verification.checks_id)
    free = takers.free.get(attempt.hardware_class or "", [])
    able = [name for name in free if owner_of(session, name) not in barred]
    if not able:
        return None
    drawn = able[secrets.randbelow(len(able))]
    free.remove(drawn)
    return drawn


def owners_at(session: Session, verification_id: str | None) -> set[int | None]:
    """The owners whose workers have trained a verification, or a cross-check of it."""
    workers = session.scalars(
        select(Attempt.worker)
        .join(Verification)
        .where(
            or_(Verification.id == verification_id, Verification.checks_id == verification_id),
            Attempt.worker.is_not(None),
            Attempt.state.in_(("done", "running")),
        )
    )
    return {owner_of(session, name) for name in workers if name is not None}


def forget_lost_messages(session: Session, now: datetime) -> None:
    """Let a cross-check that was sent and not claimed in time be drawn for again."""
    session.execute(
        update(Attempt)
        .where(
            Attempt.state == "queued",
            Attempt.sent_to > NOBODY_YET,
            Attempt.send_after <= now,
            Attempt.verification_id.in_(
                select(Verification.id).where(Verification.kind == "cross_check")
            ),
        )
        .values(sent_to=NOBODY_YET)
    )
