"""A verification as it happens, over server-sent events, read from the database alone.

Nothing that matters is kept in the server's memory: after a restart, or on another server, a
browser goes on where it stopped, because an event's id says where that was.
"""

from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Depends, Header, Request
from fastapi.sse import EventSourceResponse, ServerSentEvent

from server.dependencies import PartsDep
from server.verifications import queries
from server.verifications.feeds import Feeds
from server.verifications.news import parse_position, read_news

router = APIRouter(tags=["verifications"])
RETRY_MILLISECONDS = 1000  # How soon a browser connects again when the server went away.


def existing_verification(verification_id: str, parts: PartsDep) -> str:
    """The id, once it is known that there is such a verification: a 404 before any event."""
    with parts.database.read() as session:
        return queries.find_verification(session, verification_id).id


@router.get("/verifications/{verification_id}/events", response_class=EventSourceResponse)
async def watch_verification(
    request: Request,
    parts: PartsDep,
    verification_id: Annotated[str, Depends(existing_verification)],
    last_event_id: Annotated[str | None, Header()] = None,
) -> AsyncIterator[ServerSentEvent]:
    """Follow a verification: `state` at each change, `replay` for each event, `end` at the end."""
    position = parse_position(last_event_id)
    shown: dict[str, Any] | None = None
    read = partial(read_news, parts, verification_id)
    feeds: Feeds = request.app.state.feeds
    with feeds.follow(verification_id, read) as follower:
        while True:
            news = await follower.next(position)
            if news.state != shown:
                shown = news.state
                yield ServerSentEvent(
                    event="state", data=shown, id=str(position), retry=RETRY_MILLISECONDS
                )
            fresh = [item for item in news.replay if item[0] > position]
            for place, event in fresh:
                position = place
                yield ServerSentEvent(event="replay", data=event, id=str(place))
            if news.full is not None and not fresh:
                yield ServerSentEvent(event="end", data=news.full, id=str(position))
                return
