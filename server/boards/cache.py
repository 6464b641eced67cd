"""Cache of encoded boards in front of the application.

A cached response is sent only if a read of the database that began after the request says that its
version is current. So each server process shows a write from the moment it is acknowledged,
whichever process made it.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.board_versions import VersionReader, Versions
from server.base.middleware import FOR_PAGES, by_name, is_known, is_open_to_pages, takes_gzip
from server.base.request_metrics import RequestMetrics, route_template

Headers = tuple[tuple[bytes, bytes], ...]
Key = tuple[str, bytes, bool]

BOARD = re.compile(r"/(?:api/v1/leaderboards|benchmarks)/[^/]+")
HINT = "finishline.cache_hint"
MOST_BYTES = 64 * 1024 * 1024
OVERHEAD_BYTES = 3000  # Of an entry, beside its body.
LONGEST_QUERY = 2000
MOST_JOINED = 2  # So many responses in flight does a request wait for, then it leads one.
NOT_IN_A_LINE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
OF_ONE_RESPONSE = b"x-request-id"
PERSONAL = frozenset({b"set-cookie", b"connection"})
# "304 Not Modified" leaves these out: the reader has them with the content.
OF_CONTENT = frozenset(
    b"content-length content-type content-encoding x-content-type-options referrer-policy "
    b"content-security-policy".split()
)


@dataclass
class CacheHint:
    """Marks a response as a board that is the same for every reader; the endpoint fills it in."""

    benchmark_id: str | None = None
    version: int = 0
    etag: str = ""


def hint_of(scope: Scope) -> CacheHint:
    """The hint of a request; one without a cache has a hint that nobody reads."""
    return cast(CacheHint, scope.get(HINT) or CacheHint())


@dataclass(frozen=True, slots=True)
class Reply:
    """A response. `head` is its header lines, None where a value cannot stand in a line."""

    status: int
    headers: Headers
    head: bytes | None
    body: bytes

    async def send(self, send: Send) -> None:
        """Send it as ASGI messages."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.body})


@dataclass(frozen=True, slots=True)
class Entry:
    """A cached board in one encoding: the whole response, and "304 Not Modified"."""

    benchmark_id: str
    version: int
    etag: str
    route: str
    whole: tuple[Reply, Reply]
    not_modified: tuple[Reply, Reply]

    def reply(self, scope: Scope, headers: dict[bytes, bytes]) -> Reply:
        """The response to a GET or HEAD with these headers."""
        tags = headers.get(b"if-none-match")
        found = self.not_modified if tags and is_known(tags, self.etag) else self.whole
        open_one, closed = found
        if is_open_to_pages(scope):
            return open_one
        return closed if scope["method"] == "GET" else _reply(closed.status, closed.headers, b"")


