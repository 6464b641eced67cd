"""Cache of the queue plan: one forecast for all readers, until a fact it depends on changes."""

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock

from sqlalchemy.orm import Session

from server.base.models import WorkerRow
from server.base.room_state import state_of
from server.verifications.forecast import (
    NO_WORKER,
    Expected,
    Queued,
    Taker,
    Typical,
    busy_taker,
    expected_starts,
    typical_seconds,
)
from server.verifications.free_workers import Pauses, Takers
from server.verifications.queue_order import read_turns
from server.verifications.work import (
    AttemptWork,
    WaitingMark,
    WaitingWork,
    recent_seconds,
    waiting_attempts,
)

# Ten thousand attempts take a tenth of a second to place; starts are foretold to the minute.
KEEP_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class WorkerThere:
    """Facts about a living worker that a plan depends on; fit: confirmed and on its baseline."""

    name: str
    hardware_class: str
    is_fit: bool
    held: str | None


@dataclass(frozen=True)
class Situation:
    """Facts that a plan depends on: an equal situation has an equal plan, but for passing time."""

    waiting: WaitingMark
    workers: tuple[WorkerThere, ...]
    running: tuple[AttemptWork, ...]
    pauses: Pauses


@dataclass(frozen=True, slots=True)
class Place:
    """Place of an attempt in the queue of its hardware class, from 1, and its expected start."""

    position: int
    attempt: WaitingWork
    expected: Expected


@dataclass(frozen=True)
class Plan:
    """All queued attempts by hardware class, in the order in which they should start."""

    lines: Mapping[str | None, Sequence[Place]] = field(default_factory=dict)
    by_verification: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kept:
    """Cached plan, its situation, and when it was made, in seconds of time.monotonic()."""

    situation: Situation
    made_at: float
    plan: Plan


@dataclass
class PlanCache:
    """Latest plan, and the lock under which one thread makes it for all."""

    making: Lock = field(default_factory=Lock)
    kept: _Kept | None = None


def worker_there(row: WorkerRow) -> WorkerThere:
    """Facts about a worker for a plan."""
    return WorkerThere(
        row.name, row.hardware_class, row.drift is None and row.confirmed_at is not None, row.held
    )


def read_plan(session: Session, situation: Situation, now: datetime) -> Plan:
    """Plan of a situation that was just read, at most KEEP_SECONDS old.

    It has all queued attempts, whether or not the viewer may see them. The session must only read:
    a transaction's own writes may be rolled back.
    """
    cache = state_of(session, PlanCache)
    with cache.making:
        kept = cache.kept
        if situation.waiting.count == 0:
            cache.kept = None
            return Plan()
        if kept is not None and kept.situation == situation and _is_fresh(kept):
            return kept.plan
        plan = _make_plan(session, situation, now)
        cache.kept = _Kept(situation, time.monotonic(), plan)
        return plan


def _is_fresh(kept: _Kept) -> bool:
    return time.monotonic() - kept.made_at < KEEP_SECONDS


def _make_plan(session: Session, situation: Situation, now: datetime) -> Plan:
    lines: defaultdict[str | None, list[Place]] = defaultdict(list)
    by_verification: dict[str, Place] = {}
    for attempt, expected in _foretell(session, situation, now):
        line = lines[attempt.wanted_class]
        place = Place(len(line) + 1, attempt, expected)
        line.append(place)
        by_verification[attempt.verification_id] = place
    return Plan(dict(lines), by_verification)


def _foretell(
    session: Session, situation: Situation, now: datetime
) -> list[tuple[WaitingWork, Expected]]:
    """Queued attempts in the order in which they should start."""
    waiting = waiting_attempts(session)
    typical = typical_seconds(recent_seconds(session))
    running = {attempt.worker: attempt for attempt in situation.running}
    pauses, fit = situation.pauses, [one for one in situation.workers if one.is_fit]
    at_it = [one for one in fit if one.held is None and pauses.of(one.hardware_class) is None]
    takers = Takers({}, {one.hardware_class: [] for one in fit}, pauses)
    by_id = {attempt.attempt_id: attempt for attempt in waiting}
    placed = expected_starts(
        [Queued(one.turn, one.work, one.wanted_class, one.sent_to) for one in waiting],
        [_taker(one, running.get(one.name), typical, now) for one in at_it],
        typical,
        turns={name: read_turns(session, name) for name in takers.present},
        may_take=takers.may_take,
        now=now,
    )
    return [
        (by_id[one.turn.attempt_id], _with_reason(expected, one.wanted, takers))
        for one, expected in placed
    ]


def _taker(one: WorkerThere, at: AttemptWork | None, typical: Typical, now: datetime) -> Taker:
    if at is None or at.started_at is None:
        return Taker(one.name, one.hardware_class, now)
    return busy_taker(
        one.name, one.hardware_class, at.work, since=at.started_at, typical=typical, now=now
    )


def _with_reason(expected: Expected, wanted: str | None, takers: Takers) -> Expected:
    """Replace "no worker" by a more exact reason, such as a pause, where there is one."""
    if expected.why_unknown != NO_WORKER:
        return expected
    held = "every worker of its hardware class is paused or drained"
    why = takers.pauses.why(wanted) or (held if wanted in takers.present else NO_WORKER)
    return Expected(None, why)
