"""Around every request: how large it may be, what a browser may do with the answer, and HEAD."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import ServerError, TooLargeError, UnsupportedMediaError
from server.observability.context import current_request_id
from server.settings import MIB

# What a page may load and where it may send: nothing but what is served here, nothing inline.
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
EVENT_STREAM = "/events"
NOT_COMPRESSED = "Compressed requests are not read; send bodies as they are."

# Whose pages are for one person: no cache keeps them, neither a shared one nor the browser's.
PRIVATE_PAGES = "/console"


class BodyLimit:
    """Refuse a body that is larger than allowed: by its stated length, or while it streams in.

    `max_bytes_at` holds the limits of the paths that take files; a JSON body is read into memory
    before anybody is asked for a token, so every other path has the small limit.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, max_bytes_at: dict[str, int]) -> None:
        self._app = app
        self._max_bytes = max_bytes
        self._max_bytes_at = max_bytes_at

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        limit = self._max_bytes_at.get(scope["path"], self._max_bytes)
        headers = Headers(scope=scope)
        stated = headers.get("content-length", "0")
        if stated.isascii() and stated.isdigit() and int(stated) > limit:
            await _refuse(TooLargeError, _sentence(limit), scope, receive, send)
            return
        if headers.get("content-encoding", "identity") != "identity":
            # A small body could become a large one.
            await _refuse(UnsupportedMediaError, NOT_COMPRESSED, scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > limit:
                # FastAPI lets this one exception of a middleware through while it reads a body.
                raise HTTPException(TooLargeError.status, _sentence(limit))
            return message

        await self._app(scope, counted, send)


def _sentence(limit: int) -> str:
    return f"A request to this address may have at most {limit / MIB:g} MiB."


async def _refuse(
    error: type[ServerError], detail: str, scope: Scope, receive: Receive, send: Send
) -> None:
    answer = JSONResponse(
        {
            "type": "about:blank",
            "title": error.title,
            "status": error.status,
            "detail": detail,
            "request_id": current_request_id(),
            "problems": [],
        },
        status_code=error.status,
        media_type="application/problem+json",
        headers={"Connection": "close"},
    )
    await answer(scope, receive, send)


class SecurityHeaders:
    """Headers that keep a page to itself."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                headers.setdefault("Referrer-Policy", "same-origin")
                headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
                if scope["path"].startswith(PRIVATE_PAGES):
                    headers["Cache-Control"] = "no-store"
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)


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
