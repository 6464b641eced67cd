"""The queue: who waits in which place, and from when on a worker should be free."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import utc_now
from server.models import WorkerRow
from server.submissions.visibility import seeing
from server.viewer import ORGANISER
from server.workers.expected import (
    Expected,
    Taker,
    Typical,
    busy_taker,
    expected_starts,
    typical_seconds,
)
from server.workers.queue_schemas import ClassQueueView, QueuedView, QueueView
from server.workers.work import (
    AttemptWork,
    existing_verifications,
    recent_seconds,
    running_attempts,
    waiting_attempts,
)


def read_queue(session: Session, *, alive_seconds: float) -> QueueView:
    """Every hardware class that is waited for or has a worker, with what waits for it."""
    now = utc_now()
    workers = list(session.scalars(select(WorkerRow).order_by(WorkerRow.name)))
    alive = _alive(workers, now - timedelta(seconds=alive_seconds))
    # Everything has its place and takes its time; what the viewer may not see is counted alone.
    with seeing(session, ORGANISER):
        running = {attempt.worker: attempt for attempt in running_attempts(session)}
        waiting = waiting_attempts(session)
        # An empty queue asks for no lengths.
        typical = typical_seconds(recent_seconds(session)) if waiting else {}
    visible = existing_verifications(session, [attempt.verification_id for attempt in waiting])
    takers = [_taker(row, running.get(row.name), typical, now) for row in alive if not row.drift]
    wants = [(attempt.work, attempt.wanted_class) for attempt in waiting]
    starts = expected_starts(wants, takers, typical, now=now)
    placed = list(zip(waiting, starts, strict=True))
    busy = {row.name for row in alive if row.name in running or row.state == "busy"}
    classes = sorted({row.hardware_class for row in workers} | {w for _, w in wants if w})
    return QueueView(
        as_of=now,
        waiting=len(waiting),
        classes=[
            _class_view(one, placed, workers, alive, busy, visible=visible)
            for one in (*classes, *([None] if any(w is None for _, w in wants) else []))
        ],
    )


def place_of(queue: QueueView, verification_id: str) -> tuple[ClassQueueView, QueuedView] | None:
    """Where a verification waits; None if it does not."""
    for one in queue.classes:
        for item in one.waiting:
            if item.verification_id == verification_id:
                return one, item
    return None


def _alive(workers: Sequence[WorkerRow], since: datetime) -> list[WorkerRow]:
    return [row for row in workers if row.last_seen_at >= since and row.state != "stopping"]


def _taker(row: WorkerRow, at: AttemptWork | None, typical: Typical, now: datetime) -> Taker:
    if at is None or at.started_at is None:
        return Taker(row.name, row.hardware_class, now)
    return busy_taker(
        row.name, row.hardware_class, at.work, since=at.started_at, typical=typical, now=now
    )


def _class_view(
    hardware_class: str | None,
    placed: Sequence[tuple[AttemptWork, Expected]],
    workers: Sequence[WorkerRow],
    alive: Sequence[WorkerRow],
    busy: set[str],
    *,
    visible: set[str],
) -> ClassQueueView:
    """None stands for what any worker may take, so every worker counts."""
    here = [row for row in alive if hardware_class in (None, row.hardware_class)]
    fit = [row for row in here if not row.drift]
    seen = [row.last_seen_at for row in workers if hardware_class in (None, row.hardware_class)]
    mine = [(at, start) for at, start in placed if at.wanted_class == hardware_class]
    shown = [
        _queued(at, start, place)
        for place, (at, start) in enumerate(mine, start=1)
        if at.verification_id in visible
    ]
    return ClassQueueView(
        hardware_class=hardware_class,
        workers=len(fit),
        free=sum(row.name not in busy for row in fit),
        out=len(here) - len(fit),
        last_seen_at=max(seen, default=None),
        waiting=shown,
        under_embargo=len(mine) - len(shown),
    )


def _queued(attempt: AttemptWork, expected: Expected, position: int) -> QueuedView:
    return QueuedView(
        verification_id=attempt.verification_id,
        kind=attempt.kind,
        benchmark=attempt.benchmark,
        submission_id=attempt.submission_id,
        model=attempt.model,
        runs=attempt.runs,
        attempt=attempt.number,
        position=position,
        asked_at=attempt.asked_at,
        queued_at=attempt.queued_at,
        expected_start=expected.start,
        why_unknown=expected.why_unknown,
    )
