"""Workers: their hellos, their owners, and whose word is the organisers'."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from datetime import timedelta
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.verification.messages import (
    WORKER_PROTOCOL,
    HelloAnswer,
    WorkerHello,
    WorkerSystem,
)
from server.base.database import insert_missing, to_json, utc_now, wait_to_write
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    UpgradeError,
    no_such,
)
from server.base.events import DispatchWakeup, wake_after_commit
from server.base.hardware_classes import refuse_misfit
from server.base.models import HardwareClassRow, User, WorkerRow
from server.people.accounts import ORGANISERS
from server.people.dependencies import Caller
from server.people.names import fault_in, skeletons

PAUSED = "paused"


LONGEST_NAME = 200
LARGEST_COUNT = 10**7
MOST_WORKERS_EACH = 100
# A container's name goes with it.
FORGOTTEN_AFTER = timedelta(days=1)
# Everybody who asks for the workers is sent all of it.
LARGEST_SYSTEM_BYTES = 16 * 1024


def greet(session: Session, hello: WorkerHello, *, caller: Caller) -> HelloAnswer:
    """Store a worker's sign of life and system, and return an organiser's order for it.

    The first hello reserves its name for its user.
    """
    require_protocol(hello.protocol)
    require_a_system(hello.system)
    system, name = asdict(hello.system), hello.system.worker
    hardware_class = session.get(HardwareClassRow, hello.system.hardware_class)
    if hardware_class is not None:
        refuse_misfit(hardware_class, system)
    is_new = not require_own_name(session, name, caller)
    seen = {
        "user_id": caller.user_id,
        "hardware_class": hello.system.hardware_class,
        "state": hello.state,
        "system": system,
        "last_seen_at": utc_now(),
        "box": asdict(hello.box),
        "polls": hello.polls,
    }
    if is_new:
        _reserve(session, hello, seen, caller)
    worker = find_worker(session, name)
    if hello.state == "idle" and (is_new or worker.state != "idle"):
        wake_after_commit(session, DispatchWakeup)
    if worker.hardware_class != hello.system.hardware_class:
        worker.confirmed_at = worker.confirmed_by = None
    for column, value in seen.items():
        setattr(worker, column, value)
    confirmed = worker.confirmed_at is not None
    no_roof = hardware_class is not None and hardware_class.roof is None
    return replace(
        order_for(worker),
        roof_wanted=no_roof and confirmed,
        unconfirmed=not confirmed,
    )


def require_protocol(protocol: int) -> None:
    """Raise UpgradeError for a worker that speaks another protocol than this server."""
    if protocol != WORKER_PROTOCOL:
        raise UpgradeError(
            f"This worker speaks protocol {protocol}, expected {WORKER_PROTOCOL}.",
            hint="Install the finishline-server of the server's own version for the worker, and "
            "start it again.",
        )


def _reserve(session: Session, hello: WorkerHello, seen: dict[str, Any], caller: Caller) -> None:
    name = hello.system.worker
    wait_to_write(session)
    _require_room(session, caller)
    _require_like_no_other(session, name, caller)
    first = {"first_seen_at": utc_now()} | _confirmation_beside(session, hello.system, caller)
    insert_missing(session, WorkerRow, name=name, **first, **seen)
    require_own_name(session, name, caller)


def _confirmation_beside(session: Session, system: WorkerSystem, caller: Caller) -> dict[str, Any]:
    """Confirmation of a new worker whose owner has a confirmed one of this class on such a machine.

    Jobs of a cluster bring a worker each, under a name of their own.
    """
    machine = _machine(asdict(system))
    confirmed = session.execute(
        select(WorkerRow.system, WorkerRow.confirmed_by)
        .where(
            WorkerRow.user_id == caller.user_id,
            WorkerRow.hardware_class == system.hardware_class,
            WorkerRow.confirmed_at.is_not(None),
        )
        .order_by(WorkerRow.confirmed_at)
    )
    for known, confirmed_by in confirmed:
        if _machine(known) == machine:
            return {"confirmed_at": utc_now(), "confirmed_by": confirmed_by}
    return {}


def _machine(system: Mapping[str, Any]) -> dict[str, Any]:
    """A worker's system without names and versions, which another job on such machines has too."""
    nodes = [node | {"name": ""} for node in system.get("nodes", [])]
    return {**system, "worker": "", "threads": 0, "software": {}, "nodes": nodes}


