"""The queue: who waits for which hardware class, when it may start, and why it waits."""

import statistics
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cached_property
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy import ColumnElement, func, select
from sqlalchemy.orm import Session

from finishline.rules.text import count_text
from server.base.database import utc_now
from server.base.fleet import Fleet
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    ReplayEventRow,
    Submission,
    Verification,
    WorkerRow,
)
from server.base.standing import OPEN
from server.base.visibility import ORGANISER, seeing
from server.people.declared import Routes
from server.verifications.choose import fair_order, read_turns
from server.verifications.worker_views import ClassQueueView, QueuedView, QueueView

router = Routes(tags=["workers"])
SHOWN_PER_CLASS = 100
MOST_SHOWN = 1000
LimitDep = Annotated[int, Query(ge=1, le=MOST_SHOWN)]
RECENT_ATTEMPTS = 200
NOTHING_ENDED = "Nothing has ended there yet that could tell how long those before it take."


@router.read("/queue")
def get_queue(session: Session, limit: LimitDep = SHOWN_PER_CLASS) -> QueueView:
    """Read the queue by hardware class: places and expected starts.

    Each class lists its next `limit` attempts to start.
    """
    queue = _Queue(session)
    classes = {row.hardware_class for row in queue.fleet.workers}
    classes |= {name for name in queue.lines if name is not None}
    return QueueView(
        as_of=queue.now,
        waiting=sum(map(len, queue.lines.values())),
        paused=queue.fleet.pause,
        classes=[
            queue.view(name, shown=limit)
            for name in (*sorted(classes), *([None] if None in queue.lines else []))
        ],
    )


def read_place(session: Session, verification_id: str) -> tuple[ClassQueueView, QueuedView] | None:
    """Place of a verification in the queue of its hardware class, which lists it alone.

    None if it does not wait. The viewer must be allowed to see it.
    """
    queue = _Queue(session)
    for wanted, line in queue.lines.items():
        if any(row.verification_id == verification_id for row in line):
            view = queue.view(wanted, only=verification_id)
            return (view, view.waiting[0]) if view.waiting else None
    return None


class _Queue:
    """All that waits, in the order in which it should start, as one viewer may see it.

    An attempt that the viewer may not see has its place, and is only counted.
    """

    def __init__(self, session: Session) -> None:
        self.session, self.now = session, utc_now()
        with seeing(session, ORGANISER):
            self.fleet = Fleet.read(session)
            self.lines = _read_lines(session)
        is_open = Verification.state.in_(OPEN)
        self._visible = set(session.scalars(select(Verification.id).where(is_open)))

    @cached_property
    def _seconds(self) -> defaultdict[str, list[float]]:
        """How long the attempts took that ended lately, by the hardware class of their worker."""
        query = (
            select(WorkerRow.hardware_class, Attempt.started_at, Attempt.ended_at)
            .join(WorkerRow, WorkerRow.name == Attempt.worker)
            .where(Attempt.state == "done", Attempt.started_at.is_not(None))
            .order_by(Attempt.ended_at.desc())
            .limit(RECENT_ATTEMPTS)
        )
        found: defaultdict[str, list[float]] = defaultdict(list)
        for row in self.session.execute(query):
            found[row.hardware_class].append((row.ended_at - row.started_at).total_seconds())
        return found

    def view(
        self, wanted: str | None, *, shown: int | None = None, only: str | None = None
    ) -> ClassQueueView:
        """View of a class's queue; None stands for attempts of any class, so all workers count.

        It lists the first so many that are `shown`, or only one verification's.
        """
        line = self.lines.get(wanted, [])
        places = [
            (position, row)
            for position, row in enumerate(line, start=1)
            if row.verification_id in self._visible
        ]
        listed = [place for place in places if only in (None, place[1].verification_id)]
        known = [row for row in self.fleet.workers if wanted in (None, row.hardware_class)]
        alive = [row for row in self.fleet.alive if row in known]
        fit = [row for row in self.fleet.fit if row in known and row.held is None]
        return ClassQueueView(
            hardware_class=wanted,
            workers=len(fit),
            free=sum(row.state != "busy" for row in fit),
            out=sum(row.drift is not None for row in alive),
            last_seen_at=max((row.last_seen_at for row in known), default=None),
            held=sum(row.held is not None for row in alive),
            waiting_count=len(line),
            waiting=self._listed(wanted, listed[:shown]),
            under_embargo=len(line) - len(places),
        )

    def _listed(self, wanted: str | None, places: Sequence[tuple[int, Any]]) -> list[QueuedView]:
        """Views of some places; attempts that are gone meanwhile are left out."""
        ids = [row.id for _, row in places]
        attempts = {row.id: row for row in read_attempts(self.session, Attempt.id.in_(ids))}
        views = []
        for position, one in places:
            if one.id in attempts:
                start, why = self._expect(wanted, position)
                place = {"position": position, "expected_start": start, "why_unknown": why}
                views.append(QueuedView.of(attempts[one.id], **place))
        return views

    def _expect(self, wanted: str | None, position: int) -> tuple[datetime | None, str | None]:
        """When the attempt at a place of a line starts; None, and why, if nothing can tell.

        That is when those before it have ended: their number times the median of those that
        ended lately, shared by the workers that may take it.
        """
        open_ = set(self.fleet.open)
        able = [row for row in self.fleet.takers(wanted) if row in open_]
        if not able:
            return None, self.fleet.why_none(wanted)
        behind = position - sum(row.state != "busy" for row in able)
        if behind <= 0:
            return self.now, None
        took = [
            each for name in {row.hardware_class for row in able} for each in self._seconds[name]
        ]
        if not took:
            return None, NOTHING_ENDED
        return self.now + timedelta(seconds=behind * statistics.median(took) / len(able)), None


