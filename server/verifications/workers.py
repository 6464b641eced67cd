"""Workers: their hellos, their owners, and whose word is the organisers'."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Any, ClassVar, cast

from sqlalchemy import Connection, Row, Table, bindparam, func, or_, select, update
from sqlalchemy.orm import Session

from finishline.rules.text import fault_in, skeletons
from finishline.rules.verification.messages import HelloAnswer, WorkerHello, WorkerSystem
from server.base.database import insert_missing, to_json, utc_now
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    no_such,
)
from server.base.hardware_classes import refuse_misfit
from server.base.models import HardwareClassRow, User, WorkerRow
from server.base.wakeup import DispatchWakeup, wake_after_commit
from server.people.accounts import ORGANISERS
from server.people.dependencies import Caller
from server.people.last_use import NotedTimes

PAUSED = "paused"


LONGEST_NAME = 200
LARGEST_COUNT = 10**7
MOST_WORKERS_EACH = 100
# A container's name goes with it.
FORGOTTEN_AFTER = timedelta(days=1)
# Everybody who asks for the workers is sent all of it.
LARGEST_SYSTEM_BYTES = 16 * 1024


def greet(session: Session, hello: WorkerHello, *, caller: Caller) -> HelloAnswer:
    """Store that a worker is alive, and its system. The first hello reserves its name for its user.

    Returns an organiser's order for it. Raises NotAllowedError if the name is another user's,
    ConflictError if this user has too many, ContentError for an impossible system, or one not of
    its hardware class.
    """
    require_a_system(hello.system)
    now = utc_now()
    seen = {
        "hardware_class": hello.system.hardware_class,
        "state": hello.state,
        "system": asdict(hello.system),
        "last_seen_at": now,
        "box": asdict(hello.box),
    }
    name = hello.system.worker
    hardware_class = session.get(HardwareClassRow, hello.system.hardware_class)
    if hardware_class is not None:
        refuse_misfit(hardware_class, asdict(hello.system))
    require_own_name(session, name, caller)
    _require_room(session, name, caller)
    _require_like_no_other(session, name, caller)
    first: dict[str, Any] = {
        "user_id": caller.user_id,
        "witness_for": caller.submission_id,
        "first_seen_at": now,
    }
    if caller.submission_id is None:
        first |= _confirmation_beside(session, hello.system, caller)
    insert_missing(session, WorkerRow, name=name, **first, **seen)
    require_own_name(session, name, caller)
    _forget_confirmation(session, hello.system)
    session.execute(
        update(WorkerRow).where(WorkerRow.name == name).values(user_id=caller.user_id, **seen)
    )
    if hello.state == "idle":
        wake_after_commit(session, DispatchWakeup)
    no_roof = hardware_class is not None and hardware_class.roof is None
    worker = session.get_one(WorkerRow, name)
    confirmed = worker.confirmed_at is not None
    return replace(
        order_for(session, name),
        roof_wanted=no_roof and confirmed,
        unconfirmed=not confirmed and worker.witness_for is None,
    )


_WORKERS, _CLASSES = (cast(Table, each.__table__) for each in (WorkerRow, HardwareClassRow))
# Built once: a statement that is put together for each hello costs more than its execution.
_SEEN = (
    select(
        *(_WORKERS.c.user_id, _WORKERS.c.witness_for, _WORKERS.c.state, _WORKERS.c.system),
        *(_WORKERS.c.box, _WORKERS.c.confirmed_at),
        (_CLASSES.c.name.is_not(None) & _CLASSES.c.roof.is_(None)).label("lacks_roof"),
    )
    .outerjoin_from(_WORKERS, _CLASSES, _CLASSES.c.name == _WORKERS.c.hardware_class)
    .where(_WORKERS.c.name == bindparam("worker"), _WORKERS.c.held.is_(None))
)


@dataclass(frozen=True)
class Greeting:
    """The caller of a hello, and how the worker that it names is stored, unless it is held."""

    caller: Caller
    seen: Row[Any] | None


def read_seen(connection: Connection, name: str) -> Row[Any] | None:
    """Read a worker as its last hello left it; None for an unknown or a held one."""
    return connection.execute(_SEEN, {"worker": name}).one_or_none()


class WorkerTimes(NotedTimes[str]):
    """A time of each worker in this process, all of which are written in one statement."""

    gathered_seconds = 1.0
    column: ClassVar[str]

    def note(self, key: str) -> None:
        """Note that it is now; without the thread, as in a test, it is written at once."""
        super().note(key)
        if not self.thread.is_running:
            self.write()

    def store(self, session: Session, times: Mapping[str, datetime]) -> None:
        """Write these times, each unless another process has a later one."""
        known = _WORKERS.c[self.column]
        moment = bindparam("moment", type_=known.type)
        is_earlier = or_(known.is_(None), known < moment)
        session.connection().execute(
            update(_WORKERS)
            .where(_WORKERS.c.name == bindparam("worker"), is_earlier)
            .values({known: moment}),
            [{"worker": name, "moment": noted} for name, noted in sorted(times.items())],
        )


class LastSeen(WorkerTimes):
    """When each worker was last heard."""

    what = "last-seen"
    column = "last_seen_at"


class LastAsked(WorkerTimes):
    """When each worker last asked for work."""

    what = "last-asked"
    column = "pulled_at"


def answer_unchanged(hello: WorkerHello, greeting: Greeting) -> HelloAnswer | None:
    """The answer to a hello that says what the last one said; None for every other hello."""
    caller, seen = greeting.caller, greeting.seen
    if seen is None or (seen.user_id, seen.witness_for) != (caller.user_id, caller.submission_id):
        return None
    said = (hello.state, asdict(hello.system), asdict(hello.box))
    if said != (seen.state, seen.system, seen.box):
        return None
    confirmed = seen.confirmed_at is not None
    return HelloAnswer(
        roof_wanted=bool(seen.lacks_roof) and confirmed,
        unconfirmed=not confirmed and seen.witness_for is None,
    )


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


def _forget_confirmation(session: Session, system: WorkerSystem) -> None:
    """Reset a worker's confirmation if its hardware class has changed."""
    session.execute(
        update(WorkerRow)
        .where(
            WorkerRow.name == system.worker,
            WorkerRow.hardware_class != system.hardware_class,
            WorkerRow.confirmed_at.is_not(None),
        )
        .values(confirmed_at=None, confirmed_by=None)
    )


