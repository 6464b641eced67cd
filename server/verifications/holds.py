"""Pauses of workers and of everything, by an organiser or after too many failures."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import Connection, func, or_, select, update
from sqlalchemy.orm import Session

from server.base.database import insert_missing, utc_now
from server.base.errors import ConflictError
from server.base.events import DispatchWakeup, WorkerOut, emit, wake_after_commit
from server.base.models import Attempt, AuditRecord, QueueRow, WorkerRow
from server.people.audit import Actor, Administrator, Subject, record
from server.people.dependencies import Caller
from server.verifications.workers import (
    PAUSED,
    find_worker,
    is_organisers_worker,
    owner_of,
)

FAILED = ("failed", "lost")


EVERY_QUEUE = "*"


@dataclass(frozen=True)
class Pause:
    """A pause of everything: who set it, since when and why."""

    by: str
    since: datetime
    reason: str

    @property
    def sentence(self) -> str:
        """Sentence about the pause, for those who wait."""
        return f"every queue is paused by {self.by}: {self.reason}"


def read_pause(session: Session | Connection) -> Pause | None:
    """Read the pause of everything; None without one."""
    row = session.execute(
        select(QueueRow.paused_by, QueueRow.paused_at, QueueRow.paused_because).where(
            QueueRow.hardware_class == EVERY_QUEUE, QueueRow.paused_at.is_not(None)
        )
    ).first()
    return None if row is None else Pause(row.paused_by, row.paused_at, row.paused_because)


class HeldError(ConflictError):
    """This worker is held: another one may claim the attempt."""


def refuse_held(session: Session, name: str) -> None:
    """Raise HeldError if a worker is off its baseline or paused, or everything is paused."""
    row = session.execute(
        select(WorkerRow.drift, WorkerRow.held, WorkerRow.held_by, WorkerRow.held_because).where(
            WorkerRow.name == name
        )
    ).first()
    if row is not None and row.drift is not None:
        raise HeldError(
            f"Worker {name} gets no work until its speed check is back at its baseline: it is "
            f"{row.drift}."
        )
    if row is not None and row.held is not None:
        raise HeldError(f"Worker {name} is {row.held} by {row.held_by}: {row.held_because}.")
    pause = read_pause(session)
    if pause is not None:
        raise HeldError(f"Nothing starts: {pause.sentence}.")


def send_again_now(session: Session, attempt_id: str) -> None:
    """Mark an attempt to be resent to another worker at once, or when a pause ends."""
    session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sent_to.is_not(None))
        .values(send_after=utc_now())
    )
    wake_after_commit(session, DispatchWakeup)


def pause_worker(session: Session, caller: Caller, name: str, *, reason: str) -> None:
    """Pause a worker; its next hello returns the order. Raises NotFoundError."""
    worker = find_worker(session, name)
    before = {"held": worker.held}
    worker.held, worker.held_by, worker.held_because = PAUSED, caller.name, reason
    worker.held_at = utc_now()
    _note(session, caller, "worker.pause", name, reason, before, {"held": PAUSED})


def pause_by_server(
    session: Session,
    name: str,
    *,
    by: str,
    why: str,
    beside: Mapping[str, object] = MappingProxyType({}),
) -> None:
    """Pause a worker until an organiser resumes it; notifies the organisers and its owner.

    `by` names the rule behind it, `beside` further changes, for the audit log.
    """
    worker = find_worker(session, name)
    before = {"held": worker.held}
    worker.held, worker.held_by, worker.held_because = PAUSED, by, why
    worker.held_at = utc_now()
    emit(session, WorkerOut(name, "paused", why=why))
    after = {"held": PAUSED, **beside}
    _note(session, Administrator(by), "worker.pause", name, why, before, after)


def resume_worker(session: Session, caller: Caller, name: str, *, reason: str | None) -> None:
    """Let a worker take work again. Raises NotFoundError, ConflictError if it is not paused."""
    worker = find_worker(session, name)
    if worker.held is None:
        raise ConflictError(f"Worker {name} is not paused.")
    before = {"held": worker.held}
    worker.held = worker.held_at = worker.held_by = worker.held_because = None
    wake_after_commit(session, DispatchWakeup)
    _note(session, caller, "worker.resume", name, reason, before, {"held": None})


def pause_everything(session: Session, caller: Caller, *, reason: str) -> None:
    """Stop attempts from starting; running ones go on."""
    insert_missing(session, QueueRow, hardware_class=EVERY_QUEUE)
    row = session.get_one(QueueRow, EVERY_QUEUE)
    before = {"paused": row.paused_at is not None}
    row.paused_at, row.paused_by, row.paused_because = utc_now(), caller.name, reason
    session.flush()
    _note(session, caller, "queue.pause", EVERY_QUEUE, reason, before, {"paused": True})


def resume_everything(session: Session, caller: Caller, *, reason: str | None) -> None:
    """End the pause of everything. Raises ConflictError without one."""
    row = session.get(QueueRow, EVERY_QUEUE)
    if row is None or row.paused_at is None:
        raise ConflictError("The queue is not paused.")
    row.paused_at = row.paused_by = row.paused_because = None
    wake_after_commit(session, DispatchWakeup)
    _note(session, caller, "queue.resume", EVERY_QUEUE, reason, {"paused": True}, {"paused": False})


def _note(
    session: Session,
    actor: Actor,
    action: str,
    name: str,
    reason: str | None,
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> None:
    kind = action.split(".")[0]
    record(
        session,
        actor,
        action,
        Subject(kind, name),
        reason=reason,
        before=dict(before),
        after=dict(after),
    )


MOST_FAILED = 3
OF_LAST = 10


def pause_failing(session: Session, worker_name: str) -> None:
    """Pause all workers of a worker's owner if three of their last ten attempts failed.

    Only attempts since an organiser last resumed one of them count. Failures are those that say
    nothing about the claim. A right report from a busy host is none. Organisers' own workers are
    not paused.
    """
    owner = owner_of(session, worker_name)
    if owner is None or is_organisers_worker(session, worker_name):
        return
    owned = select(WorkerRow.name).where(WorkerRow.user_id == owner)
    resumed = (
        select(func.max(AuditRecord.at))
        .where(AuditRecord.action == "worker.resume", AuditRecord.subject_id.in_(owned))
        .scalar_subquery()
    )
    session.flush()
    last = session.scalars(
        select(Attempt.failure)
        .where(
            Attempt.worker.in_(owned),
            Attempt.state.in_((*FAILED, "done")),
            or_(Attempt.state != "failed", Attempt.clock_slack_seconds.is_(None)),
            or_(resumed.is_(None), Attempt.ended_at > resumed),
        )
        .order_by(Attempt.ended_at.desc())
        .limit(OF_LAST)
    ).all()
    failed = sum(bool(each) and each["kind"] == "infrastructure" for each in last)
    if failed < MOST_FAILED:
        return
    why = f"{failed} of the last {len(last)} attempts of its owner's workers failed"
    for name in session.scalars(owned).all():
        if session.get_one(WorkerRow, name).held is None:
            pause_by_server(session, name, by="failures", why=why)
