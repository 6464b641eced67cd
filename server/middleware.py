"""Around every request: security headers for browsers, and HEAD wherever GET is."""

from starlette.datastructures import MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
NO_PAGES = ("application/json", "application/problem+json", "text/csv")

# Whose pages are for one person: no cache keeps them, neither a shared one nor the browser's.
PRIVATE_PAGES = "/console"


class SecurityHeaders:
    """Headers that keep a page to itself.

    What no browser may take for a page can load nothing and send nothing anywhere: of JSON and CSV
    it is enough to say that they are what they are. "304 Not Modified" says nothing: what is kept
    of the answer it is about has its headers (RFC 9110, section 15.4.5).
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] != 304:
                headers = MutableHeaders(scope=message)
                headers.setdefault("X-Content-Type-Options", "nosniff")
                if not headers.get("content-type", "").startswith(NO_PAGES):
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
