"""When what waits should start: one plan for all who ask, until something it rests on changes."""

import threading
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import cast
from weakref import WeakKeyDictionary

from sqlalchemy import Engine
from sqlalchemy.orm import Session

from server.base.models import WorkerRow
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
from server.verifications.free_workers import Takers
from server.verifications.pauses import Pauses
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
    """A living worker as far as a plan depends on it; a fit one is confirmed, on its baseline."""

    name: str
    hardware_class: str
    is_fit: bool
    held: str | None


@dataclass(frozen=True)
class Situation:
    """What a plan rests on: while it is the same, so is the plan, but for the time that passes."""

    waiting: WaitingMark
    workers: tuple[WorkerThere, ...]
    running: tuple[AttemptWork, ...]
    pauses: Pauses


@dataclass(frozen=True, slots=True)
class Place:
    """The place of an attempt that waits for its hardware class, from 1, and when it starts."""

    position: int
    attempt: WaitingWork
    expected: Expected


@dataclass(frozen=True)
class Plan:
    """Everything that waits, by the hardware class it waits for, in the order it should start."""

    lines: Mapping[str | None, Sequence[Place]] = field(default_factory=dict)
    by_verification: Mapping[str, Place] = field(default_factory=dict)


@dataclass(frozen=True)
class _Kept:
    """A plan, what it rests on, and when it was made, in seconds of time.monotonic()."""

    situation: Situation
    made_at: float
    plan: Plan


@dataclass
class _Shared:
    """The latest plan of a database; whoever makes one lets the others wait for it."""

    making: threading.Lock = field(default_factory=threading.Lock)
    kept: _Kept | None = None


_plans: WeakKeyDictionary[Engine, _Shared] = WeakKeyDictionary()
_sharing = threading.Lock()


def worker_there(row: WorkerRow) -> WorkerThere:
    """A worker as a plan looks at it."""
    return WorkerThere(
        row.name, row.hardware_class, row.drift is None and row.confirmed_at is not None, row.held
    )


def read_plan(session: Session, situation: Situation, now: datetime) -> Plan:
    """The plan of a situation that was just read, at most KEEP_SECONDS old.

    It knows of everything that waits, whoever may see it. The session must be one that only reads:
    what a transaction has written may be rolled back.
    """
    shared = _shared_plan(cast(Engine, session.get_bind()))
    with shared.making:
        kept = shared.kept
        if situation.waiting.count == 0:
            shared.kept = None
            return Plan()
        if kept is not None and kept.situation == situation and _is_fresh(kept):
            return kept.plan
        plan = _make_plan(session, situation, now)
        shared.kept = _Kept(situation, time.monotonic(), plan)
        return plan


def _shared_plan(engine: Engine) -> _Shared:
    with _sharing:
        return _plans.setdefault(engine, _Shared())


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
    """What waits in the order in which it should start."""
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
    """Why nothing is known of what nobody could take: a pause is more than that."""
    if expected.why_unknown != NO_WORKER:
        return expected
    held = "every worker of its hardware class is paused or drained"
    why = takers.pauses.why(wanted) or (held if wanted in takers.present else NO_WORKER)
    return Expected(None, why)
