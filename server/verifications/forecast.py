"""Forecast of the queue: place and expected start of each attempt, made once for all readers."""

import heapq
import statistics
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from threading import Lock

from sqlalchemy.orm import Session

from finishline.rules.verification.purposes import PURPOSES, REPLAY
from server.base.database import state_of
from server.base.models import WorkerRow
from server.verifications.fair_queue import FairQueue, Turns, Waiting, fair_order
from server.verifications.free_workers import FreeWorkers
from server.verifications.holds import Pause
from server.verifications.queue_order import read_turns
from server.verifications.work import (
    AttemptWork,
    Queued,
    WaitingMark,
    Work,
    recent_seconds,
    waiting_attempts,
)

NO_WORKER = "no worker that could take it is connected"
# Ten thousand attempts take a tenth of a second to place; starts are foretold to the minute.
KEEP_SECONDS = 1.0


@dataclass(frozen=True)
class Taker:
    """A living worker that may get work; `free_at` is None if it cannot be estimated."""

    name: str
    hardware_class: str
    free_at: datetime | None
    why_unknown: str | None = None


@dataclass(frozen=True)
class Expected:
    """Expected start of an attempt; None, and why, if there is no basis for an estimate."""

    start: datetime | None
    why_unknown: str | None = None


# Seconds of an attempt on a worker of a hardware class: the median of recent ones.
Typical = Mapping[tuple[Work, str], float]


def typical_seconds(ended: Iterable[tuple[Work, str, float]]) -> Typical:
    """Median seconds of attempts by work and hardware class."""
    seconds: dict[tuple[Work, str], list[float]] = {}
    for work, hardware_class, took in ended:
        seconds.setdefault((work, hardware_class), []).append(took)
    return {key: statistics.median(found) for key, found in seconds.items()}


def busy_taker(taker: Taker, work: Work, *, since: datetime, typical: Typical) -> Taker:
    """A worker that is free again once its attempt has taken the typical time.

    An attempt that has taken longer is expected to end at any moment.
    """
    took = typical.get((work, taker.hardware_class))
    if took is None:
        why = _nothing_to_go_by(work, taker.hardware_class)
        return replace(taker, free_at=None, why_unknown=why)
    free_at = since + timedelta(seconds=took)
    return replace(taker, free_at=free_at if taker.free_at is None else max(taker.free_at, free_at))


def expected_starts(
    waiting: Sequence[Queued],
    takers: Sequence[Taker],
    typical: Typical,
    *,
    turns: Mapping[str, Turns],
    may_take: Callable[[str, str | None], bool],
    now: datetime,
) -> list[tuple[Queued, Expected]]:
    """Order the queued attempts by their start, each with its expected time if it has one.

    `may_take` says whether a worker of one class may take an attempt that wants another.
    """
    plan = _Assignment(waiting, takers, turns, may_take)
    plan.place_sent(typical, now)
    plan.place_while_known(typical, now)
    plan.place_rest()
    return plan.placed


