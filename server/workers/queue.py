"""The queue: who waits in which place, and from when on a worker should be free."""

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import utc_now
from server.models import WorkerRow
from server.queues.pauses import Pause, Pauses, read_pauses
from server.queues.takers import Takers
from server.queues.turns import read_turns
from server.submissions.visibility import seeing
from server.viewer import ORGANISER
from server.workers.expected import (
    NO_WORKER,
    Expected,
    Queued,
    Taker,
    Typical,
    busy_taker,
    expected_starts,
    typical_seconds,
)
from server.workers.queue_schemas import ClassQueueView, PauseView, QueuedView, QueueView
from server.workers.work import (
    AttemptWork,
    existing_verifications,
    recent_seconds,
    running_attempts,
    waiting_attempts,
)

SHOWN_PER_CLASS = 100


def read_queue(
    session: Session, *, alive_seconds: float, shown: int | None = None, only: str | None = None
) -> QueueView:
    """Every hardware class that is waited for or has a worker, with what waits for it.

    With `shown` each class lists only so many, the next to start; with `only` that verification.
    """
    now = utc_now()
    workers = list(session.scalars(select(WorkerRow).order_by(WorkerRow.name)))
    alive = _alive(workers, now - timedelta(seconds=alive_seconds))
    # Everything has its place and takes its time; what the viewer may not see is counted alone.
    with seeing(session, ORGANISER):
        running = {attempt.worker: attempt for attempt in running_attempts(session)}
        waiting = waiting_attempts(session)
        pauses = read_pauses(session)
        placed = _foretell(session, waiting, alive, running, pauses, now)
    visible = existing_verifications(session) if waiting else set()
    busy = {row.name for row in alive if row.name in running or row.state == "busy"}
    wanted = {attempt.wanted_class for attempt in waiting}
    classes = {row.hardware_class for row in workers} | {name for name in wanted if name}
    return QueueView(
        as_of=now,
        waiting=len(waiting),
        paused=_pause_view(pauses.everything),
        classes=[
            _class_view(one, placed, workers, alive, busy, pauses, visible, shown, only)
            for one in (
                *sorted(classes | pauses.classes.keys()),
                *([None] if None in wanted else []),
            )
        ],
    )


def _foretell(
    session: Session,
    waiting: Sequence[AttemptWork],
    alive: Sequence[WorkerRow],
    running: Mapping[str | None, AttemptWork],
    pauses: Pauses,
    now: datetime,
) -> list[tuple[AttemptWork, Expected]]:
    """What waits in the order in which it should start."""
    if not waiting:
        return []  # An empty queue asks for no lengths.
    typical = typical_seconds(recent_seconds(session))
    fit = [row for row in alive if row.drift is None]
    at_it = [row for row in fit if row.held is None and pauses.of(row.hardware_class) is None]
    takers = Takers(Counter(), {row.hardware_class for row in fit}, pauses)
    by_id = {attempt.attempt_id: attempt for attempt in waiting}
    placed = expected_starts(
        [Queued(one.turn, one.work, one.wanted_class, one.sent_to) for one in waiting],
        [_taker(row, running.get(row.name), typical, now) for row in at_it],
        typical,
        turns={name: read_turns(session, name) for name in takers.present},
        may_take=takers.may_take,
        now=now,
    )
    return [
        (by_id[one.turn.attempt_id], _with_reason(expected, one.wanted, takers))
        for one, expected in placed
    ]


def _with_reason(expected: Expected, wanted: str | None, takers: Takers) -> Expected:
    """Why nothing is known of what nobody could take: a pause is more than that."""
    if expected.why_unknown != NO_WORKER:
        return expected
    held = "every worker of its hardware class is paused or drained"
    why = takers.pauses.why(wanted) or (held if wanted in takers.present else NO_WORKER)
    return Expected(None, why)


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
    pauses: Pauses,
    visible: set[str],
    shown: int | None,
    only: str | None,
) -> ClassQueueView:
    """None stands for what any worker may take, so every worker counts."""
    here = [row for row in alive if hardware_class in (None, row.hardware_class)]
    fit = [row for row in here if not row.drift and not row.held]
    seen = [row.last_seen_at for row in workers if hardware_class in (None, row.hardware_class)]
    mine = [(at, start) for at, start in placed if at.wanted_class == hardware_class]
    seen_by_viewer = [
        (place, at, start)
        for place, (at, start) in enumerate(mine, start=1)
        if at.verification_id in visible
    ]
    return ClassQueueView(
        hardware_class=hardware_class,
        workers=len(fit),
        free=sum(row.name not in busy for row in fit),
        out=sum(row.drift is not None for row in here),
        last_seen_at=max(seen, default=None),
        held=sum(row.held is not None for row in here),
        paused=_pause_view(pauses.classes.get(hardware_class) if hardware_class else None),
        waiting_count=len(mine),
        waiting=[
            _queued(at, start, place)
            for place, at, start in seen_by_viewer[:shown]
            if only in (None, at.verification_id)
        ],
        under_embargo=len(mine) - len(seen_by_viewer),
    )


def _pause_view(pause: Pause | None) -> PauseView | None:
    return None if pause is None else PauseView(by=pause.by, since=pause.since, reason=pause.reason)


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
        by_organiser=attempt.by_organiser,
        asked_at=attempt.asked_at,
        queued_at=attempt.queued_at,
        expected_start=expected.start,
        why_unknown=expected.why_unknown,
    )
