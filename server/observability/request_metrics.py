"""What one server process counts of its requests, for Prometheus."""

from importlib.metadata import version

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
)

# A board is answered in a millisecond, a submission of many logs in seconds.
BUCKETS_SECONDS = (
    *(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
UNSERVED = (503, 507)


class RequestMetrics:
    """Counts of this process alone, in a registry of its own; every label is bounded."""

    def __init__(self) -> None:
        # Without this each series has a second one beside it, with its age, that nothing asks for.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        build = Info("finishline_build", "The version that runs.", registry=self.registry)
        build.info({"version": version("finishline")})
        self.in_progress = 0  # Changed by the event loop alone, so it needs no lock.
        Gauge(
            "finishline_http_requests_in_progress",
            "Requests that are being answered, open event streams among them.",
            registry=self.registry,
        ).set_function(lambda: self.in_progress)
        self._requests = Counter(
            "finishline_http_requests",
            "Requests answered, by method, route and class of status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._seconds = Histogram(
            "finishline_http_request_duration_seconds",
            "From a request to the last byte of its answer; event streams are not timed.",
            ("method", "route"),
            buckets=BUCKETS_SECONDS,
            registry=self.registry,
        )
        self._unserved = Counter(
            "finishline_http_unserved",
            "Requests refused because the disk is full (507) or something is away (503).",
            ("status",),
            registry=self.registry,
        )
        for status in UNSERVED:
            self._unserved.labels(str(status))
        self._counters: dict[tuple[str, str, int], Counter] = {}
        self._histograms: dict[tuple[str, str], Histogram] = {}

    def count(self, method: str, route: str, *, status: int, seconds: float | None) -> None:
        """Count an answered request; one that is not timed has no seconds."""
        self._counter(method, route, status // 100).inc()
        if seconds is not None:
            self._histogram(method, route).observe(seconds)
        if status in UNSERVED:
            self._unserved.labels(str(status)).inc()

    def _counter(self, method: str, route: str, status_class: int) -> Counter:
        """Kept, because looking a child up by its labels takes longer than counting."""
        key = (method, route, status_class)
        found = self._counters.get(key)
        if found is None:
            found = self._counters[key] = self._requests.labels(method, route, f"{status_class}xx")
        return found

    def _histogram(self, method: str, route: str) -> Histogram:
        found = self._histograms.get((method, route))
        if found is None:
            found = self._histograms[method, route] = self._seconds.labels(method, route)
        return found
