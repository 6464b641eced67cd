"""Requests: the one under way, log lines that name it, and counters of all of a process."""

import hashlib
import logging
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson
from asgi_correlation_id import correlation_id
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
from starlette.types import ASGIApp, Receive, Scope, Send

from server.base.places import VERSION
from server.base.settings import Settings

SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
ID_PARAMETERS = ("attempt_id", "verification_id", "submission_id")


@dataclass(frozen=True)
class SignedIn:
    """The SHA-256 of a secret that proved good, with its role and the user that has it."""

    secret_sha256: str
    role: str
    user_id: int


@dataclass
class RequestContext:
    """Facts noted about a request on the way. Shared by all threads that serve it.

    Ids in the address are read from the scope, because the router fills it in later.
    """

    scope: Scope
    signed_in: SignedIn | None = None
    # The moment at which its body was read. From then on it is answered, whoever goes away.
    read_at: datetime | None = None
    # Whether the log has the traceback of this request's failure.
    is_told: bool = False
    noted: dict[str, str | int] = field(default_factory=dict)

    def fields(self) -> dict[str, str | int]:
        """Fields of a log line of this request. Text of the address is taken in a safe shape."""
        found: dict[str, str | int] = {"request_id": correlation_id.get() or ""}
        parameters = self.scope.get("path_params") or {}
        for name in ID_PARAMETERS:
            value = parameters.get(name)
            if isinstance(value, str) and SAFE_ID.fullmatch(value):
                found[name] = value
        return found | self.noted


CURRENT: ContextVar[RequestContext | None] = ContextVar("request", default=None)


class InContext:
    """Makes each request the one under way.

    A server runs each request in a context of its own, so nothing is undone at its end: a
    line that the last resort logs about a failed one carries its facts too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            CURRENT.set(RequestContext(scope))
        await self._app(scope, receive, send)


def current() -> RequestContext:
    """The request under way. Outside of one, a context that nobody reads."""
    return CURRENT.get() or RequestContext({})


def note(**ids: str | int) -> None:
    """Add ids to every later log line of the request under way. Outside of one nothing happens."""
    current().noted.update(ids)


def note_signed_in(secret: str, role: str, user_id: int) -> None:
    """A secret that the request under way carries is good, for this role and user."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    current().signed_in = SignedIn(digest, role, user_id)


def note_read() -> None:
    """The whole body of the request under way is read."""
    current().read_at = datetime.now(UTC)


def moment_of_reading() -> datetime:
    """The moment at which it was, however long the request has waited for its turn since."""
    return current().read_at or datetime.now(UTC)


# A page is answered in a few milliseconds, a submission of many logs in seconds.
BUCKETS_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class RequestMetrics:
    """Counts of this process. Every label is bounded.

    `instrumentations` are called with each request that the application answered.
    """

    def __init__(self) -> None:
        # Without this each series has a second one beside it, with its age, that nothing asks for.
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
            # A refusal has no buckets: a scan of every address would leave some for each.
            if not answered.modified_status.startswith("4"):
                time(answered)

        self.instrumentations = [observe]

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


class TextFormatter(logging.Formatter):
    """`time level logger message [request_id=… seconds=…]`, one line but for a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as text. A line break in a message is escaped, so that none is forged."""
        fields = " ".join(f"{name}={value}" for name, value in _fields(record, IDS + FIGURES))
        line = (
            f"{_moment(record)} {record.levelname} {record.name} {_one_line(record.getMessage())}"
            + (f" [{fields}]" if fields else "")
        )
        return f"{line}\n{self.formatException(record.exc_info)}" if record.exc_info else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, logger, message, and the fields that are known."""

    def format(self, record: logging.LogRecord) -> str:
        """One record as JSON. A traceback is in `exception`."""
        line: dict[str, Any] = {
            "time": _moment(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
            **dict(_fields(record, IDS + ACCESS)),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line, default=str).decode()


FORMATTERS = {"text": TextFormatter, "json": JsonFormatter}


def is_first_telling(record: logging.LogRecord) -> bool:
    """Whether a line of uvicorn's is no traceback that a line of ours has already."""
    return record.exc_info is None or not current().is_told


def configure_logging(settings: Settings) -> None:
    """Send every line of this process to stderr in the format and from the level of the settings.

    Other packages say nothing below "info": some write down what they send, credentials included.
    uvicorn's lines come in the same format. Its access lines, which hold whole addresses, are
    replaced by ours, and so is its second traceback of an error that was told.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(FORMATTERS[settings.log_format]())
    level = logging.getLevelNamesMapping()[settings.log_level.upper()]
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(max(level, logging.INFO))
    for name in OWN_LOGGERS:
        logging.getLogger(name).setLevel(level)
    for name in TALKATIVE:
        logging.getLogger(name).setLevel(logging.WARNING)
    for name in ("uvicorn", "uvicorn.error"):
        logging.getLogger(name).handlers.clear()
        logging.getLogger(name).propagate = True
    logging.getLogger("uvicorn.error").addFilter(is_first_telling)
    access = logging.getLogger("uvicorn.access")
    access.handlers.clear()
    access.propagate = False


def _fields(record: logging.LogRecord, names: tuple[str, ...]) -> list[tuple[str, Any]]:
    """Fields of the request. Those of the line itself come first."""
    context = CURRENT.get()
    known = {} if context is None else context.fields()
    own = vars(record)
    return [
        (name, own.get(name, known.get(name))) for name in names if name in own or name in known
    ]


def _moment(record: logging.LogRecord) -> str:
    return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def _one_line(text: str) -> str:
    return text.replace("\r", "\\r").replace("\n", "\\n")


log = logging.getLogger("server.access")

# Asked every few seconds by machines: their lines would hide all others.
PROBES = frozenset({"/healthz", "/readyz", "/metrics"})


def write_access_line(answered: Answered) -> None:
    """Write a line about a request: its route, and never its address, which may carry a secret."""
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
