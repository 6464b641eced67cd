"""Sending what not every worker may take: cross-checks, and what is witnessed.

A cross-check goes to a free worker of an owner that has not trained the run yet. What is witnessed
goes to the worker on its submitter's machine.
"""

from datetime import datetime
from functools import partial

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from server.models import Attempt, Submission, Verification
from server.queues.barred import barred_owners, groups_of
from server.queues.takers import Takers
from server.verifications.queueing import NOBODY_YET
from server.workers.owners import owner_of

APART = or_(Verification.kind == "cross_check", Verification.witness_token_id.is_not(None))


def waiting_apart(session: Session, now: datetime) -> list[Attempt]:
    """Attempts that wait for a worker of their own, the oldest first."""
    unclaimed = or_(Attempt.sent_to == NOBODY_YET, Attempt.send_after <= now)
    return list(
        session.scalars(
            select(Attempt)
            .join(Verification)
            .where(Attempt.state == "queued", APART, unclaimed)
            .order_by(Attempt.asked_at, Attempt.id)
        )
    )


def draw_apart(session: Session, takers: Takers, attempt: Attempt) -> str | None:
    """Take out a free worker of the attempt's class that another owner has; None without one.

    What is witnessed has the worker that serves its submission.
    """
    if attempt.verification.witness_token_id is not None:
        serving = takers.witnesses.get(attempt.verification.submission_id or "", [])
        return serving.pop() if serving else None
    return takers.draw(
        attempt.hardware_class or "",
        partial(barred_owners, session, attempt.id),
        never=owners_at(session, attempt.verification.checks_id),
    )


def owners_at(session: Session, verification_id: str | None) -> set[int | None]:
    """The owners who cannot check a verification, with the members of their organisations.

    Those whose workers have trained it, or a cross-check of it, and whoever handed its claim in.
    """
    workers = session.scalars(
        select(Attempt.worker)
        .join(Verification)
        .where(
            or_(Verification.id == verification_id, Verification.checks_id == verification_id),
            Attempt.worker.is_not(None),
            Attempt.state.in_(("done", "running")),
        )
    )
    claimant = session.scalars(
        select(Submission.user_id)
        .join(Verification, Verification.submission_id == Submission.id)
        .where(Verification.id == verification_id)
    )
    found = {owner_of(session, name) for name in workers if name is not None} | set(claimant)
    groups = groups_of(session, {owner for owner in found if owner is not None})
    return found.union(*groups.values())


def forget_lost_messages(session: Session, now: datetime) -> None:
    """Let what was sent apart and not claimed in time be drawn for again."""
    session.execute(
        update(Attempt)
        .where(
            Attempt.state == "queued",
            Attempt.sent_to > NOBODY_YET,
            Attempt.send_after <= now,
            Attempt.verification_id.in_(select(Verification.id).where(APART)),
        )
        .values(sent_to=NOBODY_YET)
    )
