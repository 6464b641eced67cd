"""HTTP protocol for uvicorn with limits on request heads: `uvicorn --http` takes this class.

uvicorn itself reads a head of any size, for as long as it takes. An application sees a request only
once its head is whole, so no middleware can bound that.
"""

from asyncio import BaseTransport, TimerHandle
from typing import Any

from uvicorn.protocols.http.httptools_impl import (
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
    b'{"type":"/docs/problems#request-header-fields-too-large",'
    b'"title":"Request header fields too large","status":431,'
    b'"detail":"The head of a request may have at most %d bytes.","problems":[]}'
)


class BoundedHttpProtocol(HttpToolsProtocol):
    """A head has so many bytes, and comes within so long; a connection that says nothing ends."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._head_bytes: int | None = None
        self._head_until: float | None = None
        self._head_timer: TimerHandle | None = None
        self._answered: RequestResponseCycle | None = None

    def connection_made(self, transport: BaseTransport) -> None:
        """Start the header timeout."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """Cancel the header timeout, and tell each request that its client left.

        uvicorn tells the request that came last; where several came in one piece, an earlier one is
        being answered, and would write to a transport that is closed.
        """
        if self._head_timer is not None:
            self._head_timer.cancel()
        self.pipeline.clear()
        super().connection_lost(exc)
        if self._answered is not None and not self._answered.response_complete:
            self._answered.disconnected = True
            self._answered.message_event.set()

    def on_message_begin(self) -> None:
        """Start counting, and the header timeout."""
        super().on_message_begin()
        self._head_bytes = 0
        if self._head_until is None:
            self._wait_for_head()

    def on_headers_complete(self) -> None:
        """Cancel the header timeout."""
        self._head_bytes = self._head_until = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on; count the bytes of a head that is not whole."""
        super().data_received(data)
        if self._head_bytes is None or self.transport.is_closing():
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            problem = PROBLEM % MOST_HEAD_BYTES
            self.transport.write(TOO_LARGE % (len(problem), problem))
            self.transport.close()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Let the application answer, unless the connection ends."""
        if not self.transport.is_closing():
            self._answered = cycle
            super()._start_asgi_task(cycle, app)

    def _wait_for_head(self) -> None:
        """Start the header timeout. A timer that runs is left: most heads come before it ends."""
        self._head_until = self.loop.time() + HEAD_SECONDS
        if self._head_timer is None:
            self._head_timer = self.loop.call_later(HEAD_SECONDS, self._look_at_head)

    def _look_at_head(self) -> None:
        """Close a connection with a late head; else set the timer to the end of its timeout."""
        self._head_timer = None
        if self._head_until is None or self.transport.is_closing():
            return
        seconds = self._head_until - self.loop.time()
        if seconds > 0:
            self._head_timer = self.loop.call_later(seconds, self._look_at_head)
        else:
            self.transport.close()
