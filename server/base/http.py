"""The request under way, its response's headers, its log line, and counters of the process."""

import hashlib
import logging
import re
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any

from asgi_correlation_id import correlation_id
from fastapi import Request, Response
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_fastapi_instrumentator import metrics
from prometheus_fastapi_instrumentator.metrics import Info as Answered
from starlette.datastructures import Headers, MutableHeaders
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from finishline.service_log import JsonFormatter, TextFormatter, log_to_stderr
from server.base.places import VERSION
from server.base.settings import Settings

SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
ID_PARAMETERS = ("attempt_id", "verification_id", "submission_id")


@dataclass
class RequestContext:
    """Facts noted about a request, shared by all threads that serve it.

    Ids in the address come from the scope, because the router fills it in later.
    """

    scope: Scope
    # The SHA-256 of its valid secret, with the secret's role and user.
    proved: tuple[str, str, int] | None = None
    # When its body was read. From then on it is answered, even if the client leaves.
    read_at: datetime | None = None
    # Whether the log has the traceback of this request's failure.
    is_told: bool = False
    noted: dict[str, str | int] = field(default_factory=dict)

    def fields(self) -> dict[str, str | int]:
        """Return the fields of its log lines. Text of the address must have a safe shape."""
        found: dict[str, str | int] = {"request_id": correlation_id.get() or ""}
        parameters = self.scope.get("path_params") or {}
        for name in ID_PARAMETERS:
            value = parameters.get(name)
            if isinstance(value, str) and SAFE_ID.fullmatch(value):
                found[name] = value
        return found | self.noted


CURRENT: ContextVar[RequestContext | None] = ContextVar("request", default=None)


def current() -> RequestContext:
    """Return the request under way. Outside a request this is a throwaway context."""
    return CURRENT.get() or RequestContext({})


def note(**ids: str | int) -> None:
    """Add ids to every later log line of the request under way, if there is one."""
    current().noted.update(ids)


def note_signed_in(secret: str, role: str, user_id: int) -> None:
    """Note a valid secret of the request under way, with its role and user."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    current().proved = digest, role, user_id
    note(user_id=user_id)


def note_read() -> None:
    """Note when the whole body of the request under way is read."""
    current().read_at = datetime.now(UTC)


def moment_of_reading() -> datetime:
    """Return when the request's body was read, however long the request has waited since."""
    return current().read_at or datetime.now(UTC)


# Pages load from this server, send to this server, and have nothing inline.
CONTENT_SECURITY_POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data: blob:",  # A chart is saved as a picture through a blob.
        "connect-src 'self'",
        "font-src 'self'",
        "object-src 'none'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
    )
)
# The command recognises a Finishline server by it.
VERSION_HEADER = "Finishline-Version"
EVENT_STREAM = "/events"
STATIC = "/static/"
NO_PAGES = ("application/json", "application/problem+json", "text/csv")

# Pages for one person, which shared caches and the browser's must not keep.
PRIVATE_PAGES = ("/console", "/account")


# Pages of other sites may read if they send no token. A preflight gets no permission, so only GET
# without own headers passes.
FOR_PAGES = (
    (b"access-control-allow-origin", b"*"),
    (b"access-control-expose-headers", b"ETag, Link, Retry-After, X-Total-Count"),
)


def is_open_to_pages(scope: Scope) -> bool:
    """Return whether a page of another site may read the response."""
    return scope["method"] == "GET" and all(
        name != b"authorization" for name, _ in scope["headers"]
    )


