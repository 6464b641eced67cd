"""The request under way, as every log line names it, and counters of all requests of a process."""

import hashlib
import re
from collections.abc import Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime

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
    """Facts noted about a request on the way; shared by all threads that serve it.

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
    """The request under way; outside of one, a context that nobody reads."""
    return CURRENT.get() or RequestContext({})


def note(**ids: str | int) -> None:
    """Add ids to every later log line of the request under way; outside of one nothing happens."""
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