class _Assignment:
    """Assigns attempts to the worker that is free first; it takes the next one by its turns."""

    def __init__(
        self,
        waiting: Sequence[Queued],
        takers: Sequence[Taker],
        turns: Mapping[str, Turns],
        may_take: Callable[[str, str | None], bool],
    ) -> None:
        self.placed: list[tuple[Queued, Expected]] = []
        self._left = {one.turn.attempt_id: one for one in waiting}
        self._turns = turns
        classes = sorted({taker.hardware_class for taker in takers})
        self._queues = {
            name: FairQueue(
                (one.turn for one in waiting if may_take(name, one.wanted)), turns.get(name)
            )
            for name in classes
        }
        self._known = [(taker.free_at, taker.name, taker) for taker in takers if taker.free_at]
        heapq.heapify(self._known)
        self._why = {t.hardware_class: t.why_unknown for t in takers if t.free_at is None}

    def place_sent(self, typical: Typical, now: datetime) -> None:
        """Place the attempts that were sent already, each on the worker it was sent to."""
        for one in [one for one in self._left.values() if one.sent_to is not None]:
            entry = next((entry for entry in self._known if entry[1] == one.sent_to), None)
            if entry is not None:
                self._known.remove(entry)
                heapq.heapify(self._known)
                self._give(one, entry[2], typical, now)

    def place_while_known(self, typical: Typical, now: datetime) -> None:
        """Place the next attempts while the time that some worker is free can be estimated."""
        while self._known:
            _, _, taker = heapq.heappop(self._known)
            turn = self._queues[taker.hardware_class].take()
            if turn is not None:
                self._give(self._left[turn.attempt_id], taker, typical, now, was_taken=True)

    def place_rest(self) -> None:
        """Place the remaining attempts in order, with the reason why there is no estimate."""
        for name, queue in self._queues.items():
            while (turn := queue.take()) is not None:
                expected = Expected(None, self._why.get(name))
                self._place(self._left[turn.attempt_id], expected, taken_from=name)
        by_class: dict[str | None, list[Waiting]] = {}
        for one in self._left.values():
            by_class.setdefault(one.wanted, []).append(one.turn)
        for wanted, turns in by_class.items():
            for turn in fair_order(turns, self._turns.get(wanted or "")):
                self._place(self._left[turn.attempt_id], Expected(None, NO_WORKER))

    def _give(
        self, one: Queued, taker: Taker, typical: Typical, now: datetime, *, was_taken: bool = False
    ) -> None:
        start = max(now, taker.free_at or now)
        self._place(one, Expected(start), taken_from=taker.hardware_class if was_taken else None)
        then = busy_taker(taker, one.work, since=start, typical=typical)
        if then.free_at is None:
            self._why[taker.hardware_class] = then.why_unknown
        else:
            heapq.heappush(self._known, (then.free_at, then.name, then))

    def _place(self, one: Queued, expected: Expected, *, taken_from: str | None = None) -> None:
        self.placed.append((one, expected))
        del self._left[one.turn.attempt_id]
        for name, queue in self._queues.items():
            if name != taken_from:  # There it waits no longer.
                queue.drop(one.turn)


def _nothing_to_go_by(work: Work, hardware_class: str) -> str:
    named = work.kind != REPLAY.name and PURPOSES[work.kind].words.name
    return (
        f"no {named or work.kind} of {work.benchmark} on {hardware_class} has ended yet that "
        "could tell how long the one before it takes"
    )


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
    pause: Pause | None


@dataclass(frozen=True, slots=True)
class Place:
    """Place of an attempt in the queue of its hardware class, from 1, and its expected start."""

    position: int
    attempt: Queued
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
        line = lines[attempt.wanted]
        place = Place(len(line) + 1, attempt, expected)
        line.append(place)
        by_verification[attempt.verification_id] = place
    return Plan(dict(lines), by_verification)


def _foretell(
    session: Session, situation: Situation, now: datetime
) -> list[tuple[Queued, Expected]]:
    waiting = waiting_attempts(session)
    typical = typical_seconds(recent_seconds(session))
    running = {attempt.worker: attempt for attempt in situation.running}
    fit = [one for one in situation.workers if one.is_fit]
    at_it = [one for one in fit if one.held is None and situation.pause is None]
    idle = FreeWorkers({}, {one.hardware_class: [] for one in fit})
    placed = expected_starts(
        waiting,
        [_taker_of(one, running.get(one.name), typical, now) for one in at_it],
        typical,
        turns={name: read_turns(session, name) for name in idle.present},
        may_take=idle.may_take,
        now=now,
    )
    return [
        (one, _with_reason(expected, situation.pause, is_held=one.wanted in idle.present))
        for one, expected in placed
    ]


def _taker_of(one: WorkerThere, at: AttemptWork | None, typical: Typical, now: datetime) -> Taker:
    taker = Taker(one.name, one.hardware_class, now)
    if at is None or at.started_at is None:
        return taker
    return busy_taker(taker, at.work, since=at.started_at, typical=typical)


def _with_reason(expected: Expected, pause: Pause | None, *, is_held: bool) -> Expected:
    """Replace "no worker" by a more exact reason, such as a pause, where there is one."""
    if expected.why_unknown != NO_WORKER:
        return expected
    if pause is not None:
        return Expected(None, pause.sentence)
    held = "every worker of its hardware class is paused"
    return Expected(None, held if is_held else NO_WORKER)
