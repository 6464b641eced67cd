"""Draw workers for the waiting attempts: one attempt for each free worker, in fair order."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import ColumnElement, Connection, func, select, update
from sqlalchemy.orm import Session

from server.base.database import insert_missing, utc_now
from server.base.models import Attempt, QueueRow
from server.verifications.fair_queue import FairQueue, Turns, Waiting
from server.verifications.free_workers import (
    FreeWorkers,
    able_to_train,
    barred_owners,
    draw_apart,
    read_free_workers,
)


def read_turns(session: Session, hardware_class: str) -> Turns:
    """Read the turns of a hardware class's queue; empty if it has not served yet."""
    row = session.execute(
        select(QueueRow.turn, QueueRow.organisers_in_a_row, QueueRow.turns).where(
            QueueRow.hardware_class == hardware_class
        )
    ).first()
    if row is None:
        return Turns()
    last = {(by_organiser, submitter): turn for by_organiser, submitter, turn in row.turns}
    return Turns(last, count=row.turn, organisers_in_a_row=row.organisers_in_a_row)


def keep_turns(session: Session, hardware_class: str, turns: Turns) -> None:
    """Store the turns of a queue."""
    insert_missing(session, QueueRow, hardware_class=hardware_class)
    last = [(*sharer, turn) for sharer, turn in turns.last.items()]
    session.execute(
        update(QueueRow)
        .where(QueueRow.hardware_class == hardware_class)
        .values(turn=turns.count, organisers_in_a_row=turns.organisers_in_a_row, turns=last)
    )


DRAWN_AGAIN_AFTER = timedelta(seconds=5)  # Without a lease: its message may be lost.
LOOKED_AT = 10  # Of the attempts of one submitter in one queue.


@dataclass(frozen=True)
class Drawn:
    """An attempt and the worker that was drawn for it. A worker that polls needs no message."""

    attempt_id: str
    worker: str
    polls: bool


@dataclass(frozen=True)
class Head:
    """Time of a submitter's oldest attempt for one hardware class that was never drawn for."""

    hardware_class: str | None
    by_organiser: bool
    submitter_id: int
    asked_at: datetime

    def waiting(self, name: str) -> Waiting:
        """Entry for the fair queue."""
        return Waiting(name, self.submitter_id, self.by_organiser, self.asked_at)


def anything_to_send(session: Session | Connection, *, alive_seconds: float) -> bool:
    """Whether a worker is free and an attempt is due."""
    now = utc_now()
    idle = read_free_workers(session, alive_seconds=alive_seconds, now=now)
    if not idle.free:
        return False
    due = select(Attempt.id).where(Attempt.state == "queued", Attempt.send_after <= now).limit(1)
    return session.scalar(due) is not None


def take_due(session: Session, *, alive_seconds: float) -> list[Drawn]:
    """Draw an attempt for each free worker: those that nobody leased first, then by turns."""
    now = utc_now()
    idle = read_free_workers(session, alive_seconds=alive_seconds, now=now)
    chosen = _draw_apart(session, idle, now) + _draw_again(session, idle, now)
    heads = _heads(session) if idle.free else []
    for hardware_class in sorted(idle.free):
        chosen += _by_turns(session, idle, hardware_class, heads, now)
    return [Drawn(attempt_id, worker, worker in idle.polling) for attempt_id, worker in chosen]


def _draw_apart(session: Session, idle: FreeWorkers, now: datetime) -> list[tuple[str, str]]:
    """Draw for independent reruns, which hold up verdicts, before all others."""
    waiting = session.scalars(
        select(Attempt)
        .where(Attempt.state == "queued", Attempt.is_apart, Attempt.send_after <= now)
        .order_by(Attempt.asked_at, Attempt.id)
    ).all()
    chosen = []
    for attempt in waiting:
        worker = draw_apart(session, idle, attempt)
        if worker is not None:
            _mark(session, attempt.id, worker, now)
            chosen.append((attempt.id, worker))
    return chosen


