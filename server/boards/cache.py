"""Cache encoded boards in front of the application.

A cached board is sent only if a read of the database that began after the request confirms its
version. So each server process shows a write as soon as it is acknowledged.
"""

import re
from collections import OrderedDict
from dataclasses import dataclass
from typing import cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.board_versions import VersionReader
from server.base.http import FOR_PAGES, RequestMetrics, is_known, is_open_to_pages, takes_gzip

Headers = tuple[tuple[bytes, bytes], ...]
Key = tuple[str, bytes, bool]

BOARD = re.compile(r"/(?:api/v1/leaderboards|benchmarks)/[^/]+")
HINT = "finishline.cache_hint"
MOST_BYTES = 64 * 1024 * 1024
OVERHEAD_BYTES = 3000  # Of an entry, without its body.
LONGEST_QUERY = 2000
OF_ONE_RESPONSE = frozenset({b"x-request-id", *dict(FOR_PAGES)})
PERSONAL = frozenset({b"set-cookie", b"connection"})
# "304 Not Modified" leaves these out: the reader has them with the content.
OF_CONTENT = frozenset(
    b"content-length content-type content-encoding x-content-type-options referrer-policy "
    b"content-security-policy".split()
)


@dataclass
class CacheHint:
    """Marks a response as a board for every reader. The endpoint fills it in."""

    benchmark_id: str | None = None
    version: int = 0
    etag: str = ""


def hint_of(scope: Scope) -> CacheHint:
    """Return the hint of a request, or an unused one."""
    return cast(CacheHint, scope.get(HINT) or CacheHint())


@dataclass(frozen=True, slots=True)
class Entry:
    """A cached board in one encoding."""

    hint: CacheHint
    headers: Headers
    body: bytes

    @property
    def weight(self) -> int:
        """Bytes in memory."""
        return len(self.body) + OVERHEAD_BYTES

    async def send(self, scope: Scope, send: Send) -> int:
        """Send the board, or "304 Not Modified" if the reader has it. Returns the status."""
        status, sent, body = 200, self.headers, self.body
        if is_known(scope, self.hint.etag):
            status, body = 304, b""
            sent = tuple(item for item in sent if item[0] not in OF_CONTENT)
        if is_open_to_pages(scope):
            sent += FOR_PAGES
        await send({"type": "http.response.start", "status": status, "headers": sent})
        await send({"type": "http.response.body", "body": body})
        return status


class BoardCache:
    """Sends current cached boards, else calls the application. One event loop needs no lock."""

    def __init__(self, app: ASGIApp, reader: VersionReader, metrics: RequestMetrics) -> None:
        self._app = app
        self._reader = reader
        self._metrics = metrics
        self._bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        key = _key(scope)
        if key is None:
            await self._app(scope, receive, send)
            return
        entry = await self._current(key)
        if entry is not None:
            status = await entry.send(scope, send)
            self._metrics.cached_boards.labels(str(status)).inc()
            return
        made = await self._make(key, scope, receive, send)
        if made is not None:
            await made.send(scope, send)

    async def _current(self, key: Key) -> Entry | None:
        if key not in self._entries:
            return None
        versions = await self._reader.read()
        entry = self._entries.get(key)  # Another request may have made it anew meanwhile.
        if not versions or entry is None:
            return None
        if versions.get(entry.hint.benchmark_id or "", 0) != entry.hint.version:
            return None
        self._entries.move_to_end(key)
        return entry

    async def _make(self, key: Key, scope: Scope, receive: Receive, send: Send) -> Entry | None:
        """Let the application answer. A board is cached and returned, other responses are sent."""
        made: Entry | None = None
        hint, start = CacheHint(), None
        # The whole response is cached, even if this reader has it already.
        whole = [item for item in scope["headers"] if item[0] != b"if-none-match"]
        asked = dict(scope, headers=whole) | {HINT: hint}

        async def record(message: Message) -> None:
            nonlocal start, made
            if message["type"] == "http.response.start" and _is_board(message, hint):
                start = message
                return
            if start is not None:
                begun, start = start, None
                if not message.get("more_body", False):
                    headers = tuple(h for h in begun["headers"] if h[0] not in OF_ONE_RESPONSE)
                    made = Entry(hint, headers, message["body"])
                    self._keep(key, made)
                    return
                await send(begun)
            await send(message)

        await self._app(asked, receive, record)
        return made

    def _keep(self, key: Key, entry: Entry) -> None:
        earlier = self._entries.pop(key, None)
        self._bytes += entry.weight - (0 if earlier is None else earlier.weight)
        self._entries[key] = entry
        while self._bytes > MOST_BYTES:
            self._bytes -= self._entries.popitem(last=False)[1].weight


def _is_board(start: Message, hint: CacheHint) -> bool:
    is_whole = start["status"] == 200 and hint.benchmark_id is not None
    return is_whole and not PERSONAL & dict(start["headers"]).keys()


def _key(scope: Scope) -> Key | None:
    if scope["type"] != "http" or scope["method"] != "GET":
        return None
    has_body = any(
        name in (b"content-length", b"transfer-encoding") for name, _ in scope["headers"]
    )
    is_board = BOARD.fullmatch(scope["path"]) is not None
    if has_body or not is_board or len(scope["query_string"]) > LONGEST_QUERY:
        return None
    return scope["path"], scope["query_string"], takes_gzip(scope)
