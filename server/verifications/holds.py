"""Pauses of queues and holds of workers, by an organiser or after too many failures."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType

from sqlalchemy import Connection, func, or_, select, update
from sqlalchemy.orm import Session

from server.base.database import insert_missing, utc_now
from server.base.errors import ConflictError, NotFoundError
from server.base.events import WorkerOut, emit
from server.base.models import Attempt, AuditRecord, QueueRow, WorkerRow
from server.base.wakeup import DispatchWakeup, wake_after_commit
from server.people.audit import Actor, Administrator, Subject, record
from server.people.dependencies import Caller
from server.verifications.workers import (
    DRAINING,
    PAUSED,
    find_worker,
    is_organisers_worker,
    lock_workers,
    owner_of,
)

FAILED = ("failed", "lost")


EVERY_QUEUE = "*"


@dataclass(frozen=True)
class Pause:
    """A pause: who set it, since when and why."""

    by: str
    since: datetime
    reason: str

    def sentence(self, what: str) -> str:
        """Sentence about the pause, for those who wait."""
        return f"{what} paused by {self.by}: {self.reason}"


@dataclass(frozen=True)
class Pauses:
    """Pauses of hardware classes by name, and of everything."""

    classes: Mapping[str, Pause]
    everything: Pause | None

    def of(self, hardware_class: str | None) -> Pause | None:
        """Pause of a hardware class, None for any; a pause of everything comes first."""
        if self.everything is not None or hardware_class is None:
            return self.everything
        return self.classes.get(hardware_class)

    def why(self, hardware_class: str | None) -> str | None:
        """Sentence that explains why a hardware class is paused; None if it is not."""
        if self.everything is not None:
            return self.everything.sentence("every queue is")
        pause = self.of(hardware_class)
        return None if pause is None else pause.sentence(f"the queue of {hardware_class} is")


def read_pauses(session: Session | Connection) -> Pauses:
    """Read every pause."""
    rows = session.execute(
        select(
            QueueRow.hardware_class, QueueRow.paused_by, QueueRow.paused_at, QueueRow.paused_because
        ).where(QueueRow.paused_at.is_not(None))
    )
    paused = {
        row.hardware_class: Pause(row.paused_by, row.paused_at, row.paused_because) for row in rows
    }
    return Pauses(
        {name: pause for name, pause in paused.items() if name != EVERY_QUEUE},
        paused.get(EVERY_QUEUE),
    )


ORDERS = {PAUSED: "pause", DRAINING: "drain"}


class HeldError(ConflictError):
    """This worker is held: another one may claim the attempt."""


def refuse_held(session: Session, name: str, hardware_class: str) -> None:
    """Raise HeldError if a worker is held, or the queue of its hardware class is paused."""
    row = session.execute(
        select(WorkerRow.drift, WorkerRow.held, WorkerRow.held_by, WorkerRow.held_because).where(
            WorkerRow.name == name
        )
    ).first()
    if row is not None and row.drift is not None:
        raise HeldError(
            f"Worker {name} gets no work until its canary is back at its baseline: it is "
            f"{row.drift}."
        )
    if row is not None and row.held is not None:
        raise HeldError(f"Worker {name} is {row.held} by {row.held_by}: {row.held_because}.")
    why = read_pauses(session).why(hardware_class)
    if why is not None:
        raise HeldError(f"Nothing starts: {why}.")


def send_again_now(session: Session, attempt_id: str) -> None:
    """Mark an attempt to be resent to another worker at once, or when its queue's pause ends."""
    session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sent_to.is_not(None))
        .values(send_after=utc_now())
    )
    wake_after_commit(session, DispatchWakeup)


