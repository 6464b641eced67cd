"""Bodies while they come in: how many bytes in all, and how slowly a sender may send.

A place to work in is not held while the server waits for a sender; it is taken again once the body
is whole.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Message, Receive, Scope

from server.limits.room import BytesInFlight

SILENT_SECONDS = 20.0
GRACE_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
BUSY_RETRY_SECONDS = 5


def has_body(headers: Headers) -> bool:
    """Whether a request says that a body follows."""
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"


class Body:
    """The body of one request, counted and timed."""

    def __init__(
        self,
        scope: Scope,
        receive: Receive,
        *,
        in_flight: BytesInFlight,
        on_wait: Callable[[], None],
        on_whole: Callable[[], Awaitable[bool]],
        on_shed: Callable[[str], None],
    ) -> None:
        self._receive = receive
        self._in_flight = in_flight
        self._on_wait = on_wait
        self._on_whole = on_whole
        self._on_shed = on_shed
        stated = Headers(scope=scope).get("content-length", "0")
        self._stated = int(stated) if stated.isascii() and stated.isdigit() else 0
        self._began_at: float | None = None
        self._received = 0
        self._is_whole = False

    async def receive(self) -> Message:
        """The next piece. Raises HTTPException 408 for a sender too slow, 503 where all is full."""
        if self._is_whole:
            return await self._receive()
        if self._began_at is None:
            self._began_at = time.monotonic()
            if not self._in_flight.has_room(self._stated):
                raise self._full(self._in_flight.name)
            self._on_wait()
        message = await self._next_piece(self._began_at)
        count = len(message.get("body", b""))
        if not self._in_flight.take(count):
            raise self._full(self._in_flight.name)
        self._received += count
        if not message.get("more_body", False):
            self._is_whole = True
            if not await self._on_whole():
                raise self._full("requests")
        return message

    def let_go(self) -> None:
        """Its bytes are not needed any more."""
        self._in_flight.give_back(self._received)
        self._received = 0

    async def _next_piece(self, began_at: float) -> Message:
        try:
            async with asyncio.timeout(SILENT_SECONDS):
                message = await self._receive()
        except TimeoutError as error:
            raise _too_slow(f"nothing came for {SILENT_SECONDS:.0f} s") from error
        seconds = time.monotonic() - began_at
        if seconds > GRACE_SECONDS and self._received < seconds * SLOWEST_BYTES_PER_SECOND:
            raise _too_slow(f"{self._received} bytes came in {seconds:.0f} s")
        return message

    def _full(self, what: str) -> HTTPException:
        self._on_shed(what)
        return HTTPException(
            503,
            "The server has as much to do as it can; nothing of this request was kept. "
            f"Try again in {BUSY_RETRY_SECONDS} s.",
            headers={"Retry-After": str(BUSY_RETRY_SECONDS), "Connection": "close"},
        )


def _too_slow(why: str) -> HTTPException:
    return HTTPException(
        408,
        f"The body of this request came too slowly ({why}); nothing of it was kept.",
        headers={"Connection": "close"},
    )