class InContext:
    """Make each request the current request, and add the headers of every response.

    Pages load from and send to this server only. For JSON and CSV, which browsers never read as a
    page, it is enough to forbid guessing another type. A "304 Not Modified" confirms a cached
    response, which has the headers already (RFC 9110, section 15.4.5). With `private` shared caches
    keep static files only.

    A server runs each request in a separate context, so the context stays set at the end, for the
    last log line of a failed request.
    """

    def __init__(self, app: ASGIApp, *, private: bool = False) -> None:
        self._app = app
        self._private = private

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._add(MutableHeaders(scope=message), scope, message["status"])
                if is_open_to_pages(scope):
                    message = dict(message, headers=[*message["headers"], *FOR_PAGES])
            await send(message)

        if scope["type"] == "http":
            CURRENT.set(RequestContext(scope))
        await self._app(scope, receive, with_headers if scope["type"] == "http" else send)

    def _add(self, headers: MutableHeaders, scope: Scope, status: int) -> None:
        headers[VERSION_HEADER] = VERSION
        if vary := headers.get("Vary"):  # A route and the compression both add the same.
            headers["Vary"] = ", ".join(dict.fromkeys(vary.split(", ")))
        if self._private and not scope["path"].startswith(STATIC):
            # Only the reader's browser may keep it.
            parts = [part.strip() for part in headers.get("Cache-Control", "no-cache").split(",")]
            kept = [part for part in parts if part not in ("public", "private")]
            headers["Cache-Control"] = ", ".join(kept if "no-store" in kept else ["private", *kept])
        if status == 304:
            return
        headers.setdefault("X-Content-Type-Options", "nosniff")
        if not headers.get("content-type", "").startswith(NO_PAGES):
            headers.setdefault("Referrer-Policy", "same-origin")
            headers.setdefault("Content-Security-Policy", CONTENT_SECURITY_POLICY)
        if scope["path"].startswith(PRIVATE_PAGES):
            headers["Cache-Control"] = "no-store"


API = "/api/v1"
BOARD = re.compile(r"/benchmarks/([^/]+)")


class Reads:
    """Answer HEAD as GET without the body, and a page asked for as JSON as the API does.

    A reader adds .json to the address, or accepts application/json without text/html. The page of a
    benchmark is its board. `routes` are the API's, with paths below /api/v1. An event stream has no
    HEAD, because it has no end.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self._app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] not in ("GET", "HEAD"):
            await self._app(scope, receive, send)
            return
        is_head = scope["method"] == "HEAD" and not scope["path"].endswith(EVENT_STREAM)
        asked = dict(scope, method="GET") if is_head else scope
        twin = None if scope["path"].startswith(API) else self._twin(scope)
        if twin is not None:
            accept = dict(scope["headers"]).get(b"accept", b"")
            wants_json = b"application/json" in accept and b"text/html" not in accept
            asked = twin if wants_json or scope["path"].endswith(".json") else asked

        async def answered(message: Message) -> None:
            if message["type"] == "http.response.start" and twin is not None:
                MutableHeaders(scope=message).add_vary_header("Accept")
            elif message["type"] == "http.response.body" and is_head:
                message = dict(message, body=b"")
            await send(message)

        await self._app(asked, receive, answered if is_head or twin is not None else send)

    def _twin(self, scope: Scope) -> Scope | None:
        """Make the same request to the API, if the API has the address."""
        path = scope["path"].removesuffix(".json")
        if (board := BOARD.fullmatch(path)) is not None:
            path = f"/leaderboards/{board[1]}"
        below = dict(scope, path=path, method="GET")
        if not any(route.matches(below)[0] is Match.FULL for route in self._routes):
            return None
        return dict(scope, path=API + path, raw_path=(API + path).encode())


GZIP = re.compile(rb"\b(?:x-)?gzip\b(?!\s*;\s*q\s*=\s*0(?:\.0*)?\s*(?:,|$))", re.IGNORECASE)


def takes_gzip(scope: Scope) -> bool:
    """Return whether Accept-Encoding names gzip, unless with weight 0 (RFC 9110, 12.5.3)."""
    return GZIP.search(dict(scope["headers"]).get(b"accept-encoding", b"")) is not None


def is_known(scope: Scope, etag: str) -> bool:
    """Return whether If-None-Match has the tag, compared weakly, or `*` (RFC 9110, 13.1.2)."""
    tags = dict(scope["headers"]).get(b"if-none-match", b"").decode("latin-1").split(",")
    found = {tag.strip().removeprefix("W/") for tag in tags}
    return etag.removeprefix("W/") in found or "*" in found


def tagged(request: Request, content: bytes, media_type: str) -> Response:
    """Answer with a tag, and with 304 to a reader who has the content."""
    etag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
    headers = {"ETag": etag, "Cache-Control": "no-cache"}
    if is_known(request.scope, etag):
        return Response(status_code=304, headers=headers)
    return Response(content, media_type=media_type, headers=headers)


# A page is answered in a few milliseconds, a submission of many logs in seconds.
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestMetrics:
    """Counts of this process, with bounded labels. `observe` takes each answered request."""

    def __init__(self) -> None:
        # Else each series gets an unused second one with its age.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Info("finishline_build", "Version of the running server.", registry=self.registry)
        build.info({"version": VERSION})
        self.cached_boards = self._counter(
            "cached_boards", "Boards answered from memory, by status.", "status"
        )
        for status in ("200", "304"):
            self.cached_boards.labels(status)
        self.limited = self._counter(
            "requests_limited", "Responses with 429 because of a rate limit, by limit.", "limit"
        )
        self.shed = self._counter(
            "requests_shed", "Responses with 503 because of overload, by exhausted limit.", "what"
        )
        self.quota_refusals = self._counter(
            "quota_refusals", "Responses with 429 because of a quota, by quota.", "measure"
        )
        count = metrics.requests(metric_namespace="finishline", registry=self.registry)
        time = metrics.latency(
            metric_namespace="finishline",
            should_include_status=False,
            should_exclude_streaming_duration=True,
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        assert count is not None  # noqa: S101  None is for a registry that has the metric.
        assert time is not None  # noqa: S101

        def observe(answered: Answered) -> None:
            count(answered)
            # Skip refusals: a scan of many addresses would leave buckets for each.
            if not answered.modified_status.startswith("4"):
                time(answered)

        self.observe = observe

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at each scrape."""
        Gauge(f"finishline_{name}", text, registry=self.registry).set_function(read)

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(f"finishline_{name}", text, (label,), registry=self.registry)


