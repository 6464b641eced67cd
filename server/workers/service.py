"""Who replays: workers say hello at their start, every few seconds, and when they are free."""

from dataclasses import asdict

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from rules.messages import HelloAnswer, WorkerHello
from server.bell import ring
from server.database import insert_missing, utc_now
from server.dependencies import Caller
from server.errors import NotAllowedError
from server.models import WorkerRow
from server.queues.holds import end_drain, order_for


def greet(session: Session, hello: WorkerHello, *, caller: Caller) -> HelloAnswer:
    """Store that a worker is alive, and its system. The first hello of a name makes it its user's.

    The answer is what an organiser wants of it. Raises NotAllowedError if the name is another
    user's.
    """
    now = utc_now()
    seen = {
        "hardware_class": hello.system.hardware_class,
        "state": hello.state,
        "system": asdict(hello.system),
        "last_seen_at": now,
    }
    name = hello.system.worker
    insert_missing(session, WorkerRow, name=name, user_id=caller.user_id, first_seen_at=now, **seen)
    require_own_name(session, name, caller)
    session.execute(
        update(WorkerRow).where(WorkerRow.name == name).values(user_id=caller.user_id, **seen)
    )
    if hello.state == "idle":
        ring(session)
    if hello.state == "stopping":
        end_drain(session, name)
    return order_for(session, name)


def require_own_name(session: Session, name: str, caller: Caller) -> None:
    """Raise NotAllowedError if a worker's name is another user's. A free name may be anybody's."""
    owner = session.scalar(select(WorkerRow.user_id).where(WorkerRow.name == name))
    if owner is not None and owner != caller.user_id:
        raise NotAllowedError(
            f"Worker {name!r} was first seen with another user's token: give this worker another "
            "FINISHLINE_WORKER_NAME, or use a token of that user."
        )
