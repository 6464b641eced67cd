"""Boards as bytes in front of the application: what it answered once, as long as it holds.

What it keeps has the headers of all middlewares. It knows no query and makes no board: what it has
not kept, or may not be sure of, the application answers. A kept answer passes neither FastAPI nor
whoever observes requests, so it carries the counts that it belongs to.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.conditions import by_name, is_known, takes_gzip
from server.leaderboard.lessons import LESSON, Lesson
from server.leaderboard.versions import KnownVersions
from server.leaderboard.watch import VersionWatch
from server.observability.request_metrics import RequestMetrics, Tally
from server.observability.routes import route_template

Headers = tuple[tuple[bytes, bytes], ...]
Key = tuple[str, bytes, bool]

BOARDS = ("/api/v1/leaderboards/", "/benchmarks/")
MIB = 1024 * 1024
MOST_BYTES = 64 * MIB
# Longer ones are nobody's bookmark; together with a share for headers they would outweigh boards.
LONGEST_QUERY = 2000
OVERHEAD_BYTES = 2000
NOT_IN_A_LINE = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
# What "304 Not Modified" leaves out, because whoever is told so has it with the content.
OF_CONTENT = frozenset(
    {
        *(b"content-length", b"content-type", b"content-encoding", b"x-content-type-options"),
        *(b"referrer-policy", b"content-security-policy"),
    }
)


@dataclass(frozen=True, slots=True)
class Reply:
    """One answer to one method: a status, headers and bytes, and where it is counted.

    `head` is the headers as they are sent, each with its line end; None where one has a character
    that none may have. `route` and `path_params` are what the router found: whoever observes
    requests reads them.
    """

    status: int
    headers: Headers
    head: bytes | None
    content: bytes
    tally: Tally
    route: Any
    path_params: dict[str, Any]

    async def send(self, send: Send) -> None:
        """Send it, in messages of its own: whoever is outside may add to them."""
        await send({"type": "http.response.start", "status": self.status, "headers": self.headers})
        await send({"type": "http.response.body", "body": self.content})


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """A board in one encoding: for GET, for HEAD, and for whoever has it already."""

    benchmark_id: str
    version: int
    etag: str
    etag_bytes: bytes
    whole: Reply
    head: Reply
    known: Reply
    known_head: Reply

    def reply(self, method: str, tags: bytes | None) -> Reply:
        """The answer to GET or HEAD by a reader that has what these tags name."""
        is_get = method == "GET"
        if tags is not None and (tags == self.etag_bytes or is_known(tags, self.etag)):
            return self.known if is_get else self.known_head
        return self.whole if is_get else self.head


class FastPath:
    """Answers reads of boards from what it learnt, as long as their version is the current one.

    It runs in the event loop alone, so it needs no lock.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        known: KnownVersions,
        watch: VersionWatch,
        metrics: RequestMetrics,
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._app = app
        self._known = known
        self._watch = watch
        self._metrics = metrics
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, KeptAnswer] = OrderedDict()
        self._asking: asyncio.Future[None] | None = None

    def find(self, scope: Scope, now: float) -> Reply | None:
        """What is kept for an HTTP request and current; `now` is of time.monotonic()."""
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD") or not path.startswith(BOARDS):
            return None
        headers = by_name(scope["headers"])
        if b"content-length" in headers or b"transfer-encoding" in headers:
            return None
        self._watch.want(now)
        encodings = headers.get(b"accept-encoding")
        key: Key = (path, scope["query_string"], encodings is not None and takes_gzip(encodings))
        kept = self._kept.get(key)
        if kept is None or not self._known.is_current(kept.benchmark_id, kept.version, now):
            return None
        self._kept.move_to_end(key)
        return kept.reply(method, headers.get(b"if-none-match"))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer what is kept, learn from what is not."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        reply = self.find(scope, time.monotonic())
        if reply is None and self._is_only_old(scope):
            await self._refresh()
            reply = self.find(scope, time.monotonic())
        if reply is not None:
            scope["route"], scope["path_params"] = reply.route, reply.path_params
            await reply.send(send)
        elif scope["method"] == "GET" and scope["path"].startswith(BOARDS):
            await self._learn(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    def _is_only_old(self, scope: Scope) -> bool:
        """Whether all that keeps an answer back is that its version was asked for too long ago."""
        encodings = by_name(scope["headers"]).get(b"accept-encoding", b"")
        kept = self._kept.get((scope["path"], scope["query_string"], takes_gzip(encodings)))
        return kept is not None and self._known.is_latest(kept.benchmark_id, kept.version)

    async def _refresh(self) -> None:
        """Ask for the versions; whoever comes meanwhile waits for the same answer.

        On a machine that gives the watch no time, everybody would else ask by the long way. What
        the question raises is told on that way.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(asyncio.to_thread(self._watch.try_once))
        await asyncio.shield(self._asking)

    async def _learn(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; keep the answer if it says that it is a board."""
        lesson = scope[LESSON] = Lesson()
        start: Message | None = None

        async def noted(message: Message) -> None:
            nonlocal start
            if lesson.benchmark_id is None:
                await send(message)
            elif message["type"] == "http.response.start" and message["status"] == 200:
                start = message
            elif start is not None and not message.get("more_body", False):
                answer = self._answer(lesson, scope, start["headers"], message["body"])
                headers = by_name(scope["headers"])
                self._keep(scope, headers, lesson, answer)
                await answer.reply("GET", headers.get(b"if-none-match")).send(send)
            else:
                # An error after all, or an answer in parts: nothing to learn from.
                lesson.benchmark_id = None
                if start is not None:
                    await send(start)
                await send(message)

        await self._app(scope, receive, noted)

    def _answer(
        self, lesson: Lesson, scope: Scope, sent: Iterable[tuple[bytes, bytes]], content: bytes
    ) -> KeptAnswer:
        template, headers = route_template(scope), tuple(sent)
        known_headers = tuple(item for item in headers if item[0] not in OF_CONTENT)

        def reply(method: str, status: int, headers: Headers, body: bytes) -> Reply:
            tally = self._metrics.tally(method, template, status)
            route, path_params = scope.get("route"), scope.get("path_params", {})
            return Reply(status, headers, _head(headers), body, tally, route, path_params)

        return KeptAnswer(
            benchmark_id=lesson.benchmark_id or "",
            version=lesson.version,
            etag=lesson.etag,
            etag_bytes=lesson.etag.encode("latin-1"),
            whole=reply("GET", 200, headers, content),
            head=reply("HEAD", 200, headers, b""),
            known=reply("GET", 304, known_headers, b""),
            known_head=reply("HEAD", 304, known_headers, b""),
        )

    def _keep(
        self, scope: Scope, headers: dict[bytes, bytes], lesson: Lesson, answer: KeptAnswer
    ) -> None:
        is_personal = any(name == b"set-cookie" for name, _ in answer.whole.headers)
        has_body = b"content-length" in headers or b"transfer-encoding" in headers
        query: bytes = scope["query_string"]
        if not lesson.is_kept or is_personal or has_body or len(query) > LONGEST_QUERY:
            return
        key: Key = (scope["path"], query, takes_gzip(headers.get(b"accept-encoding", b"")))
        earlier = self._kept.pop(key, None)
        if earlier is not None:
            self._bytes -= _weigh(earlier)
        self._kept[key] = answer
        self._bytes += _weigh(answer)
        while self._bytes > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _weigh(dropped)


def _head(headers: Headers) -> bytes | None:
    """Header lines; none for a connection that is to end, which whoever holds it has to do."""
    lines = [name + b": " + value for name, value in headers]
    if any(NOT_IN_A_LINE.search(line) for line in lines) or b"connection" in dict(headers):
        return None
    return b"".join(line + b"\r\n" for line in lines)


def _weigh(answer: KeptAnswer) -> int:
    return len(answer.whole.content) + OVERHEAD_BYTES
