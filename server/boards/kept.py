"""An answer with a board that is kept as bytes: to each method, and to whoever has it already."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from starlette.types import Scope, Send

from server.boards.lessons import Lesson
from server.conditions import is_known
from server.request_metrics import RequestMetrics, Tally, route_template

Headers = tuple[tuple[bytes, bytes], ...]

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


def kept_answer(
    lesson: Lesson,
    scope: Scope,
    sent: Iterable[tuple[bytes, bytes]],
    content: bytes,
    metrics: RequestMetrics,
) -> KeptAnswer:
    """What an application said of a board, and the headers and bytes that it sent."""
    template, headers = route_template(scope), tuple(sent)
    known_headers = tuple(item for item in headers if item[0] not in OF_CONTENT)

    def reply(method: str, status: int, headers: Headers, body: bytes) -> Reply:
        tally = metrics.tally(method, template, status)
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


def _head(headers: Headers) -> bytes | None:
    """Header lines; none for a connection that is to end, which whoever holds it has to do."""
    lines = [name + b": " + value for name, value in headers]
    if any(NOT_IN_A_LINE.search(line) for line in lines) or b"connection" in dict(headers):
        return None
    return b"".join(line + b"\r\n" for line in lines)


def weight_of(answer: KeptAnswer) -> int:
    """Bytes in memory."""
    return len(answer.whole.content) + OVERHEAD_BYTES
