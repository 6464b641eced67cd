"""The queue: who waits in which place, and from when on a worker should be free."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
    WaitingWork,
    attempts_by_id,
    count_open_verifications,
    existing_verifications,
    recent_seconds,
    running_attempts,
    waiting_attempts,
)

SHOWN_PER_CLASS = 100
Placed = tuple[WaitingWork, Expected]


@dataclass(frozen=True)
class Lines:
    """What waits for a hardware class: how many, how many the viewer may not see, and a page."""

    count: int = 0
    hidden: int = 0
    listed: list[QueuedView] = field(default_factory=list)


NO_LINES = Lines()


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
        count = count_open_verifications(session) if waiting else 0
    lines = _lines(session, placed, shown=shown, only=only, count=count)
    busy = {row.name for row in alive if row.name in running or row.state == "busy"}
    wanted = {attempt.wanted_class for attempt in waiting}
    classes = {row.hardware_class for row in workers} | {name for name in wanted if name}
    return QueueView(
        as_of=now,
        waiting=len(waiting),
        paused=_pause_view(pauses.everything),
        classes=[
            _class_view(one, lines.get(one, NO_LINES), workers, alive, busy, pauses)
            for one in (
                *sorted(classes | pauses.classes.keys()),
                *([None] if None in wanted else []),
            )
        ],
    )


def _foretell(
    session: Session,
    waiting: Sequence[WaitingWork],
    alive: Sequence[WorkerRow],
    running: Mapping[str | None, AttemptWork],
    pauses: Pauses,
    now: datetime,
) -> list[tuple[WaitingWork, Expected]]:
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


def _lines(
    session: Session,
    placed: Sequence[tuple[WaitingWork, Expected]],
    *,
    shown: int | None,
    only: str | None,
    count: int,
) -> dict[str | None, Lines]:
    """What the viewer is shown of each hardware class; of `count` open ones some may be hidden."""
    if not placed:
        return {}
    is_all_seen = count_open_verifications(session) == count
    visible = None if is_all_seen else existing_verifications(session)
    by_class: defaultdict[str | None, list[Placed]] = defaultdict(list)
    for place in placed:
        by_class[place[0].wanted_class].append(place)
    seen = {
        name: [
            (position, one, start)
            for position, (one, start) in enumerate(mine, start=1)
            if visible is None or one.verification_id in visible
        ]
        for name, mine in by_class.items()
    }
    listed = {
        name: [line for line in mine[:shown] if only in (None, line[1].verification_id)]
        for name, mine in seen.items()
    }
    ids = [one.attempt_id for mine in listed.values() for _, one, _ in mine]
    attempts = attempts_by_id(session, ids)
    return {
        name: Lines(
            count=len(mine),
            hidden=len(mine) - len(seen[name]),
            listed=[
                _queued(attempts[one.attempt_id], start, position)
                for position, one, start in listed[name]
                # Whoever reads may be in the middle of a change, and find it gone.
                if one.attempt_id in attempts
            ],
        )
        for name, mine in by_class.items()
    }


def _class_view(
    hardware_class: str | None,
    lines: Lines,
    workers: Sequence[WorkerRow],
    alive: Sequence[WorkerRow],
    busy: set[str],
    pauses: Pauses,
) -> ClassQueueView:
    """None stands for what any worker may take, so every worker counts."""
    here = [row for row in alive if hardware_class in (None, row.hardware_class)]
    fit = [row for row in here if not row.drift and not row.held]
    seen = [row.last_seen_at for row in workers if hardware_class in (None, row.hardware_class)]
    return ClassQueueView(
        hardware_class=hardware_class,
        workers=len(fit),
        free=sum(row.name not in busy for row in fit),
        out=sum(row.drift is not None for row in here),
        last_seen_at=max(seen, default=None),
        held=sum(row.held is not None for row in here),
        paused=_pause_view(pauses.classes.get(hardware_class) if hardware_class else None),
        waiting_count=lines.count,
        waiting=lines.listed,
        under_embargo=lines.hidden,
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
