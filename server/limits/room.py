"""Places for requests in work, a bounded queue before them, and counts with a bound.

Everything here runs in the event loop alone, so nothing needs a lock.
"""

import asyncio
from collections import Counter, deque


class Room:
    """So many requests are worked at, so many wait for a place, and none waits for too long."""

    def __init__(self, name: str, *, places: int, waiting: int, patience_seconds: float) -> None:
        self.name = name
        self.in_work = 0
        self.places = places
        self._most_waiting = waiting
        self._patience_seconds = patience_seconds
        self._queue: deque[asyncio.Future[None]] = deque()

    @property
    def waiting(self) -> int:
        """Requests that wait for a place."""
        return len(self._queue)

    async def enter(self) -> bool:
        """Take a place, at once or after a while. False if there is none: nothing was taken."""
        if self.in_work < self.places and not self._queue:
            self.in_work += 1
            return True
        if len(self._queue) >= self._most_waiting:
            return False
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            async with asyncio.timeout(self._patience_seconds):
                await turn
        except TimeoutError:
            return self._gave_up(turn)
        except asyncio.CancelledError:
            if self._gave_up(turn):
                self.leave()
            raise
        return True

    def _gave_up(self, turn: asyncio.Future[None]) -> bool:
        """Whether a place was handed over all the same, at the last moment."""
        if turn.done() and not turn.cancelled():
            return True
        if turn in self._queue:
            self._queue.remove(turn)
        return False

    def leave(self) -> None:
        """Give a place back; whoever waits longest gets it, if it still is one."""
        self.in_work -= 1
        self._admit()

    def set_places(self, places: int) -> None:
        """More or fewer places; whoever has one keeps it."""
        self.places = places
        self._admit()

    def _admit(self) -> None:
        while self._queue and self.in_work < self.places:
            turn = self._queue.popleft()
            if not turn.done():
                self.in_work += 1
                turn.set_result(None)


class Held:
    """A count of things that are held open, bounded in all and for each requester."""

    def __init__(self, name: str, *, most: int, most_each: int) -> None:
        self.name = name
        self.count = 0
        self._most = most
        self._most_each = most_each
        self._by_key: Counter[str] = Counter()

    def take(self, key: str) -> bool:
        """Hold one more, if there is room for it."""
        if self.count >= self._most or self._by_key[key] >= self._most_each:
            if not self._by_key[key]:
                del self._by_key[key]
            return False
        self.count += 1
        self._by_key[key] += 1
        return True

    def give_back(self, key: str) -> None:
        """Hold one less."""
        self.count -= 1
        self._by_key[key] -= 1
        if self._by_key[key] <= 0:
            del self._by_key[key]


class BytesInFlight:
    """Bytes of bodies that were received and not yet let go."""

    def __init__(self, name: str, *, most: int) -> None:
        self.name = name
        self.held = 0
        self._most = most

    def has_room(self, count: int) -> bool:
        """Whether so many more would fit."""
        return self.held + count <= self._most

    def take(self, count: int) -> bool:
        """Hold more, if they fit."""
        if not self.has_room(count):
            return False
        self.held += count
        return True

    def give_back(self, count: int) -> None:
        """Let go."""
        self.held -= count
