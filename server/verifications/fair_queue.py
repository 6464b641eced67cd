"""Fair queue: the order in which one hardware class's waiting attempts start.

1. An attempt that an organiser asked for goes before one that comes with a submission, but while
any of the latter waits at most ORGANISERS_IN_A_ROW of the former go in a row. 2. Within each of the
two, submitters take turns: next is the one with the longest time since the last turn; one without a
turn goes first. So a thousand attempts of one submitter put no other submitter's first back by more
than one of them. 3. Within a submitter the oldest goes first; equal ages go by id.

Nothing here looks at a clock: the same attempts and the same turns give the same order.
"""

import heapq
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

ORGANISERS_IN_A_ROW = 3


@dataclass(frozen=True, slots=True)
class Waiting:
    """An attempt that waits for its start.

    `submitter` is the submission's owner, or the requester of a job without a submission. A retry
    has the `asked_at` of the first, and so keeps its place.
    """

    attempt_id: str
    submitter: int
    by_organiser: bool
    asked_at: datetime

    @property
    def sharer(self) -> "Sharer":
        """The sharer that takes turns for it."""
        return (self.by_organiser, self.submitter)

    @property
    def age(self) -> tuple[datetime, str]:
        """Sort key: oldest first."""
        return (self.asked_at, self.attempt_id)


# A submitter's own attempts and those that organisers ask for have turns apart.
Sharer = tuple[bool, int]
LANES = ("organisers", "submitters")


def _lane(sharer: Sharer) -> str:
    return "organisers" if sharer[0] else "submitters"


@dataclass(frozen=True)
class Turns:
    """State of a queue: the number of each sharer's last turn, and the last of all.

    `organisers_in_a_row` counts the organisers' attempts since the last of a submitter's own.
    """

    last: Mapping[Sharer, int] = field(default_factory=dict)
    count: int = 0
    organisers_in_a_row: int = 0


class FairQueue:
    """Waiting attempts of one hardware class, taken one by one in fair order."""

    def __init__(self, waiting: Iterable[Waiting] = (), turns: Turns | None = None) -> None:
        turns = turns or Turns()
        self._last = dict(turns.last)
        self._count = turns.count
        self._organisers_in_a_row = turns.organisers_in_a_row
        self._waiting: dict[Sharer, list[tuple[tuple[datetime, str], Waiting]]] = {}
        # By lane, its sharers by (last turn, age of the oldest). An entry may be out of date.
        self._order: dict[str, list[tuple[int, tuple[datetime, str], Sharer]]] = {
            lane: [] for lane in LANES
        }
        for one in waiting:
            self._waiting.setdefault(one.sharer, []).append((one.age, one))
        for sharer, ones in self._waiting.items():
            heapq.heapify(ones)
            self._line_up(sharer)

    def add(self, one: Waiting) -> None:
        """Another attempt waits."""
        heapq.heappush(self._waiting.setdefault(one.sharer, []), (one.age, one))
        self._line_up(one.sharer)

    def take(self) -> Waiting | None:
        """The next to start, which waits no longer; None if nothing does."""
        sharer = self._whose_turn()
        if sharer is None:
            return None
        _, one = heapq.heappop(self._waiting[sharer])
        self._count += 1
        self._last[sharer] = self._count
        self._organisers_in_a_row = self._organisers_in_a_row + 1 if one.by_organiser else 0
        self._line_up(sharer)
        return one

    def turns(self) -> Turns:
        """Turns of all sharers after the attempts taken so far."""
        return Turns(dict(self._last), self._count, self._organisers_in_a_row)

    def _line_up(self, sharer: Sharer) -> None:
        ones = self._waiting[sharer]
        if ones:
            heapq.heappush(
                self._order[_lane(sharer)], (self._last.get(sharer, 0), ones[0][0], sharer)
            )

    def _whose_turn(self) -> Sharer | None:
        organisers, submitters = map(self._first, LANES)
        if submitters is not None and self._organisers_in_a_row >= ORGANISERS_IN_A_ROW:
            return submitters
        return organisers or submitters

    def _first(self, lane: str) -> Sharer | None:
        order = self._order[lane]
        while order:
            turn, age, sharer = order[0]
            ones = self._waiting[sharer]
            if ones and ones[0][0] == age and self._last.get(sharer, 0) == turn:
                return sharer
            heapq.heappop(order)
        return None


def fair_order(waiting: Iterable[Waiting], turns: Turns | None = None) -> list[Waiting]:
    """All that waits, in the order in which it starts on one worker if nothing else comes."""
    queue = FairQueue(waiting, turns)
    order = []
    while (one := queue.take()) is not None:
        order.append(one)
    return order