def _draw_again(session: Session, idle: FreeWorkers, now: datetime) -> list[tuple[str, str]]:
    """Draw again for attempts that nobody leased. They had their turn, so they go first."""
    rows = session.execute(
        select(Attempt.id, Attempt.hardware_class)
        .where(
            Attempt.state == "queued",
            Attempt.sent_to.is_not(None),
            ~Attempt.is_apart,
            Attempt.send_after <= now,
        )
        .order_by(Attempt.asked_at, Attempt.id)
    ).all()
    chosen = []
    for row in rows:
        able = [
            name
            for name, free in sorted(idle.free.items())
            if free and idle.may_take(name, row.hardware_class)
        ]
        for hardware_class in able[:1]:
            drawn = _draw(session, idle, hardware_class, [row.id])
            if drawn is not None:
                _mark(session, *drawn, now)
                chosen.append(drawn)
    return chosen


def _by_turns(
    session: Session, idle: FreeWorkers, hardware_class: str, heads: Sequence[Head], now: datetime
) -> list[tuple[str, str]]:
    able = [head for head in heads if idle.may_take(hardware_class, head.hardware_class)]
    waiting = (head.waiting(str(place)) for place, head in enumerate(able))
    queue = FairQueue(waiting, read_turns(session, hardware_class))
    chosen: list[tuple[str, str]] = []
    while idle.free[hardware_class] and (one := queue.take()) is not None:
        head = able[int(one.attempt_id)]
        drawn = _draw(session, idle, hardware_class, [each for each, _ in _oldest(session, head)])
        if drawn is None:  # No free worker may take any of theirs.
            continue
        _mark(session, *drawn, now)
        chosen.append(drawn)
        following = _oldest(session, head)
        if following:
            queue.add(replace(one, asked_at=following[0][1]))
    if chosen:
        keep_turns(session, hardware_class, queue.turns())
    return chosen


def _draw(
    session: Session,
    idle: FreeWorkers,
    hardware_class: str,
    attempt_ids: Iterable[str],
) -> tuple[str, str] | None:
    """The first of these attempts that a free worker of the class may take, and its worker."""
    for attempt_id in attempt_ids:
        barred = partial(barred_owners, session, attempt_id)
        able = able_to_train(session, idle, attempt_id)
        if (worker := idle.draw(hardware_class, barred, may_train=able)) is not None:
            return attempt_id, worker
    return None


def _heads(session: Session) -> list[Head]:
    """Oldest attempt of each submitter in each queue; one pass over an index."""
    key = (Attempt.hardware_class, Attempt.by_organiser, Attempt.submitter_id)
    rows = session.execute(
        select(*key, func.min(Attempt.asked_at)).where(*_never_drawn()).group_by(*key)
    )
    return [Head(wanted, bool(asked), whose, oldest) for wanted, asked, whose, oldest in rows]


def _oldest(session: Session, head: Head) -> list[tuple[str, datetime]]:
    """First few attempts of a submitter in a queue: if one has to wait, the next may start."""
    rows = session.execute(
        select(Attempt.id, Attempt.asked_at)
        .where(
            *_never_drawn(),
            Attempt.hardware_class == head.hardware_class,
            Attempt.by_organiser == head.by_organiser,
            Attempt.submitter_id == head.submitter_id,
        )
        .order_by(Attempt.asked_at, Attempt.id)
        .limit(LOOKED_AT)
    )
    return [(row.id, row.asked_at) for row in rows]


def _never_drawn() -> tuple[ColumnElement[bool], ...]:
    return (Attempt.state == "queued", Attempt.sent_to.is_(None), ~Attempt.is_apart)


def _mark(session: Session, attempt_id: str, worker: str, now: datetime) -> None:
    """Store the worker of an attempt."""
    session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id)
        .values(sent_to=worker, send_after=now + DRAWN_AGAIN_AFTER)
    )