IDS = ("request_id", "user_id", *ID_PARAMETERS)
# A text line says method, route and status in its message.
FIGURES = ("seconds", "bytes")
ACCESS = ("method", "route", "status", *FIGURES)
OWN_LOGGERS = ("server", "finishline", "web")
TALKATIVE = ("alembic.runtime.migration", "botocore.credentials")


FORMATTERS: dict[str, Callable[[], TextFormatter]] = {
    "text": partial(TextFormatter, lambda record: _fields(record, IDS + FIGURES)),
    "json": partial(JsonFormatter, lambda record: _fields(record, IDS + ACCESS)),
}


def is_first_telling(record: logging.LogRecord) -> bool:
    """Return False for a traceback of uvicorn's already in our log."""
    return record.exc_info is None or not current().is_told


def configure_logging(settings: Settings) -> None:
    """Log to stderr in the format and from the level of the settings.

    uvicorn's lines get the same format. Our lines replace its access lines, which hold whole
    addresses, and its second traceback of an error.
    """
    formatter = FORMATTERS[settings.log_format]()
    log_to_stderr(formatter, settings.log_level, own=OWN_LOGGERS, talkative=TALKATIVE)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.error").addFilter(is_first_telling)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False


def _fields(record: logging.LogRecord, names: tuple[str, ...]) -> dict[str, Any]:
    """Return the known fields of a line. Its values win over the request's."""
    context = CURRENT.get()
    known = {} if context is None else context.fields()
    own = vars(record)
    return {name: own.get(name, known.get(name)) for name in names if name in own or name in known}


log = logging.getLogger("server.access")

# Asked every few seconds by machines: their lines would hide all others.
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})


def write_access_line(answered: Answered) -> None:
    """Write a request's line with its route, because its address may carry a secret."""
    method, route, status = answered.method, answered.modified_handler, answered.modified_status
    level = logging.DEBUG if route in PROBES and status < "4" else logging.INFO
    if log.isEnabledFor(level):
        fields = {
            "method": method,
            "route": route,
            "status": int(status),
            "seconds": round(answered.modified_duration, 6),
        }
        if answered.response is not None and "content-length" in answered.response.headers:
            fields["bytes"] = int(answered.response.headers["content-length"])
        log.log(level, "%s %s %s", method, route, status, extra=fields)


def has_body(scope: Scope) -> bool:
    """Return whether a request announces a body."""
    headers = Headers(scope=scope)
    return "transfer-encoding" in headers or headers.get("content-length", "0") != "0"
