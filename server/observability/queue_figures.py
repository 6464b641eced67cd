"""What waits for a worker, and who could take it."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.database import utc_now
from server.models import Attempt, WorkerRow
from server.queues.holds import PAUSED
from server.queues.pauses import Pauses, read_pauses

ANY_CLASS = "any"
TAKES_WORK = ("idle", "busy")


@dataclass(frozen=True)
class WorkerSeen:
    """A worker's hardware class and how it is: idle, busy, stopping, drifted, held,
    unconfirmed or gone.

    A worker is held where it is "paused", itself or its whole queue, "draining" or "drained".
    """

    hardware_class: str
    state: str


@dataclass(frozen=True)
class Queue:
    """Attempts that wait for one hardware class, or for any; ages are in seconds.

    `beside_free_seconds` is the age of the oldest while a worker that could take it is idle, else
    0: what is then not taken within a minute is stuck.
    """

    hardware_class: str
    attempts: int
    oldest_seconds: float
    beside_free_seconds: float


def read_workers(session: Session, *, now: datetime, alive_seconds: float) -> list[WorkerSeen]:
    """Every worker that ever said hello."""
    since = now - timedelta(seconds=alive_seconds)
    rows = session.execute(
        select(
            WorkerRow.hardware_class,
            WorkerRow.state,
            WorkerRow.last_seen_at < since,
            WorkerRow.drift.is_not(None),
            WorkerRow.held,
            WorkerRow.confirmed_at.is_(None) & WorkerRow.witness_for.is_(None),
        )
    )
    pauses = read_pauses(session)
    return [
        WorkerSeen(
            name,
            _state(
                "unconfirmed" if unconfirmed and state != "stopping" else state,
                gone=gone,
                drifted=drifted,
                held=_held(held, pauses, name),
            ),
        )
        for name, state, gone, drifted, held, unconfirmed in rows
    ]


def _held(held: str | None, pauses: Pauses, hardware_class: str) -> str | None:
    return held or (PAUSED if pauses.of(hardware_class) is not None else None)


def _state(state: str, *, gone: bool, drifted: bool, held: str | None) -> str:
    if gone:
        return "gone"
    if state == "stopping":
        return state
    return held or ("drifted" if drifted else state)


def read_queues(
    session: Session, workers: Sequence[WorkerSeen], *, now: datetime | None = None
) -> list[Queue]:
    """The queue of every class that some worker has or had, and of all workers.

    What names a class that no worker ever had waits for any: the names submitters give are endless.
    """
    now = now or utc_now()
    waiting: dict[str, tuple[int, datetime]] = {}
    known = {worker.hardware_class for worker in workers}
    for wanted, attempts, oldest in _queued_by_class(session):
        name = wanted if wanted in known else ANY_CLASS
        count, earliest = waiting.get(name, (0, oldest))
        waiting[name] = (count + attempts, min(earliest, oldest))
    return [
        _queue(name, *waiting.get(name, (0, now)), now=now, free=is_free(name, workers))
        for name in sorted(known | {ANY_CLASS})
    ]


def _queued_by_class(session: Session) -> Sequence[tuple[str | None, int, datetime]]:
    rows = session.execute(
        select(Attempt.hardware_class, func.count(), func.min(Attempt.created_at))
        .where(Attempt.state == "queued")
        .group_by(Attempt.hardware_class)
    )
    return [(row[0], row[1], row[2]) for row in rows]


def is_free(hardware_class: str, workers: Sequence[WorkerSeen]) -> bool:
    """Whether a worker that would be sent this is idle: one of its class, if any of it works."""
    fit = [worker for worker in workers if worker.state in TAKES_WORK]
    same = [worker for worker in fit if worker.hardware_class == hardware_class]
    return any(worker.state == "idle" for worker in same or fit)


def _queue(name: str, attempts: int, oldest: datetime, *, now: datetime, free: bool) -> Queue:
    age = max((now - oldest).total_seconds(), 0.0)
    return Queue(name, attempts, age, age if free else 0.0)
