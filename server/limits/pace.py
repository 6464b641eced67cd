"""How many requests are worked at, by how late the event loop is.

Threads that compute and the event loop share one interpreter lock. When the loop falls behind it
can neither refuse nor answer in time, so fewer requests are worked at until it is on time again.
"""

import asyncio
import contextlib
import time

from server.limits.room import Room

LOOK_SECONDS = 0.1
LATE_SECONDS = 0.05
ON_TIME_SECONDS = 0.02
FEWEST_PLACES = 1
SHRINK = 0.7


def next_places(places: int, *, late_seconds: float, most: int) -> int:
    """Fewer at once while the loop is late, one more while it is on time."""
    if late_seconds > LATE_SECONDS:
        return max(FEWEST_PLACES, int(places * SHRINK))
    if late_seconds < ON_TIME_SECONDS:
        return min(most, places + 1)
    return places


class Pace:
    """Watches the event loop and sets the places of a room."""

    def __init__(self, room: Room, *, most: int) -> None:
        self.late_seconds = 0.0
        self._room = room
        self._most = most
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to watch the running loop."""
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _watch(self) -> None:
        while True:
            due_at = time.monotonic() + LOOK_SECONDS
            await asyncio.sleep(LOOK_SECONDS)
            self.late_seconds = max(0.0, time.monotonic() - due_at)
            self._room.set_places(
                next_places(self._room.places, late_seconds=self.late_seconds, most=self._most)
            )
