"""Heads and bodies of requests: how large one may be, how slowly it may come, how many at once.

uvicorn itself reads a head of any size, for as long as it takes. An application sees a request only
once its head is whole, so no middleware can bound that: `uvicorn --http` takes the class below.
"""

import asyncio
import time
from asyncio import BaseTransport
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.base.error_answers import refuse
from server.base.request_context import RequestMetrics, note_read
from server.base.settings import MIB

SILENT_SECONDS = 20.0
GRACE_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
RETRY_SECONDS = 5
CLOSE = {"Connection": "close"}


@dataclass
class BodyRoom:
    """Bodies of one kind: the largest, and the most bytes of all of them together."""

    name: str
    most_each: int
    most_together: int
    held: int = 0


class BodyLimit:
    """Refuse bodies that are too large, too slow, compressed, or too many at once.

    Uploads, which go to few addresses, lie on the disk. Every other body is read into memory before
    anybody is asked for a token, so it has a smaller limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        usual: BodyRoom,
        uploads: BodyRoom,
        upload_paths: Collection[str],
        metrics: RequestMetrics,
    ) -> None:
        self._app = app
        self._usual = usual
        self._uploads = uploads
        self._upload_paths = upload_paths
        self._metrics = metrics
        for room in (usual, uploads):
            metrics.shed.labels(room.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        room = self._uploads if scope["path"] in self._upload_paths else self._usual
        try:
            self._check_head(room, Headers(scope=scope))
        except HTTPException as error:
            await refuse(scope, receive, send, error)
            return
        began_at: float | None = None
        received, is_whole = 0, False

        async def receive_piece() -> Message:
            """The next piece. Raises HTTPException: 408 too slow, 413 too large, 503 too many.

            FastAPI lets an HTTPException through while it reads a body, and no other exception.
            """
            nonlocal began_at, received, is_whole
            if is_whole:
                return await receive()
            began_at = time.monotonic() if began_at is None else began_at
            message = await _next_piece(receive, received, began_at)
            count = len(message.get("body", b""))
            self._check(room, received + count, room.held + count)
            received += count
            room.held += count
            is_whole = not message.get("more_body", False)
            if is_whole:
                note_read()
            return message

        try:
            await self._app(scope, receive_piece, send)
        finally:
            room.held -= received

    def _check_head(self, room: BodyRoom, headers: Headers) -> None:
        if headers.get("content-encoding", "identity") != "identity":
            # A small body could become a large one.
            raise HTTPException(
                415, "Compressed requests are not supported; send the body uncompressed."
            )
        stated = headers.get("content-length", "0")
        size = int(stated) if stated.isascii() and stated.isdigit() else 0
        self._check(room, size, room.held + size)

    def _check(self, room: BodyRoom, size: int, together: int) -> None:
        if size > room.most_each:
            most = f"{room.most_each / MIB:g} MiB"
            raise HTTPException(413, f"A request to this address may have at most {most}.")
        if together > room.most_together:
            self._metrics.shed.labels(room.name).inc()
            raise HTTPException(
                503,
                "The server has no capacity for more uploads; nothing of this request was stored. "
                f"Try again in {RETRY_SECONDS} s.",
                headers=CLOSE | {"Retry-After": str(RETRY_SECONDS)},
            )


async def _next_piece(receive: Receive, received: int, began_at: float) -> Message:
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            message = await receive()
    except TimeoutError as error:
        raise _too_slow(f"nothing came for {SILENT_SECONDS:.0f} s") from error
    seconds = time.monotonic() - began_at
    if seconds > GRACE_SECONDS and received < seconds * SLOWEST_BYTES_PER_SECOND:
        raise _too_slow(f"{received} bytes came in {seconds:.0f} s")
    return message


def _too_slow(why: str) -> HTTPException:
    detail = f"The body of this request came too slowly ({why}); nothing was stored."
    return HTTPException(408, detail, headers=CLOSE)


MOST_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0


class BoundedHttpProtocol(HttpToolsProtocol):
    """A head has so many bytes, and comes within so long. A connection that says nothing ends."""

    def connection_made(self, transport: BaseTransport) -> None:
        """Wait for the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._head_bytes: int | None = 0
        self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._too_late.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_bytes = self._head_bytes or 0

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_bytes = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on. Bound a head that is not whole."""
        super().data_received(data)
        if self._head_bytes is None or self.transport.is_closing():
            self._too_late.cancel()
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response(f"The head of a request may have {MOST_HEAD_BYTES} bytes.")
        elif self._too_late.cancelled():
            self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)
