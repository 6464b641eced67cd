"""Counts of requests in one server process, for Prometheus, by route template."""

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Info,
    ProcessCollector,
    disable_created_metrics,
)
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString
from starlette.types import Scope

from server.base.code_version import VERSION

# A board is answered in a millisecond, a submission of many logs in seconds.
BUCKETS_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
BUCKET_NAMES = (*map(floatToGoString, BUCKETS_SECONDS), "+Inf")
UNSERVED = (503, 507)


class Durations:
    """Histogram of the durations of one route's requests: counts by bucket, and their sum."""

    __slots__ = ("counts", "seconds")

    def __init__(self) -> None:
        self.counts = [0] * len(BUCKET_NAMES)
        self.seconds = 0.0


class Tally:
    """The answers of one class of status to one method and route. Counting is the event loop's
    alone, so it takes no lock.
    """

    __slots__ = ("answers", "durations")

    def __init__(self, durations: Durations) -> None:
        self.answers = 0
        self.durations = durations

    def count(self, seconds: float | None) -> None:
        """Count a response; one that is not timed has no seconds."""
        self.answers += 1
        if seconds is not None:
            durations = self.durations
            durations.counts[bisect_left(BUCKETS_SECONDS, seconds)] += 1
            durations.seconds += seconds


class RequestMetrics(Collector):
    """Counts of this process alone, in a registry of its own; every label is bounded."""

    def __init__(self) -> None:
        # Without this each series has a second one beside it, with its age, that nothing asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Info("finishline_build", "Version of the running server.", registry=self.registry)
        build.info({"version": VERSION})
        self.in_progress = 0  # Changed by the event loop alone, so it needs no lock.
        self.gauge(
            "finishline_http_requests_in_progress",
            "Requests in flight, including open event streams.",
            lambda: self.in_progress,
        )
        self._unserved = self._counter(
            "finishline_http_unserved",
            "Requests refused because the disk is full (507) or a dependency is unavailable (503).",
            "status",
        )
        for status in UNSERVED:
            self._unserved.labels(str(status))
        self.limited = self._counter(
            "finishline_requests_limited",
            "Responses with 429 because of a rate limit, by limit.",
            "limit",
        )
        self.shed = self._counter(
            "finishline_requests_shed",
            "Responses with 503 because of overload, by the exhausted limit.",
            "what",
        )
        self.quota_refusals = self._counter(
            "finishline_quota_refusals",
            "Responses with 429 because of a quota, by quota.",
            "measure",
        )
        self._tallies: dict[tuple[str, str, int], Tally] = {}
        self._durations: dict[tuple[str, str], Durations] = {}
        self.registry.register(self)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """Add a gauge that is read at each scrape."""
        Gauge(name, text, registry=self.registry).set_function(read)

    def _counter(self, name: str, text: str, label: str) -> Counter:
        return Counter(name, text, (label,), registry=self.registry)

    def count(self, method: str, route: str, *, status: int, seconds: float | None) -> None:
        """Count an answered request; one that is not timed has no seconds."""
        self.tally(method, route, status).count(seconds)
        if status in UNSERVED:
            self._unserved.labels(str(status)).inc()

    def tally(self, method: str, route: str, status: int) -> Tally:
        """The count of answers like this, for a caller that gives many of them."""
        key = (method, route, status // 100)
        found = self._tallies.get(key)
        if found is None:
            durations = self._durations.setdefault((method, route), Durations())
            found = self._tallies[key] = Tally(durations)
        return found

    def collect(self) -> Iterator[Metric]:
        """Counts of requests."""
        requests = CounterMetricFamily(
            "finishline_http_requests",
            "Requests, by method, route and class of status.",
            labels=("method", "route", "status"),
        )
        for (method, route, status_class), tally in self._tallies.items():
            if tally.answers:
                requests.add_metric((method, route, f"{status_class}xx"), tally.answers)
        yield requests
        durations = HistogramMetricFamily(
            "finishline_http_request_duration_seconds",
            "Seconds from a request to the last byte of its response; event streams and 4xx are "
            "not timed.",
            labels=("method", "route"),
        )
        for labels, found in self._durations.items():
            buckets = list(zip(BUCKET_NAMES, accumulate(found.counts), strict=True))
            if buckets[-1][1]:
                durations.add_metric(labels, buckets=buckets, sum_value=found.seconds)
        yield durations


UNMATCHED = "(none)"
OTHER = "other"
MOUNTED = "(mounted files)"
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})


def route_template(scope: Scope) -> str:
    """Route of a request, such as /api/v1/submissions/{submission_id}; "(none)" without one.

    A route of an included router knows its own part alone. The prefix is the part of the address
    before that, filled in: no prefix has a parameter.
    """
    route = scope.get("route")
    own = getattr(route, "path_format", None)
    if own is None:
        return MOUNTED if "app_root_path" in scope else UNMATCHED
    filled = own.format(**scope.get("path_params", {}))
    path: str = scope["path"]
    return path.removesuffix(filled) + own if path.endswith(filled) else str(own)


def known_method(scope: Scope) -> str:
    """The request's method, "other" for a word that is none."""
    method: str = scope["method"]
    return method if method in METHODS else OTHER
