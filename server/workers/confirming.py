"""Confirming a worker once, before any attempt is sent to it."""

from sqlalchemy.orm import Session

from server.audit.service import Actor, Subject, record
from server.bell import ring
from server.database import utc_now
from server.errors import ConflictError
from server.models import User
from server.pools.owners import follow_worker
from server.workers.classes import register_class
from server.workers.probes import find_worker


def confirm_worker(
    session: Session, actor: Actor, name: str, *, reason: str | None, owner: str | None = None
) -> None:
    """Let a worker be drawn for attempts, and register its hardware class if that is new.

    Without a user the actor is the server's own administration, whose worker counts as the
    organisers'; it names the `owner` it expects. Raises NotFoundError, ConflictError if it is
    confirmed or another user's, ContentError if it does not fit its class.
    """
    worker = find_worker(session, name)
    if worker.confirmed_at is not None:
        raise ConflictError(f"Worker {name} is confirmed already.")
    if worker.witness_for is not None:
        raise ConflictError(
            f"Worker {name} has a witness's token: it is sent submission {worker.witness_for} "
            "alone, and is not confirmed."
        )
    user = session.get(User, worker.user_id) if worker.user_id is not None else None
    if owner is not None and (user is None or user.name != owner):
        raise ConflictError(f"Worker {name} is not {owner}'s: give yours another name.")
    register_class(session, worker, origin=f"worker {name}, confirmed by {actor.name}"[:200])
    worker.confirmed_at, worker.confirmed_by = utc_now(), actor.user_id
    follow_worker(session, name)
    ring(session)
    record(
        session,
        actor,
        "worker.confirm",
        Subject("worker", name),
        reason=reason,
        before={"confirmed": False},
        after={"confirmed": True, "hardware_class": worker.hardware_class},
    )
