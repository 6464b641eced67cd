"""Leases of attempts: one worker leases an attempt, and each post renews its lease."""

import secrets
from dataclasses import asdict
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from finishline.rules.canonical import canonical
from finishline.rules.errors import RuleError
from finishline.rules.measurements import WorkerProbe
from finishline.rules.verification.messages import (
    BatchAnswer,
    ClaimRequest,
    EvaluationBatch,
    Lease,
    ReplayEvent,
    ReplayReport,
    WorkerHello,
)
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError
from server.base.models import Attempt, ReplayEventRow, Token, WorkerRow
from server.people.accounts import hash_token
from server.people.dependencies import Caller
from server.verifications.holds import refuse_held
from server.verifications.jobs import job_of, why_over_limit
from server.verifications.queries import find_attempt
from server.verifications.states import move
from server.verifications.workers import require_own_name, require_protocol

TOKEN_PREFIX = "fla_"  # noqa: S105  a prefix, so that leaked tokens can be searched for
LARGEST_SEQUENCE = 2**31 - 1


def lease_attempt(
    session: Session, attempt_id: str, request: ClaimRequest, *, caller: Caller
) -> Lease:
    """Give a queued attempt to the worker that was drawn for it, with its job.

    One UPDATE decides: a message delivered twice, or late, finds the attempt taken.
    """
    require_protocol(request.protocol)
    attempt = find_attempt(session, attempt_id)
    require_own_name(session, request.worker, caller)
    if attempt.state == "queued" and attempt.sent_to != request.worker:
        raise ConflictError(
            f"Attempt {attempt_id} was not sent to {request.worker}.",
            hint="Leave it: the server sends the id to the worker that it drew.",
        )
    refuse_held(session, request.worker)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    now = utc_now()
    lease = attempt.verification.lease_seconds
    move(
        session,
        attempt,
        "lease",
        Attempt.sent_to == request.worker,
        fence=attempt.fence + 1,
        token_sha256=hash_token(secret),
        worker=request.worker,
        claimed_by=caller.token_id,
        started_at=now,
        lease_expires_at=now + timedelta(seconds=lease),
        accelerators=_accelerators_of(session, request.worker),
    )
    move(session, attempt.verification, "lease")
    mark_worker(session, request.worker, "busy")
    return Lease(attempt_id, attempt.fence, secret, lease, job=job_of(session, attempt))


def record_events(
    session: Session,
    attempt_id: str,
    secret: str,
    batch: EvaluationBatch,
    *,
    fence: int,
    arrived_at: datetime,
) -> BatchAnswer:
    """Store a worker's new events, each with its first arrival, and renew the lease."""
    attempt = owned_attempt(session, attempt_id, secret, fence)
    if attempt.state == "cancelled":
        return BatchAnswer(proceed=False, reason="cancelled")
    now = utc_now()
    renewed = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "running")
        .values(lease_expires_at=now + timedelta(seconds=attempt.verification.lease_seconds))
        .returning(Attempt.id)
    ).first()
    if renewed is None:
        raise fenced(attempt)
    last = session.scalar(
        select(func.max(ReplayEventRow.sequence)).where(ReplayEventRow.attempt_id == attempt_id)
    )
    known = -1 if last is None else last
    refuse_unstorable(batch)
    if any(not 0 <= item.sequence <= LARGEST_SEQUENCE for item in batch.events):
        raise ContentError(f"Events count from 0; expected a sequence of 0 to {LARGEST_SEQUENCE}.")
    fresh = {item.sequence: item for item in batch.events if item.sequence > known}
    _note_overtaken(session, attempt_id, batch, known=known, arrived_at=arrived_at)
    session.add_all(
        ReplayEventRow(
            attempt_id=attempt_id, sequence=sequence, event=asdict(item), created_at=arrived_at
        )
        for sequence, item in fresh.items()
    )
    _follow(attempt, list(fresh.values()), now)
    if why_over_limit(attempt, now=now) is not None:
        return BatchAnswer(proceed=False, reason="time_limit")
    return BatchAnswer(proceed=True)


