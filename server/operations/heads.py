"""HTTP protocol for uvicorn with limits on request heads: `uvicorn --http` takes this class.

uvicorn itself reads a head of any size, for as long as it takes. An application sees a request only
once its head is whole, so no middleware can bound that.
"""

from asyncio import BaseTransport

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MOST_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0


class BoundedHttpProtocol(HttpToolsProtocol):
    """A head has so many bytes, and comes within so long; a connection that says nothing ends."""

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
        """Read on; bound a head that is not whole."""
        super().data_received(data)
        if self._head_bytes is None or self.transport.is_closing():
            self._too_late.cancel()
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response(f"The head of a request may have {MOST_HEAD_BYTES} bytes.")
        elif self._too_late.cancelled():
            self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)
