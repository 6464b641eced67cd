"""Forecast of the queue: the place of each attempt in the line of its class, and its start.

An attempt starts when those before it have ended: their number times the median of what ended
lately, shared by the workers that may take it.
"""

import statistics
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from threading import Lock

from sqlalchemy.orm import Session

from server.base.database import state_of
from server.base.models import WorkerRow
from server.verifications.fair_queue import fair_order
from server.verifications.free_workers import FreeWorkers
from server.verifications.holds import Pause
from server.verifications.queue_order import read_turns
from server.verifications.work import (
    Queued,
    WaitingMark,
    recent_seconds,
    waiting_attempts,
    waiting_mark,
)

NO_WORKER = "no worker that could take it is connected"
ALL_PAUSED = "every worker of its hardware class is paused"
NOTHING_ENDED = "nothing has ended there yet that could tell how long those before it take"
# Ten thousand attempts take a tenth of a second to put in order.
KEEP_SECONDS = 1.0
Lines = Mapping[str | None, Sequence[Queued]]


@dataclass(frozen=True)
class Expected:
    """Expected start of an attempt; None, and why, if there is no basis for an estimate."""

    start: datetime | None
    why_unknown: str | None = None


@dataclass
class LineCache:
    """The latest lines, and the lock under which one thread makes them for all."""

    making: Lock = field(default_factory=Lock)
    mark: WaitingMark | None = None
    made_at: float = 0.0
    lines: Lines = field(default_factory=dict)


def read_lines(session: Session) -> Lines:
    """All queued attempts by the class that they want, in the order in which they should start.

    It has those that the viewer may not see. The session must only read: a transaction's own
    writes may be rolled back.
    """
    cache = state_of(session, LineCache)
    with cache.making:
        mark, now = waiting_mark(session), time.monotonic()
        if mark != cache.mark or now - cache.made_at >= KEEP_SECONDS:
            cache.mark, cache.made_at, cache.lines = mark, now, _make_lines(session)
        return cache.lines


def _make_lines(session: Session) -> Lines:
    by_class: defaultdict[str | None, dict[str, Queued]] = defaultdict(dict)
    for one in waiting_attempts(session):
        by_class[one.wanted][one.turn.attempt_id] = one
    lines: dict[str | None, Sequence[Queued]] = {}
    for wanted, ones in by_class.items():
        sent = [one for one in ones.values() if one.sent_to is not None]  # They had their turns.
        rest = fair_order(
            (one.turn for one in ones.values() if one.sent_to is None),
            read_turns(session, wanted or ""),
        )
        lines[wanted] = [*sent, *(ones[turn.attempt_id] for turn in rest)]
    return lines


class Forecast:
    """Expected starts, by the workers that are there and what ended on their classes lately."""

    def __init__(
        self, session: Session, alive: Sequence[WorkerRow], *, pause: Pause | None, now: datetime
    ) -> None:
        fit = [row for row in alive if row.drift is None and row.confirmed_at is not None]
        self._idle = FreeWorkers({}, {row.hardware_class: [] for row in fit})
        self._able = [] if pause is not None else [row for row in fit if row.held is None]
        self._pause, self._now = pause, now
        self._seconds: defaultdict[str, list[float]] = defaultdict(list)
        for hardware_class, took in recent_seconds(session):
            self._seconds[hardware_class].append(took)

    def expect(self, wanted: str | None, position: int) -> Expected:
        """Start of the attempt at a place, from 1, in the line of a class or of any."""
        able = [row for row in self._able if self._idle.may_take(row.hardware_class, wanted)]
        if not able:
            return Expected(None, self._why_nobody(wanted))
        behind = position - sum(row.state != "busy" for row in able)
        if behind <= 0:
            return Expected(self._now)
        took = [each for row in able for each in self._seconds[row.hardware_class]]
        if not took:
            return Expected(None, NOTHING_ENDED)
        return Expected(self._now + timedelta(seconds=behind * statistics.median(took) / len(able)))

    def _why_nobody(self, wanted: str | None) -> str:
        if self._pause is not None:
            return self._pause.sentence
        return ALL_PAUSED if wanted in self._idle.present else NO_WORKER
