"""The queue: place and expected start of each attempt, and why a verification waits."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.api.workers import ClassQueueView, QueuedView, QueueView
from finishline.rules.text import count_text
from server.base.database import utc_now
from server.base.models import Verification, WorkerRow
from server.base.viewer import ORGANISER, seeing
from server.verifications.forecast import Expected, Place, Plan, Situation, read_plan, worker_there
from server.verifications.holds import Pause, read_pause
from server.verifications.work import (
    AttemptWork,
    attempts_by_id,
    existing_verifications,
    is_anything_embargoed,
    running_attempts,
    waiting_mark,
)

SHOWN_PER_CLASS = 100


@dataclass(frozen=True)
class Lines:
    """Queue of a hardware class: its length, how many the viewer may not see, and a page."""

    count: int = 0
    hidden: int = 0
    listed: list[QueuedView] = field(default_factory=list)


NO_LINES = Lines()


@dataclass(frozen=True)
class _Look:
    """Snapshot of all workers ever seen, of the living ones, and of the queue."""

    now: datetime
    workers: Sequence[WorkerRow]
    alive: Sequence[WorkerRow]
    situation: Situation
    plan: Plan
    visible: set[str] | None

    @property
    def busy(self) -> set[str]:
        """Names of the living workers with an attempt."""
        running = {attempt.worker for attempt in self.situation.running}
        return {row.name for row in self.alive if row.name in running or row.state == "busy"}


def read_queue(session: Session, *, alive_seconds: float, shown: int | None = None) -> QueueView:
    """Read the queue of every hardware class that has a worker or an attempt waiting."""
    look = _look(session, alive_seconds)
    lines = _lines(session, look, shown)
    classes = {row.hardware_class for row in look.workers} | {name for name in lines if name}
    return QueueView(
        as_of=look.now,
        waiting=sum(len(line) for line in look.plan.lines.values()),
        paused=look.situation.pause,
        classes=[
            _class_view(one, lines.get(one, NO_LINES), look)
            for one in (*sorted(classes), *([None] if None in lines else []))
        ],
    )


def read_place(
    session: Session, verification_id: str, *, alive_seconds: float
) -> tuple[ClassQueueView, QueuedView] | None:
    """Place of a verification in the queue of its hardware class, which lists it alone.

    None if it does not wait. The viewer must be allowed to see it.
    """
    look = _look(session, alive_seconds)
    place = look.plan.by_verification.get(verification_id)
    if place is None:
        return None
    wanted = place.attempt.wanted
    listed = _listed(session, [place])
    if not listed:
        return None
    line = look.plan.lines[wanted]
    lines = Lines(len(line), len(line) - len(_seen(line, look.visible)), listed)
    return _class_view(wanted, lines, look), listed[0]


def _look(session: Session, alive_seconds: float) -> _Look:
    now = utc_now()
    workers = list(session.scalars(select(WorkerRow).order_by(WorkerRow.name)))
    alive = _alive(workers, now - timedelta(seconds=alive_seconds))
    # Every attempt has its place and its length; those hidden from the viewer are only counted.
    with seeing(session, ORGANISER):
        situation = Situation(
            waiting=waiting_mark(session),
            workers=tuple(worker_there(row) for row in alive),
            running=tuple(running_attempts(session)),
            pause=read_pause(session),
        )
        plan = read_plan(session, situation, now)
        hides = bool(plan.lines) and is_anything_embargoed(session)
    visible = existing_verifications(session) if hides else None
    return _Look(now, workers, alive, situation, plan, visible)


def _alive(workers: Sequence[WorkerRow], since: datetime) -> list[WorkerRow]:
    return [row for row in workers if row.last_seen_at >= since and row.state != "stopping"]


def _lines(session: Session, look: _Look, shown: int | None) -> dict[str | None, Lines]:
    seen = {name: _seen(line, look.visible) for name, line in look.plan.lines.items()}
    first = {name: line[:shown] for name, line in seen.items()}
    listed = _listed(session, [place for line in first.values() for place in line])
    by_id = {item.verification_id: item for item in listed}
    return {
        name: Lines(
            count=len(line),
            hidden=len(line) - len(seen[name]),
            listed=[
                by_id[place.attempt.verification_id]
                for place in first[name]
                if place.attempt.verification_id in by_id
            ],
        )
        for name, line in look.plan.lines.items()
    }


def _seen(line: Sequence[Place], visible: set[str] | None) -> Sequence[Place]:
    if visible is None:
        return line
    return [place for place in line if place.attempt.verification_id in visible]


def _listed(session: Session, places: Sequence[Place]) -> list[QueuedView]:
    """Views of some places; attempts that are gone meanwhile are left out."""
    attempts = attempts_by_id(session, [place.attempt.turn.attempt_id for place in places])
    return [
        _queued(attempts[place.attempt.turn.attempt_id], place.expected, place.position)
        for place in places
        if place.attempt.turn.attempt_id in attempts
    ]


def _class_view(hardware_class: str | None, lines: Lines, look: _Look) -> ClassQueueView:
    """View of a class's queue; None stands for attempts of any class, so every worker counts."""
    here = [row for row in look.alive if hardware_class in (None, row.hardware_class)]
    fit = [row for row in here if not row.drift and not row.held and row.confirmed_at is not None]
    busy = look.busy
    seen = [
        row.last_seen_at for row in look.workers if hardware_class in (None, row.hardware_class)
    ]
    return ClassQueueView(
        hardware_class=hardware_class,
        workers=len(fit),
        free=sum(row.name not in busy for row in fit),
        out=sum(row.drift is not None for row in here),
        last_seen_at=max(seen, default=None),
        held=sum(row.held is not None for row in here),
        waiting_count=lines.count,
        waiting=lines.listed,
        under_embargo=lines.hidden,
    )


