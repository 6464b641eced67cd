"""Boards as bytes in front of the application: what it answered once, as long as it holds.

What it keeps has the headers of all middlewares. It knows no query and makes no board: what it has
not kept, or may not be sure of, the application answers. A kept answer passes neither FastAPI nor
whoever observes requests, so it carries the counts that it belongs to.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.board_versions import KnownVersions
from server.boards.kept import KeptAnswer, Reply, kept_answer, weight_of
from server.boards.lessons import LESSON, Lesson
from server.boards.watch import VersionWatch
from server.conditions import by_name, takes_gzip
from server.request_metrics import RequestMetrics

Key = tuple[str, bytes, bool]

BOARDS = ("/api/v1/leaderboards/", "/benchmarks/")
MIB = 1024 * 1024
MOST_BYTES = 64 * MIB
# Longer ones are nobody's bookmark; together with a share for headers they would outweigh boards.
LONGEST_QUERY = 2000


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
        self._making: dict[Key, asyncio.Future[KeptAnswer | None]] = {}

    def find(self, scope: Scope, now: float) -> Reply | None:
        """What is kept for an HTTP request and current; `now` is of time.monotonic()."""
        method, path = scope["method"], scope["path"]
        if method not in ("GET", "HEAD") or not path.startswith(BOARDS):
            return None
        headers = by_name(scope["headers"])
        if _has_body(headers):
            return None
        self._watch.want(now)
        key = _key(scope, headers)
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
        reply = await self._reply(scope)
        if reply is not None:
            scope["route"], scope["path_params"] = reply.route, reply.path_params
            await reply.send(send)
        elif scope["method"] == "GET" and scope["path"].startswith(BOARDS):
            await self._learn(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _reply(self, scope: Scope) -> Reply | None:
        """What is kept, once its version was asked for or somebody has had it made anew."""
        reply = self.find(scope, time.monotonic())
        if reply is not None:
            return reply
        headers = by_name(scope["headers"])
        key = _key(scope, headers)
        kept = self._kept.get(key)
        if kept is None or _has_body(headers):
            return None
        if self._known.is_latest(kept.benchmark_id, kept.version):
            await self._refresh()
            reply = self.find(scope, time.monotonic())
        if reply is None and key in self._making:
            reply = await self._made_by_another(scope, key, headers)
        return reply

    async def _made_by_another(
        self, scope: Scope, key: Key, headers: dict[bytes, bytes]
    ) -> Reply | None:
        """The answer to another's request, where that shows all that was written before this one.

        The answer that is being made may be of a version read before this request came: it is taken
        only if that is still the current one. The next was begun after this request came, so it is
        good whatever has been written since; nobody waits for a third.
        """
        await asyncio.shield(self._making[key])
        reply = self.find(scope, time.monotonic())
        if reply is None and key in self._making:
            made = await asyncio.shield(self._making[key])
            if made is not None:
                return made.reply(scope["method"], headers.get(b"if-none-match"))
        return reply

    async def _refresh(self) -> None:
        """Ask for the versions; whoever comes meanwhile waits for the same answer.

        On a machine that gives the watch no time, everybody would else ask by the long way. What
        the question raises is told on that way.
        """
        if self._asking is None or self._asking.done():
            self._asking = asyncio.ensure_future(asyncio.to_thread(self._watch.try_once))
        await asyncio.shield(self._asking)

    async def _learn(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the application answer; whoever asks for the same meanwhile is told what it says."""
        headers = by_name(scope["headers"])
        key = _key(scope, headers)
        made: asyncio.Future[KeptAnswer | None] = asyncio.get_running_loop().create_future()
        # Of several at once the first is waited for, so the next one begins after it has ended.
        is_waited_for = key not in self._making and not _has_body(headers)
        if is_waited_for:
            self._making[key] = made

        def tell(answer: KeptAnswer | None) -> None:
            if is_waited_for and not made.done():
                made.set_result(answer)
                del self._making[key]

        try:
            await self._app(scope, receive, self._noting(scope, send, tell))
        finally:
            tell(None)

    def _noting(self, scope: Scope, send: Send, tell: Callable[[KeptAnswer | None], None]) -> Send:
        """A `send` that keeps an answer if it says that it is a board, and tells what it keeps."""
        lesson = scope[LESSON] = Lesson()
        start: Message | None = None

        async def noted(message: Message) -> None:
            nonlocal start
            if lesson.benchmark_id is None:
                await send(message)
            elif message["type"] == "http.response.start" and message["status"] == 200:
                start = message
            elif start is not None and not message.get("more_body", False):
                content, metrics = message["body"], self._metrics
                answer = kept_answer(lesson, scope, start["headers"], content, metrics)
                headers = by_name(scope["headers"])
                # Told before it is sent: nobody waits for a reader that is slow to take it.
                tell(answer if self._keep(scope, headers, lesson, answer) else None)
                await answer.reply("GET", headers.get(b"if-none-match")).send(send)
            else:
                # An error after all, or an answer in parts: nothing to learn from.
                lesson.benchmark_id = None
                if start is not None:
                    await send(start)
                await send(message)

        return noted

    def _keep(
        self, scope: Scope, headers: dict[bytes, bytes], lesson: Lesson, answer: KeptAnswer
    ) -> bool:
        """Keep an answer for whoever asks for the same; returns whether it is one to keep."""
        is_personal = any(name == b"set-cookie" for name, _ in answer.whole.headers)
        is_long = len(scope["query_string"]) > LONGEST_QUERY
        if not lesson.is_kept or is_personal or is_long or _has_body(headers):
            return False
        key = _key(scope, headers)
        earlier = self._kept.pop(key, None)
        if earlier is not None:
            self._bytes -= weight_of(earlier)
        self._kept[key] = answer
        self._bytes += weight_of(answer)
        while self._bytes > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= weight_of(dropped)
        return True


def _key(scope: Scope, headers: dict[bytes, bytes]) -> Key:
    """What all answers that are the same have in common."""
    encodings = headers.get(b"accept-encoding")
    return scope["path"], scope["query_string"], encodings is not None and takes_gzip(encodings)


def _has_body(headers: dict[bytes, bytes]) -> bool:
    return b"content-length" in headers or b"transfer-encoding" in headers
