"""The queue: place and expected start of each attempt, and why a verification waits."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from server.base.database import utc_now
from server.base.models import Verification, WorkerRow
from server.base.viewer import ORGANISER, seeing
from server.verifications.forecast import Forecast, Lines, read_lines
from server.verifications.holds import Pause, read_pause
from server.verifications.work import (
    Queued,
    attempts_by_id,
    existing_verifications,
    is_anything_embargoed,
)
from server.verifications.worker_views import ClassQueueView, QueuedView, QueueView

SHOWN_PER_CLASS = 100


@dataclass(frozen=True)
class _Look:
    """Snapshot of all workers ever seen, of the living ones, and of the queue.

    `visible` are the verifications that the viewer may see, None where nothing is hidden.
    """

    workers: Sequence[WorkerRow]
    alive: Sequence[WorkerRow]
    pause: Pause | None
    forecast: Forecast
    lines: Lines
    visible: set[str] | None

    def places(self, wanted: str | None) -> list[tuple[int, Queued]]:
        """The attempts of a line that the viewer may see, with their places from 1."""
        return [
            (position, one)
            for position, one in enumerate(self.lines.get(wanted, ()), start=1)
            if self.visible is None or one.verification_id in self.visible
        ]


def read_queue(session: Session, *, alive_seconds: float, shown: int | None = None) -> QueueView:
    """Read the queue of every hardware class that has a worker or an attempt waiting."""
    now = utc_now()
    look = _look(session, now, alive_seconds)
    classes = {row.hardware_class for row in look.workers} | {name for name in look.lines if name}
    return QueueView(
        as_of=now,
        waiting=sum(map(len, look.lines.values())),
        paused=look.pause,
        classes=[
            _class_view(session, look, name, look.places(name), shown=shown)
            for name in (*sorted(classes), *([None] if None in look.lines else []))
        ],
    )


def read_place(
    session: Session, verification_id: str, *, alive_seconds: float
) -> tuple[ClassQueueView, QueuedView] | None:
    """Place of a verification in the queue of its hardware class, which lists it alone.

    None if it does not wait. The viewer must be allowed to see it.
    """
    look = _look(session, utc_now(), alive_seconds)
    for wanted in look.lines:
        places = look.places(wanted)
        own = [place for place in places if place[1].verification_id == verification_id]
        if own:
            view = _class_view(session, look, wanted, places, listed=own)
            return (view, view.waiting[0]) if view.waiting else None
    return None


def _look(session: Session, now: datetime, alive_seconds: float) -> _Look:
    workers = list(session.scalars(select(WorkerRow).order_by(WorkerRow.name)))
    since = now - timedelta(seconds=alive_seconds)
    alive = [row for row in workers if row.last_seen_at >= since and row.state != "stopping"]
    # Every attempt has its place and its length; those hidden from the viewer are only counted.
    with seeing(session, ORGANISER):
        pause, lines = read_pause(session), read_lines(session)
        forecast = Forecast(session, alive, pause=pause, now=now)
        hides = bool(lines) and is_anything_embargoed(session)
    visible = existing_verifications(session) if hides else None
    return _Look(workers, alive, pause, forecast, lines, visible)


def _class_view(
    session: Session,
    look: _Look,
    wanted: str | None,
    places: Sequence[tuple[int, Queued]],
    *,
    shown: int | None = None,
    listed: Sequence[tuple[int, Queued]] | None = None,
) -> ClassQueueView:
    """View of a class's queue; None stands for attempts of any class, so every worker counts."""
    here = [row for row in look.alive if wanted in (None, row.hardware_class)]
    fit = [row for row in here if not row.drift and not row.held and row.confirmed_at is not None]
    seen = [row.last_seen_at for row in look.workers if wanted in (None, row.hardware_class)]
    count = len(look.lines.get(wanted, ()))
    return ClassQueueView(
        hardware_class=wanted,
        workers=len(fit),
        free=sum(row.state != "busy" for row in fit),
        out=sum(row.drift is not None for row in here),
        last_seen_at=max(seen, default=None),
        held=sum(row.held is not None for row in here),
        waiting_count=count,
        waiting=_listed(session, look, wanted, places[:shown] if listed is None else listed),
        under_embargo=count - len(places),
    )


def _listed(
    session: Session, look: _Look, wanted: str | None, places: Sequence[tuple[int, Queued]]
) -> list[QueuedView]:
    """Views of some places; attempts that are gone meanwhile are left out."""
    attempts = attempts_by_id(session, [one.turn.attempt_id for _, one in places])
    views = []
    for position, one in places:
        attempt, expected = (
            attempts.get(one.turn.attempt_id),
            look.forecast.expect(wanted, position),
        )
        if attempt is not None:
            view = QueuedView.of(
                attempt,
                attempt=attempt.number,
                position=position,
                expected_start=expected.start,
                why_unknown=expected.why_unknown,
            )
            views.append(view)
    return views


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
                "'finishline admin worker set NAME confirm' or on the console's page of workers."
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