def _note_overtaken(
    session: Session, attempt_id: str, batch: EvaluationBatch, *, known: int, arrived_at: datetime
) -> None:
    """Give this post's moment to events that a later post of the worker brought before it.

    An event must be equal to the stored one: only then was it known at that moment.
    """
    again = {item.sequence: asdict(item) for item in batch.events if item.sequence <= known}
    if not again:
        return
    later = select(ReplayEventRow).where(
        ReplayEventRow.attempt_id == attempt_id,
        ReplayEventRow.sequence.in_(again),
        ReplayEventRow.created_at > arrived_at,
    )
    for row in session.scalars(later):
        if row.event == again[row.sequence]:
            row.created_at = arrived_at


def _accelerators_of(session: Session, name: str) -> int | None:
    """Accelerators in a worker's last hello; None for a worker that never said hello."""
    system = session.scalar(select(WorkerRow.system).where(WorkerRow.name == name))
    count = (system or {}).get("accelerator_count")
    return count if isinstance(count, int) else None


def owned_attempt(session: Session, attempt_id: str, secret: str, fence: int) -> Attempt:
    attempt = find_attempt(session, attempt_id)
    if attempt.token_sha256 is None or not secrets.compare_digest(
        attempt.token_sha256, hash_token(secret)
    ):
        raise fenced(attempt)
    _refuse_ended(session, attempt)
    if attempt.fence != fence:
        raise ConflictError(
            f"Fence {fence} of attempt {attempt.id} is out of date: another worker has it.",
            hint="Stop this replay.",
        )
    if attempt.state in ("lost", "queued"):  # A new attempt has its place.
        raise fenced(attempt)
    return attempt


def _refuse_ended(session: Session, attempt: Attempt) -> None:
    """Raise ConflictError if the account that claimed is disabled, or its token was revoked."""
    token = session.get(Token, attempt.claimed_by) if attempt.claimed_by is not None else None
    if token is None:
        return
    if token.user.disabled_at is not None:
        raise _unwanted(attempt, f"The account {token.user.name}", "disabled")
    if token.revoked_at is not None:
        raise _unwanted(attempt, f"The token of {token.user.name}", "revoked")


def _unwanted(attempt: Attempt, whose: str, state: str) -> ConflictError:
    return ConflictError(
        f"{whose}, which claimed attempt {attempt.id}, is {state}. Stop this replay."
    )


def fenced(attempt: Attempt) -> ConflictError:
    return ConflictError(
        f"Attempt {attempt.id} no longer belongs to this worker ({attempt.state}). Stop this "
        "replay."
    )


def _follow(attempt: Attempt, events: list[ReplayEvent], now: datetime) -> None:
    """Note the progress of an attempt: the start of its current run, and its latest evaluation."""
    for event in events:
        if event.kind == "run_started":
            attempt.run_started_at = now
        elif event.kind == "evaluation":
            attempt.last_evaluation = last_evaluation_of(event)


def last_evaluation_of(event: ReplayEvent) -> dict[str, Any]:
    """Fields of an evaluation that are stored with its attempt."""
    names = ("run", "epoch", "samples", "seconds", "quality")
    return {name: getattr(event, name) for name in names}


def refuse_unstorable(message: EvaluationBatch | ReplayReport | WorkerProbe | WorkerHello) -> None:
    """Raise ContentError on NaN, infinity or an integer JSON readers cannot hold.

    One such number in a stored report would make every later answer and proof of it fail.
    """
    try:
        canonical(asdict(message))
    except RuleError as error:
        raise ContentError(f"A number cannot be stored ({error}).") from error


def mark_worker(session: Session, name: str, state: str) -> None:
    session.execute(update(WorkerRow).where(WorkerRow.name == name).values(state=state))