def _read_lines(session: Session) -> dict[str | None, list[Any]]:
    """All queued attempts by the class that they want, in the order in which they should start."""
    query = (
        select(
            Attempt.id, Attempt.verification_id, Attempt.hardware_class, Attempt.sent_to,
            Attempt.submitter_id, Attempt.by_organiser, Attempt.asked_at,
        )
        .where(Attempt.state == "queued")
        .order_by(Attempt.asked_at, Attempt.id)
    )  # fmt: skip
    by_class = defaultdict(list)
    for row in session.execute(query):
        by_class[row.hardware_class].append(row)
    lines = {}
    for wanted, rows in by_class.items():
        drawn = [row for row in rows if row.sent_to is not None]  # They had their turns.
        rest = [row for row in rows if row.sent_to is None]
        lines[wanted] = [*drawn, *fair_order(rest, read_turns(session, wanted))]
    return lines


def read_attempts(session: Session, *which: ColumnElement[bool]) -> Sequence[Any]:
    """Read attempts and the work that is shown: never a report or a curve. Oldest first."""
    query = (
        select(
            Attempt.id,
            Attempt.number.label("attempt"),
            Attempt.state,
            Attempt.worker,
            Attempt.created_at.label("queued_at"),
            Attempt.started_at,
            Attempt.ended_at,
            Attempt.failure,
            Attempt.asked_at,
            Attempt.by_organiser,
            Attempt.verification_id,
            Verification.kind,
            Verification.runs,
            Verification.submission_id,
            BenchmarkDefinition.benchmark_id.label("benchmark"),
            Submission.model,
        )
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .where(*which)
        .order_by(Attempt.started_at)
    )
    return session.execute(query).all()


def runs_under_way(session: Session, attempt_ids: Sequence[str]) -> dict[str, int]:
    """Current run (from 0) of each attempt, from the last event received."""
    latest = (
        select(ReplayEventRow.attempt_id, func.max(ReplayEventRow.sequence).label("sequence"))
        .where(ReplayEventRow.attempt_id.in_(attempt_ids))
        .group_by(ReplayEventRow.attempt_id)
        .subquery()
    )
    rows = session.scalars(
        select(ReplayEventRow).join(
            latest,
            (ReplayEventRow.attempt_id == latest.c.attempt_id)
            & (ReplayEventRow.sequence == latest.c.sequence),
        )
    )
    return {row.attempt_id: int(row.event["run"]) for row in rows}


class Waits:
    """Reasons why verifications are still queued, each fact about the queue read once for all."""

    def __init__(self, session: Session) -> None:
        self._session = session

    @cached_property
    def _facts(self) -> tuple[Fleet, int]:
        """The fleet, and the number of other queued verifications."""
        queued = select(func.count()).select_from(Verification)
        with seeing(self._session, ORGANISER):
            count = self._session.scalar(queued.where(Verification.state == "queued")) or 0
        return Fleet.read(self._session), max(count - 1, 0)

    def reason(self, verification: Verification) -> str | None:
        """Reason why a verification is still queued and the remedy; None unless it is queued."""
        if verification.state != "queued":
            return None
        fleet, others = self._facts
        why = fleet.why_none(verification.attempts[-1].hardware_class)
        if why is not None:
            return why
        busy = sum(worker.state == "busy" for worker in fleet.alive)
        if others == 0 and busy < len(fleet.alive):
            return "A worker is about to lease it."
        queue = f"In line with {others} more" if others else "Next in line"
        return f"{queue}; {busy} of {count_text(len(fleet.alive), 'worker')} busy."
