"""Forecast the start of queued attempts: in order, each on the worker that is free first."""

import heapq
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from finishline.rules.verification.fair_queue import FairQueue, Turns, Waiting, fair_order

NO_WORKER = "no worker that could take it is connected"


@dataclass(frozen=True)
class Work:
    """Benchmark and kind of an attempt: its length depends on them."""

    benchmark: str
    kind: str


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


def busy_taker(
    name: str, hardware_class: str, work: Work, *, since: datetime, typical: Typical, now: datetime
) -> Taker:
    """A busy worker, free once its attempt has taken the typical time.

    An attempt that has taken longer is expected to end at any moment.
    """
    took = typical.get((work, hardware_class))
    if took is None:
        return Taker(name, hardware_class, None, _nothing_to_go_by(work, hardware_class))
    return Taker(name, hardware_class, max(now, since + timedelta(seconds=took)))


@dataclass(frozen=True)
class Queued:
    """A queued attempt and the hardware class it waits for, None for any.

    `sent_to` is the worker that it was sent to: it has had its turn and waits for a claim.
    """

    turn: Waiting
    work: Work
    wanted: str | None
    sent_to: str | None = None


def expected_starts(
    waiting: Sequence[Queued],
    takers: Sequence[Taker],
    typical: Typical,
    *,
    turns: Mapping[str, Turns],
    may_take: Callable[[str, str | None], bool],
    now: datetime,
) -> list[tuple[Queued, Expected]]:
    """Order the queued attempts by their start, each with its expected time.

    `turns` has the turns of each hardware class's queue; `may_take` says whether a worker of one
    class may take an attempt that wants another. Attempts without an estimate come last.
    """
    plan = _Plan(waiting, takers, turns, may_take)
    plan.place_sent(typical, now)
    plan.place_while_known(typical, now)
    plan.place_rest()
    return plan.placed


class _Plan:
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
        then = _occupied(taker, one.work, start, typical)
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


def _occupied(taker: Taker, work: Work, start: datetime, typical: Typical) -> Taker:
    took = typical.get((work, taker.hardware_class))
    if took is None:
        why = _nothing_to_go_by(work, taker.hardware_class)
        return replace(taker, free_at=None, why_unknown=why)
    return replace(taker, free_at=start + timedelta(seconds=took))


def _nothing_to_go_by(work: Work, hardware_class: str) -> str:
    return (
        f"no {work.kind} of {work.benchmark} on {hardware_class} has ended yet that could tell how "
        "long the one before it takes"
    )
