"""Event streams of verifications: one database poll serves all watchers of a verification."""

import asyncio
from collections import deque
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from fastapi.concurrency import run_in_threadpool

from server.base.services import Services
from server.base.standing import ENDED, find_verification
from server.base.viewer import Viewer
from server.verifications import queries, views

EVENTS_AT_ONCE = 1000
LARGEST_NUMBER = 2**31 - 1  # Largest integer of the database.


@dataclass(frozen=True, order=True)
class Position:
    """Position in a stream: attempt number and sequence of the last replay event sent."""

    attempt: int = 0
    sequence: int = -1

    def __str__(self) -> str:
        return f"{self.attempt}.{self.sequence}"


def parse_position(last_event_id: str | None) -> Position:
    """Parse a Last-Event-ID into a position; the beginning if it is absent or malformed."""
    attempt, _, sequence = (last_event_id or "").partition(".")
    try:
        position = Position(int(attempt), int(sequence))
    except ValueError:
        return Position()
    in_range = max(abs(position.attempt), abs(position.sequence)) <= LARGEST_NUMBER
    return position if in_range else Position()


@dataclass(frozen=True)
class News:
    """State and replay events since a position."""

    state: dict[str, Any]
    full: dict[str, Any] | None
    replay: list[tuple[Position, dict[str, Any]]]


def read_news(services: Services, viewer: Viewer, verification_id: str, position: Position) -> News:
    """Read the current state, and the next events after a position. Raises NotFoundError."""
    alive = services.settings.worker_alive_seconds
    with services.database.read(viewer) as session:
        verification = find_verification(session, verification_id)
        ended = verification.state in ENDED
        view = views.view(session, verification, alive_seconds=alive, with_report=ended)
        replay = []
        for attempt in verification.attempts:
            if attempt.number < position.attempt:
                continue
            after = position.sequence if attempt.number == position.attempt else -1
            rows = queries.events_after(session, attempt, after, limit=EVENTS_AT_ONCE)
            replay += [
                (
                    Position(attempt.number, row.sequence),
                    {"attempt": attempt.number, **row.event},
                )
                for row in rows
            ]
            if len(rows) == EVENTS_AT_ONCE:
                break  # The rest of this attempt comes before the next one.
    full = view.model_dump(mode="json")
    state = {name: value for name, value in full.items() if name != "report"}
    return News(state=state, full=full if ended else None, replay=replay)


POLL_SECONDS = 0.25
POLLS_PER_SECOND = 100.0  # However many verifications are watched.
POLLS_AT_ONCE = 4
KEPT = 64  # A reader who is further behind reads from the database.

Read = Callable[[Position], News]


class Feed:
    """Feed of one verification's events; polls while it has followers."""

    def __init__(self, read: Read) -> None:
        self.followers = 0
        self.count = 0  # News so far.
        self.kept: deque[News] = deque(maxlen=KEPT)
        self.error: Exception | None = None
        self._read = read
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def start(self, position: Position, feeds: "Feeds") -> None:
        """Start polling from the first reader's position."""
        if self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._poll(position, feeds))

    def stop(self) -> None:
        """Stop polling after the last reader has left."""
        if self._task is not None:
            self._task.cancel()

    async def wait(self, seen: int) -> None:
        """Wait for news that a reader has not seen. Raises the poll's exception."""
        while self.count == seen and self.error is None:
            await self._changed.wait()
        if self.error is not None:
            raise self.error

    async def _poll(self, position: Position, feeds: "Feeds") -> None:
        shown: News | None = None
        while True:
            try:
                async with feeds.polls:
                    news = await run_in_threadpool(self._read, position)
            except Exception as error:  # noqa: BLE001  Raised again at everybody who waits.
                self.error = error
                self._tell()
                return
            is_end = news.full is not None and not news.replay
            if is_end or news.replay or shown is None or news.state != shown.state:
                shown = news
                position = news.replay[-1][0] if news.replay else position
                self.kept.append(news)
                self.count += 1
                self._tell()
            if is_end:
                return
            if not news.replay:
                await asyncio.sleep(feeds.interval_seconds)

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


class Follower:
    """Reader of a feed."""

    def __init__(self, feed: Feed, feeds: "Feeds", read: Read) -> None:
        self._feed = feed
        self._feeds = feeds
        self._read = read
        self._seen = 0
        self._is_level = False

    async def next(self, position: Position) -> News:
        """Wait for the next events after a position; some before it may be repeated."""
        if self._is_level:
            await self._feed.wait(self._seen)
            behind = self._feed.count - self._seen
            if behind <= len(self._feed.kept):
                self._seen += 1
                return self._feed.kept[-behind]
            self._is_level = False
        # Noted before reading: news that the feed finds meanwhile may be repeated.
        self._seen = self._feed.count
        news = await run_in_threadpool(self._read, position)
        if not news.replay:
            self._is_level = True
            self._feed.start(position, self._feeds)
        return news


class Feeds:
    """Feeds of all verifications that have watchers in this process."""

    def __init__(self) -> None:
        self._feeds: dict[Hashable, Feed] = {}
        self.polls = asyncio.Semaphore(POLLS_AT_ONCE)

    @property
    def interval_seconds(self) -> float:
        """Seconds between two polls of one verification: longer if very many are watched."""
        return max(POLL_SECONDS, len(self._feeds) / POLLS_PER_SECOND)

    def __len__(self) -> int:
        return len(self._feeds)

    @contextmanager
    def follow(self, watched: Hashable, read: Read) -> Iterator[Follower]:
        """Follow a verification, as one viewer sees it, until the end of the block."""
        feed = self._feeds.get(watched)
        if feed is None or feed.error is not None:
            feed = self._feeds[watched] = Feed(read)
        feed.followers += 1
        try:
            yield Follower(feed, self, read)
        finally:
            feed.followers -= 1
            if feed.followers == 0:
                feed.stop()
                if self._feeds.get(watched) is feed:
                    del self._feeds[watched]
