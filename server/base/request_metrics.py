"""Counters of one server process, for Prometheus, in a registry of its own."""

from collections.abc import Callable

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

from server.base.places import VERSION

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
