"""How uvicorn reads requests, with bounds on their heads: `uvicorn --http` takes this class.

uvicorn itself reads a head of any size, for as long as it takes. An application sees a request only
once its head is whole, so no middleware can bound that.

A board that the application keeps as bytes is written from here: the task, the messages and the
headers put together anew would be most of what it costs.
"""

import time
from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
    STATUS_LINE,
    HttpToolsProtocol,
    RequestResponseCycle,
)

MOST_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0
TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/problem+json\r\n"
    b"connection: close\r\ncontent-length: %d\r\n\r\n%s"
)
PROBLEM = (
    b'{"type":"about:blank","title":"Request header fields too large","status":431,'
    b'"detail":"The head of a request may have at most %d bytes.","problems":[]}'
)


class BoundedHttpProtocol(HttpToolsProtocol):
    """A head has so many bytes, and comes within so long; a connection that says nothing ends."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes: int | None = None
        self._head_timer: TimerHandle | None = None
        self._may_write_at_once = False
        self._answered: RequestResponseCycle | None = None
        # uvicorn puts the application behind what believes a proxy; what is kept is for everybody.
        application = getattr(self.app, "app", self.app)
        self._kept_reply = getattr(application, "kept_reply", None)

    def connection_made(self, transport: BaseTransport) -> None:
        """Start the header timeout."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the header timeout, and tell each request that its client left.

        uvicorn tells the request that came last; where several came in one piece, an earlier one is
        being answered, and would write to a transport that is closed.
        """
        self._stop_waiting()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def on_message_begin(self) -> None:
        """Start counting, and the header timeout."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._head_timer is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Cancel the header timeout."""
        self._head_bytes = None
        self._stop_waiting()
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on; count the bytes of a head that is not whole."""
        # One for each piece that comes: whoever sends a thousand requests in one has them queued.
        self._may_write_at_once = True
        super().data_received(data)
        if self._head_bytes is None or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            problem = PROBLEM % MOST_HEAD_BYTES
            self.transport.write(TOO_LARGE % (len(problem), problem))
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answer a request: at once, or by the application in a task of its own."""
        if self.transport.is_closing():
            return
        self._answered = cycle
        if not self._write_at_once(cycle, app):
            # Where an earlier request of the same piece was written at once, the connection has
            # begun to wait for another, and would end in the middle of this one's answer.
            self._unset_keepalive_if_required()
            super()._start_asgi_task(cycle, app)

    def _write_at_once(self, cycle: RequestResponseCycle, app: Any) -> bool:
        """Write what the application keeps, if it does and the connection takes it and goes on."""
        may = self._may_write_at_once and cycle.keep_alive and not self.flow.write_paused
        if not may or self._kept_reply is None or app is not self.app:
            return False
        began = time.monotonic()
        reply = self._kept_reply(cycle.scope, began)
        if reply is None or reply.head is None:
            return False
        self._may_write_at_once = False
        of_server = [b"%s: %s\r\n" % header for header in cycle.default_headers]
        head = b"".join((STATUS_LINE[reply.status], *of_server, reply.head, b"\r\n"))
        self.transport.writelines((head, reply.content))
        cycle.response_started = cycle.response_complete = True
        reply.tally.count(time.monotonic() - began)
        self.on_response_complete()
        return True

    def _wait_for_head(self) -> None:
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self._give_up)

    def _stop_waiting(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _give_up(self) -> None:
        self._head_timer = None
        if not self.transport.is_closing():
            self.transport.close()
