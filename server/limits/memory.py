"""Counts of a rate limit in this process: two windows for each key, and no more keys than allowed.

The library's own memory looks at every key it holds at each hit. That is too slow for a server that
many addresses ask at once, which is when limits matter.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

from limits.aio.storage import SlidingWindowCounterSupport, Storage

MOST_KEYS = 100_000


@dataclass(slots=True)
class Windows:
    """Hits in the window with this number and in the one before it."""

    number: int
    current: int = 0
    previous: int = 0

    def move_to(self, number: int) -> None:
        """Make the window with this number the current one."""
        if number != self.number:
            self.previous = self.current if number == self.number + 1 else 0
            self.current = 0
            self.number = number


class BoundedMemory(Storage, SlidingWindowCounterSupport):
    """A memory for `limits`' sliding window counter.

    When it is full, everything that nobody hit within two windows is dropped; where that does not
    help, everything is. Whoever has so many addresses is not held by limits for each of them.
    """

    STORAGE_SCHEME = ["async+finishline-memory"]  # noqa: RUF012  read by the library

    def __init__(
        self, *, most_keys: int = MOST_KEYS, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__()
        self._most_keys = most_keys
        self._clock = clock
        self._windows: dict[str, Windows] = {}
        self._expiry: dict[str, int] = {}

    @property
    def base_exceptions(self) -> type[Exception]:
        """What it may raise: nothing that the library should wrap."""
        return ValueError

    def __len__(self) -> int:
        return len(self._windows)

    async def acquire_sliding_window_entry(
        self, key: str, limit: int, expiry: int, amount: int = 1
    ) -> bool:
        """Count a hit if the weighted count of both windows leaves room for it."""
        now = self._clock()
        windows = self._windows_of(key, expiry, now)
        if _weighed(windows, expiry, now) + amount > limit:
            return False
        windows.current += amount
        return True

    async def get_sliding_window(self, key: str, expiry: int) -> tuple[int, float, int, float]:
        """Hits of the previous window and its seconds left, hits of the current one and its."""
        now = self._clock()
        windows = self._windows_of(key, expiry, now)
        left = expiry - now % expiry
        return windows.previous, left if windows.previous else 0.0, windows.current, left + expiry

    async def clear_sliding_window(self, key: str, expiry: int) -> None:
        """Forget a key."""
        await self.clear(key)

    def _windows_of(self, key: str, expiry: int, now: float) -> Windows:
        number = int(now // expiry)
        windows = self._windows.get(key)
        if windows is None:
            if len(self._windows) >= self._most_keys:
                self._make_room(now)
            windows = self._windows[key] = Windows(number)
            self._expiry[key] = expiry
        windows.move_to(number)
        return windows

    def _make_room(self, now: float) -> None:
        old = [
            key
            for key, windows in self._windows.items()
            if windows.number + 1 < now // self._expiry[key]
        ]
        if len(old) < self._most_keys // 4:
            self._windows.clear()
            self._expiry.clear()
        for key in old:
            self._windows.pop(key, None)
            self._expiry.pop(key, None)

    # What the library asks of every storage, and the sliding window counter does not use.

    async def incr(self, key: str, expiry: int, amount: int = 1) -> int:
        """Count without a limit."""
        windows = self._windows_of(key, expiry, self._clock())
        windows.current += amount
        return windows.current

    async def get(self, key: str) -> int:
        """Hits of the current window."""
        windows = self._windows.get(key)
        return windows.current if windows is not None else 0

    async def get_expiry(self, key: str) -> float:
        """When the current window ends."""
        expiry, now = self._expiry.get(key, 0), self._clock()
        return now if expiry == 0 else now + expiry - now % expiry

    async def check(self) -> bool:
        """It is always there."""
        return True

    async def reset(self) -> int | None:
        """Forget everything."""
        count = len(self._windows)
        self._windows.clear()
        self._expiry.clear()
        return count

    async def clear(self, key: str) -> None:
        """Forget a key."""
        self._windows.pop(key, None)
        self._expiry.pop(key, None)


def _weighed(windows: Windows, expiry: int, now: float) -> int:
    """The current window's hits, and of the previous one's the share that is still within reach."""
    share = 1 - now % expiry / expiry
    return int(windows.previous * share) + windows.current
