"""Headers of every response, answers to HEAD, JSON of pages, and conditional requests."""

import hashlib
import re
from collections.abc import Sequence

from fastapi import Request, Response
from starlette.datastructures import MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.places import VERSION

# A page may load from, and send to, this server alone, and has nothing inline.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",  # A chart that is saved as a picture is drawn from a blob.
        "connect-src 'self'",
        "font-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
# By it the command tells a server of another program.
VERSION_HEADER = "Finishline-Version"
EVENT_STREAM = "/events"
STATIC = "/static/"
NO_PAGES = ("application/json", "application/problem+json", "text/csv")

# Prefix of pages for one person: no cache keeps them, neither a shared one nor the browser's.
PRIVATE_PAGES = ("/console", "/account")


class SecurityHeaders:
    """Add security headers, so that a page loads nothing from and sends nothing to other sites.

    JSON and CSV, which no browser may read as a page, can load and send nothing: for them it is
    enough to forbid guessing another type. A "304 Not Modified" gets none: the cached response
    that it confirms has its headers (RFC 9110, section 15.4.5).

    With `private` no shared cache keeps anything but static files.
    """

    def __init__(self, app: ASGIApp, *, private: bool = False) -> None:
        self._app = app
        self._private = private

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers[VERSION_HEADER] = VERSION
                if vary := headers.get("Vary"):  # A route and the compression both add the same.
                    headers["Vary"] = ", ".join(dict.fromkeys(vary.split(", ")))
                if self._private and not scope["path"].startswith(STATIC):
                    _keep_private(headers)
            if message["type"] == "http.response.start" and message["status"] != 304:
                headers.setdefault("X-Content-Type-Options", "nosniff")
                if not headers.get("content-type", "").startswith(NO_PAGES):
                    headers.setdefault("Referrer-Policy", "same-origin")
                    headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
                if scope["path"].startswith(PRIVATE_PAGES):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


def _keep_private(headers: MutableHeaders) -> None:
    """Let one reader's browser alone keep a response."""
    parts = [part.strip() for part in headers.get("Cache-Control", "no-cache").split(",")]
    kept = [part for part in parts if part not in ("public", "private")]
    headers["Cache-Control"] = ", ".join(kept if "no-store" in kept else ["private", *kept])


FOR_PAGES = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"ETag, Link, Retry-After, X-Total-Count"),
)


class OpenToPages:
    """Let pages of other sites read by GET, but never with somebody's token.

    Nothing is said to a preflight, so no other method and no header of its own passes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = dict(message, headers=[*message["headers"], *FOR_PAGES])
            await send(message)

        is_open = scope["type"] == "http" and is_open_to_pages(scope)
        await self._app(scope, receive, with_headers if is_open else send)


def is_open_to_pages(scope: Scope) -> bool:
    """Whether a page of another site may read the response."""
    return scope["method"] == "GET" and all(
        name != b"authorization" for name, _ in scope["headers"]
    )


class HeadAnswers:
    """HEAD wherever GET is: the same answer, of which only the headers are sent.

    A stream of events has no end to come to, so it is left without.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_head = scope["type"] == "http" and scope["method"] == "HEAD"
        if not is_head or scope["path"].endswith(EVENT_STREAM):
            await self._app(scope, receive, send)
            return

        async def without_body(message: Message) -> None:
            if message["type"] == "http.response.body":
                message = dict(message, body=b"")
            await send(message)

        await self._app(dict(scope, method="GET"), receive, without_body)


API = "/api/v1"
BOARD = re.compile(r"/benchmarks/([^/]+)")


class JsonTwins:
    """Answer as the API does at the address of a page, where JSON is asked for.

    A reader asks by "Accept: application/json", or by .json after the address. The page of a
    benchmark is its board. `routes` are those of the API, by their paths below it.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        twin = self._twin(scope) if is_read and not scope["path"].startswith(API) else None
        if twin is None:
            await self._app(scope, receive, send)
            return

        async def varied(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).add_vary_header("Accept")
            await send(message)

        wants_json = scope["path"].endswith(".json") or asks_for_json(scope)
        await self._app(twin if wants_json else scope, receive, varied)

    def _twin(self, scope: Scope) -> Scope | None:
        """The request of the same thing to the API. None where the API has no such address."""
        path = scope["path"].removesuffix(".json")
        if (board := BOARD.fullmatch(path)) is not None:
            path = f"/leaderboards/{board[1]}"
        below = dict(scope, path=path, method="GET")
        if not any(route.matches(below)[0] is Match.FULL for route in self._routes):
            return None
        return dict(scope, path=API + path, raw_path=(API + path).encode())


def asks_for_json(scope: Scope) -> bool:
    """Whether a request names JSON among the types that it accepts, and no page."""
    accept = dict(scope["headers"]).get(b"accept", b"")
    return b"application/json" in accept and b"text/html" not in accept


GZIP = re.compile(rb"\b(?:x-)?gzip\b(?!\s*;\s*q\s*=\s*0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)


def takes_gzip(encodings: bytes) -> bool:
    """Whether an Accept-Encoding names gzip, unless with weight 0 (RFC 9110, section 12.5.3)."""
    return GZIP.search(encodings) is not None


def is_known(tags: bytes, etag: str) -> bool:
    """Whether an If-None-Match header matches a response's tag. `*` matches every tag.

    Tags are compared weakly. Source: RFC 9110, section 13.1.2.
    """
    found = {tag.strip().removeprefix("W/") for tag in tags.decode("latin-1").split(",")}
    return etag.removeprefix("W/") in found or "*" in found


def reader_takes_gzip(request: Request) -> bool:
    """Whether the answer to a request may be compressed with gzip."""
    return takes_gzip(dict(request.scope["headers"]).get(b"accept-encoding", b""))


def reader_has(request: Request, etag: str) -> bool:
    """Whether a request's If-None-Match shows that its sender has the content of this tag."""
    tags = dict(request.scope["headers"]).get(b"if-none-match")
    return tags is not None and is_known(tags, etag)


def tagged(request: Request, content: bytes, media_type: str) -> Response:
    """An answer that its readers ask for again: 304 to one who has it."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if reader_has(request, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)
