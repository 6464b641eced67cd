"""What the limits of this process turned away, for Prometheus. Every label is bounded."""

from collections.abc import Callable, Iterable

from prometheus_client import CollectorRegistry, Counter, Gauge


class LimitMetrics:
    """Counts of refusals, and gauges of what is held."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._limited = Counter(
            "finishline_requests_limited",
            "Requests answered 429 because a rate limit was used up, by limit.",
            ("limit",),
            registry=registry,
        )
        self._shed = Counter(
            "finishline_requests_shed",
            "Requests answered 503 because the server was full, by what was full.",
            ("what",),
            registry=registry,
        )
        self._used_up = Counter(
            "finishline_quota_refusals",
            "Requests answered 429 because a quota was used up, by what it is of.",
            ("measure",),
            registry=registry,
        )

    def show(self, *, limits: Iterable[str], full: Iterable[str], measures: Iterable[str]) -> None:
        """Have every series there from the start, so that a rate over it is never absent."""
        for measure in measures:
            self._used_up.labels(measure)
        for limit in limits:
            self._limited.labels(limit)
        for what in full:
            self._shed.labels(what)

    def gauge(self, name: str, text: str, read: Callable[[], float]) -> None:
        """A gauge that is read at each scrape."""
        Gauge(name, text, registry=self._registry).set_function(read)

    def note_limited(self, limit: str) -> None:
        """Count a 429."""
        self._limited.labels(limit).inc()

    def note_used_up(self, measure: str) -> None:
        """Count a 429 of a quota."""
        self._used_up.labels(measure).inc()

    def note_shed(self, what: str) -> None:
        """Count a 503."""
        self._shed.labels(what).inc()
