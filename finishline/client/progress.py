"""Progress of sending a request."""

from collections.abc import Callable, Iterator

import httpx2

Progress = Callable[[int, int], None]


def report_progress(request: httpx2.Request, progress: Progress) -> None:
    """Have `progress` called with the bytes sent and the bytes in all, piece by piece."""
    content = request.stream
    if isinstance(content, httpx2.SyncByteStream):
        total_bytes = int(request.headers.get("Content-Length", 0))
        request.stream = _CountedStream(content, total_bytes, progress)


class _CountedStream(httpx2.SyncByteStream):
    """A body that says how much of it has been taken."""

    def __init__(
        self, content: httpx2.SyncByteStream, total_bytes: int, progress: Progress
    ) -> None:
        self._content = content
        self._total_bytes = total_bytes
        self._progress = progress

    def __iter__(self) -> Iterator[bytes]:
        sent_bytes = 0
        for piece in self._content:
            yield piece
            sent_bytes += len(piece)
            self._progress(sent_bytes, self._total_bytes)
