"""A verification as it happens, over server-sent events, read from the database alone.

Nothing is kept in the server's memory: after a restart, or on another server, a browser goes on
where it stopped, because an event's id says where that was.
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header
from fastapi.concurrency import run_in_threadpool
from fastapi.sse import EventSourceResponse, ServerSentEvent

from server.dependencies import Parts, PartsDep
from server.sessions.viewing import ViewerDep
from server.verifications import queries
from server.verifications.schemas import ENDED
from server.viewer import Viewer

router = APIRouter(tags=["verifications"])
POLL_SECONDS = 0.25
RETRY_MILLISECONDS = 1000  # How soon a browser connects again when the server went away.
EVENTS_AT_ONCE = 1000
LARGEST_NUMBER = 2**31 - 1  # What the database can hold.


@dataclass(frozen=True)
class Position:
    """The last replay event that was sent: its attempt's number and its sequence."""

    attempt: int = 0
    sequence: int = -1

    def __str__(self) -> str:
        return f"{self.attempt}.{self.sequence}"


def parse_position(last_event_id: str | None) -> Position:
    """Where a Last-Event-ID says the reader stopped; the beginning if it is absent or strange."""
    attempt, _, sequence = (last_event_id or "").partition(".")
    try:
        position = Position(int(attempt), int(sequence))
    except ValueError:
        return Position()
    in_range = max(abs(position.attempt), abs(position.sequence)) <= LARGEST_NUMBER
    return position if in_range else Position()


@dataclass(frozen=True)
class News:
    """What happened since a position."""

    state: dict[str, Any]
    full: dict[str, Any] | None
    replay: list[tuple[Position, dict[str, Any]]]


def existing_verification(verification_id: str, parts: PartsDep, viewer: ViewerDep) -> str:
    """The id, once it is known that there is such a verification: a 404 before any event."""
    with parts.database.read(viewer) as session:
        return queries.find_verification(session, verification_id).id


@router.get("/verifications/{verification_id}/events", response_class=EventSourceResponse)
async def watch_verification(
    parts: PartsDep,
    viewer: ViewerDep,
    verification_id: Annotated[str, Depends(existing_verification)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a verification: `state` at each change, `replay` for each event, `end` at the end."""
    position = parse_position(last_event_id)
    shown: dict[str, Any] | None = None
    while True:
        news = await run_in_threadpool(_read_news, parts, viewer, verification_id, position)
        if news.state != shown:
            shown = news.state
            yield ServerSentEvent(
                event="state", data=shown, id=str(position), retry=RETRY_MILLISECONDS
            )
        for place, event in news.replay:
            position = place
            yield ServerSentEvent(event="replay", data=event, id=str(place))
        if news.full is not None and not news.replay:
            yield ServerSentEvent(event="end", data=news.full, id=str(position))
            return
        if not news.replay:
            await asyncio.sleep(POLL_SECONDS)


def _read_news(parts: Parts, viewer: Viewer, verification_id: str, position: Position) -> News:
    alive = parts.settings.worker_alive_seconds
    with parts.database.read(viewer) as session:
        verification = queries.find_verification(session, verification_id)
        ended = verification.state in ENDED
        view = queries.view(session, verification, alive_seconds=alive, with_report=ended)
        replay = []
        for attempt in verification.attempts:
            if attempt.number < position.attempt:
                continue
            after = position.sequence if attempt.number == position.attempt else -1
            rows = queries.events_after(session, attempt, after, limit=EVENTS_AT_ONCE)
            replay += [
                (Position(attempt.number, row.sequence), {"attempt": attempt.number, **row.event})
                for row in rows
            ]
            if len(rows) == EVENTS_AT_ONCE:
                break  # The rest of this attempt comes before the next one.
    full = view.model_dump(mode="json")
    state = {name: value for name, value in full.items() if name != "report"}
    return News(state=state, full=full if ended else None, replay=replay)