def _queued(attempt: AttemptWork, expected: Expected, position: int) -> QueuedView:
    return QueuedView.of(
        attempt,
        attempt=attempt.number,
        position=position,
        expected_start=expected.start,
        why_unknown=expected.why_unknown,
    )


def alive_workers(session: Session, *, alive_seconds: float) -> list[WorkerRow]:
    """Workers that said hello lately and are not stopping."""
    since = utc_now() - timedelta(seconds=alive_seconds)
    return list(
        session.scalars(
            select(WorkerRow).where(WorkerRow.last_seen_at >= since, WorkerRow.state != "stopping")
        )
    )


class Waits:
    """Reasons why verifications are still queued, each fact about the queue read once for all."""

    def __init__(self, session: Session, *, alive_seconds: float) -> None:
        self._session, self._alive_seconds = session, alive_seconds

    @cached_property
    def _workers(self) -> Sequence[WorkerRow]:
        return alive_workers(self._session, alive_seconds=self._alive_seconds)

    @cached_property
    def _pause(self) -> Pause | None:
        return read_pause(self._session)

    @cached_property
    def _others(self) -> int:
        return _queued_beside(self._session)

    def reason(self, verification: Verification) -> str | None:
        """Reason why a verification is still queued and the remedy; None unless it is queued."""
        if verification.state != "queued":
            return None
        workers = self._workers
        if not workers:
            return (
                "No worker is connected: start one with 'finishline up' on this machine or "
                "'python -m worker' on another."
            )
        if all(worker.confirmed_at is None for worker in workers):
            return (
                "No connected worker is confirmed: an organiser confirms one with "
                "'finishline workers confirm NAME' or on the console's page of workers."
            )
        if all(worker.drift is not None for worker in workers):
            return (
                "Every connected worker is off its baseline speed and gets no work; the page of "
                "the workers shows by how much. They measure again once a minute."
            )
        if self._pause is not None:
            return f"Nothing starts: {self._pause.sentence}."
        if all(worker.held is not None for worker in workers):
            return "Every connected worker is paused; the page of the workers shows by whom."
        others = self._others
        busy = sum(worker.state == "busy" for worker in workers)
        if others == 0 and busy < len(workers):
            return "A worker is about to lease it."
        queue = "Next in line" if others == 0 else f"In line with {others} more"
        return f"{queue}; {busy} of {count_text(len(workers), 'worker')} busy."


def _queued_beside(session: Session) -> int:
    """Number of other queued attempts, by an index: excluding this one would read every row."""
    queued = select(func.count()).select_from(Verification).where(Verification.state == "queued")
    with seeing(session, ORGANISER):
        count = session.scalar(queued) or 0
    return max(count - 1, 0)