def hold_worker(session: Session, caller: Caller, name: str, *, held: str, reason: str) -> None:
    """Pause or drain a worker; its next hello returns the order. Raises NotFoundError."""
    worker = find_worker(session, name)
    before = {"held": worker.held}
    worker.held, worker.held_by, worker.held_because = held, caller.name, reason
    worker.held_at = utc_now()
    _note(session, caller, f"worker.{ORDERS[held]}", name, reason, before, {"held": held})


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
    """Let a worker take work again. Raises NotFoundError, ConflictError if it is not held."""
    worker = find_worker(session, name)
    if worker.held is None:
        raise ConflictError(f"Worker {name} is neither paused nor drained.")
    before = {"held": worker.held}
    _release(worker)
    wake_after_commit(session, DispatchWakeup)
    _note(session, caller, "worker.resume", name, reason, before, {"held": None})


def pause_queue(
    session: Session, caller: Caller, hardware_class: str | None, *, reason: str
) -> None:
    """Stop attempts of a hardware class from starting, None for all; running ones go on.

    Raises NotFoundError if the class never had a worker and no attempt waits for it.
    """
    name = hardware_class or EVERY_QUEUE
    _require_class(session, hardware_class)
    insert_missing(session, QueueRow, hardware_class=name, turn=0, organisers_in_a_row=0)
    row = session.get_one(QueueRow, name, with_for_update=True, populate_existing=True)
    before = {"paused": row.paused_at is not None}
    row.paused_at, row.paused_by, row.paused_because = utc_now(), caller.name, reason
    session.flush()
    record(
        session,
        caller,
        "queue.pause",
        Subject("queue", name),
        reason=reason,
        before=before,
        after={"paused": True},
    )


def resume_queue(
    session: Session, caller: Caller, hardware_class: str | None, *, reason: str | None
) -> None:
    """End the pause of a hardware class, None for all. Raises ConflictError without a pause."""
    name = hardware_class or EVERY_QUEUE
    row = session.get(QueueRow, name, with_for_update=True, populate_existing=True)
    if row is None or row.paused_at is None:
        what = "Not everything is" if hardware_class is None else f"The queue of {name} is not"
        raise ConflictError(f"{what} paused.")
    row.paused_at = row.paused_by = row.paused_because = None
    wake_after_commit(session, DispatchWakeup)
    record(
        session,
        caller,
        "queue.resume",
        Subject("queue", name),
        reason=reason,
        before={"paused": True},
        after={"paused": False},
    )


def _require_class(session: Session, hardware_class: str | None) -> None:
    if hardware_class is None:
        return
    seen = session.scalar(
        select(WorkerRow.name).where(WorkerRow.hardware_class == hardware_class).limit(1)
    )
    waits = session.scalar(
        select(Attempt.id)
        .where(Attempt.state == "queued", Attempt.hardware_class == hardware_class)
        .limit(1)
    )
    if seen is None and waits is None:
        raise NotFoundError(
            f"No worker of hardware class {hardware_class!r} was ever seen and its queue is "
            "empty; GET /api/v1/queue lists the known classes."
        )


def _release(worker: WorkerRow) -> None:
    worker.held = worker.held_at = worker.held_by = worker.held_because = None


def _note(
    session: Session,
    actor: Actor,
    action: str,
    name: str,
    reason: str | None,
    before: Mapping[str, object],
    after: Mapping[str, object],
) -> None:
    record(
        session,
        actor,
        action,
        Subject("worker", name),
        reason=reason,
        before=dict(before),
        after=dict(after),
    )


MOST_FAILED = 3
OF_LAST = 10


def pause_failing(session: Session, worker_name: str) -> None:
    """Pause all workers of a worker's owner if three of their last ten attempts failed.

    Only attempts since an organiser last resumed one of them count. Failures are those that say
    nothing about the claim. Organisers' own workers are not paused.
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
            or_(resumed.is_(None), Attempt.ended_at > resumed),
        )
        .order_by(Attempt.ended_at.desc())
        .limit(OF_LAST)
    ).all()
    failed = sum(bool(each) and each["kind"] == "infrastructure" for each in last)
    if failed < MOST_FAILED:
        return
    why = f"{failed} of the last {len(last)} attempts of its owner's workers failed"
    names = session.scalars(owned).all()
    lock_workers(session, names)  # Before the audit log, which the first pause locks.
    for name in names:
        if session.get_one(WorkerRow, name).held is None:
            pause_by_server(session, name, by="failures", why=why)
