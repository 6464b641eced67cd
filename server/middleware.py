"""Around every request: how large it may be, and what a browser may do with the answer."""

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.errors import TooLargeError
from server.settings import MIB

CONTENT_SECURITY_POLICY = (
    "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)
DOCS = ("/docs", "/redoc")  # FastAPI's own pages load their script from elsewhere.


class BodyLimit:
    """Refuse a body that is larger than allowed: by its stated length, or while it streams in."""

    def __init__(self, app: ASGIApp, *, max_bytes: int) -> None:
        self._app = app
        self._max_bytes = max_bytes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        stated = Headers(scope=scope).get("content-length", "0")
        if stated.isascii() and stated.isdigit() and int(stated) > self._max_bytes:
            await self._refuse(scope, receive, send)
            return
        received = 0

        async def counted() -> Message:
            nonlocal received
            message = await receive()
            received += len(message.get("body", b""))
            if received > self._max_bytes:
                raise TooLargeError(self._sentence())
            return message

        await self._app(scope, counted, send)

    def _sentence(self) -> str:
        return f"A request may have at most {self._max_bytes / MIB:.0f} MiB."

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = JSONResponse(
            {
                "type": "about:blank",
                "title": TooLargeError.title,
                "status": 413,
                "detail": self._sentence(),
                "problems": [],
            },
            status_code=413,
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
                if not scope["path"].startswith(DOCS):
                    headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
            await send(message)

        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)
