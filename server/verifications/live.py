"""Stream a verification: its state at each change, and its events."""

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from fastapi import Depends, Header
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent
from sqlalchemy import select

from server.base.database import OUTAGES, Services, ServicesDep
from server.base.models import ReplayEventRow
from server.base.standing import ENDED, find_verification
from server.base.visibility import Viewer
from server.people.callers import ViewerDep
from server.people.declared import Routes
from server.verifications import views

log = logging.getLogger(__name__)
router = Routes(tags=["verifications"])
EVENTS_AT_ONCE = 1000
LARGEST_NUMBER = 2**31 - 1  # Largest integer of the database.
RETRY_MILLISECONDS = 1000  # How soon a browser connects again when the server went away.
POLL_SECONDS = 0.25
POLLS_PER_SECOND = 100.0  # However many verifications are watched.
READS_AT_ONCE = 4


@dataclass(frozen=True, order=True)
class Position:
    """Position in a stream: attempt number and sequence of the last replay event sent."""

    attempt: int = 0
    sequence: int = -1

    def __str__(self) -> str:
        return f"{self.attempt}.{self.sequence}"


def parse_position(last_event_id: str | None) -> Position:
    """Parse a Last-Event-ID into a position. The beginning if it is missing or malformed."""
    attempt, _, sequence = (last_event_id or "").partition(".")
    try:
        position = Position(int(attempt), int(sequence))
    except ValueError:
        return Position()
    in_range = max(abs(position.attempt), abs(position.sequence)) <= LARGEST_NUMBER
    return position if in_range else Position()


@dataclass(frozen=True)
class News:
    """State and replay events since a position. `full` is the view of an ended verification."""

    state: dict[str, Any]
    full: dict[str, Any] | None
    replay: list[tuple[Position, dict[str, Any]]]

    @property
    def is_end(self) -> bool:
        """Whether the stream ends here."""
        return self.full is not None and not self.replay


def read_news(services: Services, viewer: Viewer, verification_id: str, position: Position) -> News:
    """Read the current state, and the next events after a position. Raises NotFoundError."""
    with services.database.read(viewer) as session:
        verification = find_verification(session, verification_id)
        ended = verification.state in ENDED
        full = views.view(session, verification).model_dump(mode="json")
        replay: list[tuple[Position, dict[str, Any]]] = []
        for attempt in verification.attempts:
            number = attempt.number
            if number < position.attempt or len(replay) >= EVENTS_AT_ONCE:
                continue
            after = position.sequence if number == position.attempt else -1
            rows = session.scalars(
                select(ReplayEventRow)
                .where(ReplayEventRow.attempt_id == attempt.id, ReplayEventRow.sequence > after)
                .order_by(ReplayEventRow.sequence)
                .limit(EVENTS_AT_ONCE - len(replay))
            )
            replay += [
                (Position(number, row.sequence), {"attempt": number, **row.event}) for row in rows
            ]
    state = {name: value for name, value in full.items() if name != "report"}
    return News(state=state, full=full if ended else None, replay=replay)


Read = Callable[[Position], News]


class Feeds:
    """Reads news for all readers in this process. Readers at one position share a read."""

    def __init__(self) -> None:
        self._reads: dict[Hashable, tuple[float, asyncio.Task[News]]] = {}
        self._slots = asyncio.Semaphore(READS_AT_ONCE)

    @property
    def interval_seconds(self) -> float:
        """Seconds between two reads at one position, longer if very many are watched."""
        return max(POLL_SECONDS, len(self._reads) / POLLS_PER_SECOND)

    async def follow(
        self, watched: Hashable, read: Read, position: Position
    ) -> AsyncIterator[News]:
        """Yield the news after a position until the end. Raises the errors of a read."""
        while True:
            news = await self._read(watched, read, position)
            yield news
            if news.is_end:
                return
            if news.replay:
                position = news.replay[-1][0]
            else:
                await asyncio.sleep(self.interval_seconds)

    async def _read(self, watched: Hashable, read: Read, position: Position) -> News:
        now, key = time.monotonic(), (watched, position)
        at, task = self._reads.get(key, (0.0, None))
        if task is None or (task.done() and (task.exception() or now - at >= POLL_SECONDS)):
            since = now - self.interval_seconds
            self._reads = {
                name: kept
                for name, kept in self._reads.items()
                if kept[0] >= since or not kept[1].done()
            }
            task = asyncio.create_task(self._read_in_thread(read, position))
            self._reads[key] = now, task
        return await asyncio.shield(task)

    async def _read_in_thread(self, read: Read, position: Position) -> News:
        async with self._slots:
            return await run_in_threadpool(read, position)


def existing_verification(verification_id: str, services: ServicesDep, viewer: ViewerDep) -> str:
    """Raise the 404 before any event is sent. Returns the id."""
    with services.database.read(viewer) as session:
        return find_verification(session, verification_id).id


@router.get("/verifications/{verification_id}/events", response_class=EventSourceResponse)
async def watch_verification(
    services: ServicesDep,
    viewer: ViewerDep,
    verification_id: Annotated[str, Depends(existing_verification)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a verification: `state` at each change, `replay` for each event, `end` at the end."""
    position, shown = parse_position(last_event_id), None
    read = partial(read_news, services, viewer, verification_id)
    feed = services.of(Feeds).follow((verification_id, viewer), read, position)
    try:
        async for news in feed:
            if news.state != shown:
                shown = news.state
                yield ServerSentEvent(
                    event="state", data=shown, id=str(position), retry=RETRY_MILLISECONDS
                )
            for position, event in news.replay:
                yield ServerSentEvent(event="replay", data=event, id=str(position))
            if news.is_end:
                yield ServerSentEvent(event="end", data=news.full, id=str(position))
    except OUTAGES as error:  # The reader connects again.
        log.warning("a live stream of %s ends: %s", verification_id, error)