class BoardCache:
    """Sends a cached board if it is current; else calls the application and caches its response.

    It runs in the event loop alone, so it needs no lock.
    """

    def __init__(self, app: ASGIApp, reader: VersionReader, metrics: RequestMetrics) -> None:
        self._app = app
        self._reader = reader
        self._metrics = metrics
        self._bytes = 0
        self._entries: OrderedDict[Key, Entry] = OrderedDict()
        self._flights: dict[Key, asyncio.Future[Entry | None]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = by_name(scope["headers"]) if scope["type"] == "http" else {}
        key, began = _key(scope, headers), time.monotonic()
        entry = None if key is None else await self._find_or_join(key)
        if entry is not None:
            reply = entry.reply(scope, headers)
            await reply.send(send)
            self._count(scope, entry, reply, began)
        elif key is not None and scope["method"] == "GET":
            await self._lead(key, scope, headers, receive, send)
        else:
            await self._app(scope, receive, send)

    def answer(self, scope: Scope, write: Callable[[Reply | None], None]) -> bool:
        """Call `write` with the cached board once its version is checked, None if it is outdated.

        Returns whether anything is cached for the request; if not, nothing is called.
        """
        headers = by_name(scope["headers"])
        key = _key(scope, headers)
        if key is None or key not in self._entries:
            return False
        began = time.monotonic()

        def checked(versions: Versions | None) -> None:
            entry = self._current(key, versions)
            if entry is None:
                write(None)
                return
            reply = entry.reply(scope, headers)
            write(reply)
            self._count(scope, entry, reply, began)

        self._reader.when_read(checked)
        return True

    def _count(self, scope: Scope, entry: Entry, reply: Reply, began: float) -> None:
        seconds = time.monotonic() - began
        self._metrics.count(scope["method"], entry.route, status=reply.status, seconds=seconds)

    def _current(self, key: Key, versions: Versions | None) -> Entry | None:
        entry = self._entries.get(key)
        if not versions or entry is None or versions.get(entry.benchmark_id, 0) != entry.version:
            return None
        self._entries.move_to_end(key)
        return entry

    async def _find_or_join(self, key: Key) -> Entry | None:
        """A current entry, or the response to an identical request in flight if it is new enough.

        `needed` was read after the request came: an older response is not joined.
        """
        needed: Versions | None = None
        for _ in range(MOST_JOINED):
            if key not in self._entries and key not in self._flights:
                return None
            versions = await self._reader.read()
            needed = needed or versions
            entry, flight = self._current(key, versions), self._flights.get(key)
            if entry is not None or needed is None or flight is None:
                return entry
            made = await asyncio.shield(flight)
            if made is not None and made.version >= needed.get(made.benchmark_id, 0):
                return made
        return None

    async def _lead(
        self, key: Key, scope: Scope, headers: dict[bytes, bytes], receive: Receive, send: Send
    ) -> None:
        """Let the application answer; identical requests in flight wait for its response."""
        flight: asyncio.Future[Entry | None] = asyncio.get_running_loop().create_future()
        leads = self._flights.setdefault(key, flight) is flight
        hint, start = CacheHint(), None
        # The whole response is cached, also where this reader has it already.
        whole = [item for item in scope["headers"] if item[0] != b"if-none-match"]
        asked = dict(scope, headers=whole) | {HINT: hint}

        def land(entry: Entry | None) -> None:
            if leads and not flight.done():
                del self._flights[key]
                flight.set_result(entry)

        async def record(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                if message["status"] == 200 and hint.benchmark_id is not None:
                    start = message
                    return
            elif start is not None:
                begun, start = start, None
                entry = self._store(key, asked, hint, begun, message)
                land(entry)  # Others do not wait until this reader has taken its response.
                reply = None if entry is None else entry.reply(scope, headers)
                if reply is not None and reply.status == 304:
                    await reply.send(send)
                    return
                await send(begun)
            await send(message)

        try:
            await self._app(asked, receive, record)
        finally:
            land(None)

    def _store(
        self, key: Key, scope: Scope, hint: CacheHint, start: Message, end: Message
    ) -> Entry | None:
        """Cache a response; None if it is one reader's, or sent in parts."""
        not_kept = {OF_ONE_RESPONSE, *dict(FOR_PAGES)}
        headers = tuple(item for item in start["headers"] if item[0] not in not_kept)
        in_parts = end.get("more_body", False)
        if in_parts or hint.benchmark_id is None or PERSONAL & dict(headers).keys():
            return None
        known = tuple(item for item in headers if item[0] not in OF_CONTENT)
        entry = Entry(
            benchmark_id=hint.benchmark_id,
            version=hint.version,
            etag=hint.etag,
            route=route_template(scope),
            whole=_replies(200, headers, end["body"]),
            not_modified=_replies(304, known, b""),
        )
        earlier = self._entries.pop(key, None)
        self._bytes += _weight(entry) - (0 if earlier is None else _weight(earlier))
        self._entries[key] = entry
        while self._bytes > MOST_BYTES:
            self._bytes -= _weight(self._entries.popitem(last=False)[1])
        return entry


def _weight(entry: Entry) -> int:
    return len(entry.whole[0].body) + OVERHEAD_BYTES


def _key(scope: Scope, headers: dict[bytes, bytes]) -> Key | None:
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return None
    has_body = b"content-length" in headers or b"transfer-encoding" in headers
    is_board = BOARD.fullmatch(scope["path"]) is not None
    if has_body or not is_board or len(scope["query_string"]) > LONGEST_QUERY:
        return None
    return scope["path"], scope["query_string"], takes_gzip(headers.get(b"accept-encoding", b""))


def _replies(status: int, headers: Headers, body: bytes) -> tuple[Reply, Reply]:
    """A response for everybody's pages, and the same for one reader."""
    return _reply(status, (*headers, *FOR_PAGES), body), _reply(status, headers, body)


def _reply(status: int, headers: Headers, body: bytes) -> Reply:
    is_plain = not any(NOT_IN_A_LINE.search(name + value) for name, value in headers)
    head = b"".join(name + b": " + value + b"\r\n" for name, value in headers)
    return Reply(status, headers, head if is_plain else None, body)