def require_own_name(session: Session | Connection, name: str, caller: Caller) -> bool:
    """Raise NotAllowedError if a worker's name is another user's, or has another kind of token.

    Returns whether a worker has the name: a free one may be used by any user. Raises ContentError
    for an invalid name.
    """
    _require_a_line("worker", name)
    row = session.execute(
        select(WorkerRow.user_id, WorkerRow.witness_for).where(WorkerRow.name == name)
    ).first()
    if row is not None and row.witness_for != caller.submission_id:
        raise NotAllowedError(
            f"Worker {name!r} was first seen with a token for "
            f"{_purpose(row.witness_for)}, and this one is for {_purpose(caller.submission_id)}: "
            "give this worker another FINISHLINE_WORKER_NAME."
        )
    if row is not None and row.user_id is not None and row.user_id != caller.user_id:
        raise NotAllowedError(
            f"Worker {name!r} was first seen with another user's token: give this worker another "
            "FINISHLINE_WORKER_NAME, or use a token of that user."
        )
    return row is not None


def _purpose(submission_id: str | None) -> str:
    return "any work" if submission_id is None else f"submission {submission_id} alone"


def _require_room(session: Session, name: str, caller: Caller) -> None:
    """Raise ConflictError if a user has too many names; each is a queue and a row."""
    if session.get(WorkerRow, name) is not None:
        return
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
    """Raise ContentError for the form of a new name, NotAllowedError if it resembles another's."""
    if session.get(WorkerRow, name) is not None:
        return
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


def lock_workers(session: Session, names: Collection[str]) -> None:
    """Lock workers until this transaction ends, in the order in which WorkerTimes writes them."""
    for name in sorted(names):
        session.get(WorkerRow, name, with_for_update=True)


def find_worker(session: Session, name: str) -> WorkerRow:
    """Lock and read a worker by name. Raises NotFoundError."""
    worker = session.get(WorkerRow, name, with_for_update=True)
    if worker is None:
        raise no_such("worker", name)
    return worker


def order_for(session: Session, name: str) -> HelloAnswer:
    """Order of an organiser for a worker: to pause, or to work."""
    row = session.execute(
        select(WorkerRow.held, WorkerRow.held_by, WorkerRow.held_because).where(
            WorkerRow.name == name
        )
    ).first()
    if row is None or row.held is None:
        return HelloAnswer()
    why = f"{row.held} by {row.held_by}: {row.held_because}"
    return HelloAnswer(order="pause", why=why)