def require_own_name(session: Session, name: str, caller: Caller) -> bool:
    """Raise NotAllowedError if a worker's name is another user's, and return if it exists."""
    _require_a_line("worker", name)
    row = session.execute(select(WorkerRow.user_id).where(WorkerRow.name == name)).first()
    if row is not None and row.user_id is not None and row.user_id != caller.user_id:
        raise NotAllowedError(
            f"Worker {name!r} was first seen with another user's token: give this worker another "
            "FINISHLINE_WORKER_NAME, or use a token of that user."
        )
    return row is not None


def _require_room(session: Session, caller: Caller) -> None:
    """Raise ConflictError if a user has too many names; each is a queue and a row."""
    since = utc_now() - FORGOTTEN_AFTER
    own = select(func.count()).where(
        WorkerRow.user_id == caller.user_id, WorkerRow.last_seen_at > since
    )
    if session.scalars(own).one() >= MOST_WORKERS_EACH:
        raise ConflictError(
            f"{caller.name} has {MOST_WORKERS_EACH} workers of the last 24 hours, which is as many "
            "as one user may have: start this one under one of their names "
            "(FINISHLINE_WORKER_NAME), or with a token of another user."
        )


def _require_like_no_other(session: Session, name: str, caller: Caller) -> None:
    fault = fault_in(name) or (
        "has a slash or only dots, which no address can hold" if _breaks_paths(name) else None
    )
    if fault:
        raise ContentError(f"The worker's name {name!r} {fault} (FINISHLINE_WORKER_NAME).")
    shapes = skeletons(name)
    others = select(WorkerRow.name).where(WorkerRow.user_id != caller.user_id)
    for other in session.scalars(others):
        if not shapes.isdisjoint(skeletons(other)):
            raise NotAllowedError(
                f"Worker {name!r} looks like another user's, {other!r}: give this worker another "
                "FINISHLINE_WORKER_NAME."
            )


def _breaks_paths(name: str) -> bool:
    return "/" in name or name in (".", "..")


def require_a_system(system: WorkerSystem) -> None:
    """Raise ContentError for an impossible system: quotas are charged by its accelerators."""
    _require_a_line("system.hardware_class", system.hardware_class)
    for field in ("processor_count", "memory_gib", "accelerator_count", "threads"):
        value = getattr(system, field)
        if not 0 <= value <= LARGEST_COUNT:
            raise ContentError(f"system.{field}: expected a number of 0 to {LARGEST_COUNT}.")
    if len(to_json(asdict(system))) > LARGEST_SYSTEM_BYTES:
        raise ContentError(f"system: expected at most {LARGEST_SYSTEM_BYTES // 1024} KiB of JSON.")


def _require_a_line(field: str, text: str) -> None:
    if not (text.strip() and len(text) <= LONGEST_NAME and text.isprintable()):
        raise ContentError(f"{field}: expected 1 to {LONGEST_NAME} printable characters.")


def owner_of(session: Session, worker_name: str) -> int | None:
    """Find the user a worker belongs to; None for a worker that never said hello."""
    return session.scalar(select(WorkerRow.user_id).where(WorkerRow.name == worker_name))


def is_organisers_worker(session: Session, worker_name: str) -> bool:
    """Whether an organiser owns a worker, or the server process itself confirmed it.

    A confirmation without a user is one of `python -m server.admin`.
    """
    row = session.execute(
        select(User.role, WorkerRow.confirmed_at, WorkerRow.confirmed_by)
        .select_from(WorkerRow)
        .outerjoin(User, User.id == WorkerRow.user_id)
        .where(WorkerRow.name == worker_name)
    ).first()
    if row is None:
        return False
    return is_organisers(row)


def is_organisers(row: Any) -> bool:
    """Whether a worker counts as the organisers', by its owner's role and its confirmation."""
    by_server = row.confirmed_at is not None and row.confirmed_by is None
    return by_server or row.role in ORGANISERS


def find_worker(session: Session, name: str) -> WorkerRow:
    """Find a worker by name. Raises NotFoundError."""
    worker = session.get(WorkerRow, name)
    if worker is None:
        raise no_such("worker", name)
    return worker


def order_for(worker: WorkerRow) -> HelloAnswer:
    """Order of an organiser for a worker: to pause, or to work."""
    if worker.held is None:
        return HelloAnswer()
    return HelloAnswer(
        order="pause", why=f"{worker.held} by {worker.held_by}: {worker.held_because}"
    )
