"""Boards as bytes in front of the application: what it answered once, as long as it holds.

It lies outside of every middleware, so what it keeps has all their headers, and inside of whatever
counts and logs requests. It knows no query and makes no board: what it has not kept, or
may not be sure of, the application answers.
"""

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.leaderboard.answers import is_known
from server.leaderboard.lessons import LESSON, Lesson
from server.leaderboard.versions import KnownVersions
from server.leaderboard.watch import VersionWatch

Headers = tuple[tuple[bytes, bytes], ...]
Key = tuple[str, bytes, bool]

BOARDS = ("/api/v1/leaderboards/", "/benchmarks/")
MIB = 1024 * 1024
MOST_BYTES = 64 * MIB
# Longer ones are nobody's bookmark; together with a share for headers they would outweigh boards.
LONGEST_QUERY = 2000
OVERHEAD_BYTES = 2000
OF_CONTENT = frozenset({b"content-length", b"content-type", b"content-encoding"})


@dataclass(frozen=True, slots=True)
class Asked:
    """What of a request's headers decides its answer."""

    takes_gzip: bool
    tags: bytes | None


@dataclass(frozen=True, slots=True)
class KeptAnswer:
    """An answer 200 and, with `known_headers`, the answer 304 to whoever has it already.

    `route` and `path_params` are what the router found: whoever counts requests reads them.
    """

    benchmark_id: str
    version: int
    etag: str
    etag_bytes: bytes
    headers: Headers
    known_headers: Headers
    content: bytes
    route: Any
    path_params: dict[str, Any]

    async def send(self, asked: Asked, method: str, send: Send) -> None:
        """Answer with it, or that it is known."""
        tags = asked.tags
        if tags is not None and (
            tags == self.etag_bytes or is_known(tags.decode("latin-1"), self.etag)
        ):
            await send(_start(304, self.known_headers))
            await send({"type": "http.response.body", "body": b""})
            return
        await send(_start(200, self.headers))
        body = b"" if method == "HEAD" else self.content
        await send({"type": "http.response.body", "body": body})


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
        most_bytes: int = MOST_BYTES,
    ) -> None:
        self._app = app
        self._known = known
        self._watch = watch
        self._most_bytes = most_bytes
        self._bytes = 0
        self._kept: OrderedDict[Key, KeptAnswer] = OrderedDict()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        asked = _asked(scope)
        if asked is None:
            await self._app(scope, receive, send)
            return
        self._watch.want()
        key: Key = (scope["path"], scope["query_string"], asked.takes_gzip)
        kept = self._kept.get(key)
        if kept is not None and self._known.is_current(kept.benchmark_id, kept.version):
            self._kept.move_to_end(key)
            scope["route"] = kept.route
            scope["path_params"] = kept.path_params
            await kept.send(asked, scope["method"], send)
        elif scope["method"] == "GET":
            await self._learn(key, asked, scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _learn(
        self, key: Key, asked: Asked, scope: Scope, receive: Receive, send: Send
    ) -> None:
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
                answer = _kept_answer(lesson, scope, start["headers"], message["body"])
                self._keep(key, lesson, answer)
                await answer.send(asked, "GET", send)
            else:
                # An error after all, or an answer in parts: nothing to learn from.
                lesson.benchmark_id = None
                if start is not None:
                    await send(start)
                await send(message)

        await self._app(scope, receive, noted)

    def _keep(self, key: Key, lesson: Lesson, answer: KeptAnswer) -> None:
        is_personal = any(name == b"set-cookie" for name, _ in answer.headers)
        if not lesson.is_kept or is_personal or len(key[1]) > LONGEST_QUERY:
            return
        earlier = self._kept.pop(key, None)
        if earlier is not None:
            self._bytes -= _weigh(earlier)
        self._kept[key] = answer
        self._bytes += _weigh(answer)
        while self._bytes > self._most_bytes:
            _, dropped = self._kept.popitem(last=False)
            self._bytes -= _weigh(dropped)


class BoardsFirstApp(FastAPI):
    """FastAPI with the fast path around all its middlewares, its last resort for errors included.

    `state.known_versions` and `state.version_watch` are set before the first request.
    """

    def build_middleware_stack(self) -> ASGIApp:
        """The whole application behind the fast path."""
        state = self.state
        stack = super().build_middleware_stack()
        return FastPath(stack, known=state.known_versions, watch=state.version_watch)


def _asked(scope: Scope) -> Asked | None:
    """What a read of a board asks for; None for any other request, and for one with a body."""
    if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
        return None
    path: str = scope["path"]
    if not path.startswith(BOARDS):
        return None
    encodings: bytes | None = None
    tags: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"accept-encoding":
            encodings = value if encodings is None else encodings
        elif name == b"if-none-match":
            tags = value if tags is None else tags
        elif name in (b"content-length", b"transfer-encoding"):
            return None
    return Asked(encodings is not None and b"gzip" in encodings, tags)


def _kept_answer(
    lesson: Lesson, scope: Scope, sent: Iterable[tuple[bytes, bytes]], content: bytes
) -> KeptAnswer:
    headers = tuple(sent)
    return KeptAnswer(
        benchmark_id=lesson.benchmark_id or "",
        version=lesson.version,
        etag=lesson.etag,
        etag_bytes=lesson.etag.encode("latin-1"),
        headers=headers,
        known_headers=tuple(item for item in headers if item[0] not in OF_CONTENT),
        content=content,
        route=scope.get("route"),
        path_params=scope.get("path_params", {}),
    )


def _start(status: int, headers: Headers) -> Message:
    """A message of its own for each answer, because whoever is outside adds headers to it."""
    return {"type": "http.response.start", "status": status, "headers": headers}


def _weigh(answer: KeptAnswer) -> int:
    return len(answer.content) + OVERHEAD_BYTES
