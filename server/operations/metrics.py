"""GET /metrics, in the text format of Prometheus."""

import asyncio
import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from server.base.errors import NotSignedInError
from server.base.request_metrics import RequestMetrics
from server.base.services import Services, ServicesDep
from server.base.settings import Settings
from server.operations.checks import Finding
from server.operations.copies import last_success
from server.operations.figures import CachedFigures, Figures, Queue
from server.operations.readiness import Readiness

log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)

OPEN = ("queued", "running")
CHANNELS = ("webhook", "mail")
DELIVERY_STATES = ("waiting", "delivered", "failed")
CLASS = ("hardware_class",)
Counts = Mapping[Any, float]


def gauge(name: str, text: str, values: float | Counts, labels: Sequence[str] = ()) -> Metric:
    """A gauge: one value, or one for each tuple of labels."""
    if not isinstance(values, Mapping):
        return GaugeMetricFamily(f"finishline_{name}", text, value=values)
    return _labelled(GaugeMetricFamily(f"finishline_{name}", text, labels=labels), values)


def counter(name: str, text: str, values: float | Counts, labels: Sequence[str] = ()) -> Metric:
    """A counter: one value, or one for each tuple of labels."""
    if not isinstance(values, Mapping):
        return CounterMetricFamily(f"finishline_{name}", text, value=values)
    return _labelled(CounterMetricFamily(f"finishline_{name}", text, labels=labels), values)


def _labelled(
    family: GaugeMetricFamily | CounterMetricFamily, values: Counts
) -> GaugeMetricFamily | CounterMetricFamily:
    for labels, value in sorted(values.items()):
        family.add_metric(labels, value)
    return family


def figure_families(figures: Figures) -> Iterator[Metric]:
    """Figures of the database; the same from every server process."""
    yield from _queues(figures.queues)
    yield gauge(
        "workers",
        "Workers by state: idle and busy ones get work; those in any other state get none.",
        Counter((worker.hardware_class, worker.state) for worker in figures.workers),
        (*CLASS, "state"),
    )
    yield from _attempts(figures)
    replays = SummaryMetricFamily(
        "finishline_replay_seconds",
        "From claim to report of attempts that ended with one.",
        labels=("benchmark",),
    )
    for benchmark, (count, seconds) in sorted(figures.replays.items()):
        replays.add_metric((benchmark,), count_value=count, sum_value=seconds)
    yield replays
    yield counter(
        "verdicts",
        "Verifications that ended in an outcome, by kind of verification.",
        figures.verdicts,
        ("kind", "outcome"),
    )
    yield counter(
        "submissions",
        "Submissions, by kind; those of an archive were published elsewhere.",
        {(kind, str(old).lower()): count for (kind, old), count in figures.submissions.items()},
        ("kind", "archive"),
    )
    yield gauge(
        "deliveries",
        "Messages of the last 30 days by channel (webhook, mail) and state.",
        {key: figures.deliveries.get(key, 0) for key in product(CHANNELS, DELIVERY_STATES)},
        ("channel", "state"),
    )
    yield gauge(
        "delivery_overdue_seconds",
        "Delay of the most overdue retry of a message; 0 if none is late.",
        figures.delivery_overdue_seconds,
    )


def _queues(queues: Sequence[Queue]) -> Iterator[Metric]:
    yield gauge(
        "queued_attempts",
        "Attempts that wait for a worker of a hardware class, or for any.",
        {(queue.hardware_class,): queue.attempts for queue in queues},
        CLASS,
    )
    yield gauge(
        "oldest_queued_attempt_age_seconds",
        "Age of the oldest attempt that waits; 0 if none does.",
        {(queue.hardware_class,): queue.oldest_seconds for queue in queues},
        CLASS,
    )
    yield gauge(
        "queued_beside_free_worker_age_seconds",
        "Age of the oldest waiting attempt while a suitable worker is idle, else 0.",
        {(queue.hardware_class,): queue.beside_free_seconds for queue in queues},
        CLASS,
    )


def _attempts(figures: Figures) -> Iterator[Metric]:
    by_state: Counter[str] = Counter()
    for (state, _), count in figures.attempts.items():
        by_state[state] += count
    yield gauge("running_attempts", "Attempts under way.", by_state["running"])
    yield counter(
        "attempts_ended",
        "Attempts that ended, by state and kind of failure (none if it did not fail).",
        {key: count for key, count in figures.attempts.items() if key[0] not in OPEN},
        ("state", "failure"),
    )
    yield counter(
        "leases_lost",
        "Attempts whose lease ran out because the worker went offline.",
        by_state["lost"],
    )
    yield gauge(
        "running_attempt_past_lease_seconds",
        "How long ago the first lease of an attempt under way ran out; 0 if none did.",
        figures.past_lease_seconds,
    )


def finding_families(findings: Sequence[Finding], *, ready: bool) -> Iterator[Metric]:
    """Findings of /readyz, and the figures found on the way."""
    yield gauge("ready", "1 while this process can accept submissions, as in /readyz.", ready)
    yield gauge(
        "check_ok",
        "1 while a check of /readyz finds nothing wrong.",
        {(finding.name,): finding.state == "ok" for finding in findings},
        ("check",),
    )
    for finding in findings:
        for name, (text, value) in finding.figures.items():
            yield gauge(name, text, value)


def copies_families(settings: Settings) -> Iterator[Metric]:
    """The last export and backup, where the settings name a folder; 0 while none has ended well."""
    for kind, folder in (("export", settings.exports_dir), ("backup", settings.backups_dir)):
        if folder is None:
            continue
        ended, seconds = last_success(folder)
        yield gauge(
            f"{kind}_last_success_timestamp_seconds",
            f"When the last {kind} ended well, in Unix time; 0 if none did.",
            ended,
        )
        yield gauge(
            f"{kind}_last_duration_seconds",
            f"How long the last {kind} that ended well took.",
            seconds,
        )


class Scrape(Collector):
    """A scrape: a registry's metrics, then families made for it."""

    def __init__(self, registry: CollectorRegistry, families: Sequence[Metric]) -> None:
        self._registry = registry
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        yield from self._registry.collect()
        yield from self._families


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """Counts of this process, and figures of the whole service from the database.

    Anybody may read them unless the settings name a token. While the database is away the rest is
    answered all the same, with `finishline_figures_ok` 0.
    """
    _require_token(services, request)
    readiness = services.of(Readiness)
    findings, figures = await asyncio.gather(readiness.look(), _figures(services.of(CachedFigures)))
    families = [*finding_families(findings, ready=readiness.is_ready(findings)), *figures]
    families += copies_families(services.settings)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    content = encode(Scrape(services.of(RequestMetrics).registry, families))
    return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def _require_token(services: Services, request: Request) -> None:
    token = services.settings.metrics_token
    if token is None:
        return
    sent = request.headers.get("authorization", "").encode()
    if not secrets.compare_digest(sent, f"Bearer {token.get_secret_value()}".encode()):
        raise NotSignedInError("The metrics of this server need the token its settings name.")


async def _figures(cached: CachedFigures) -> list[Metric]:
    families: list[Metric] = []
    why = ""
    try:
        families = list(figure_families(await cached.get()))
    except TimeoutError:
        why = "the database takes too long: does a transaction hold a table?"
    except Exception as error:  # noqa: BLE001  Whatever it is, the rest is told all the same.
        why = str(error)
    _note(cached, why)
    text = "1 while the figures of the database could be read for this scrape."
    return [gauge("figures_ok", text, bool(families)), *families]


def _note(cached: CachedFigures, why: str) -> None:
    """Write a line where the figures go or come back, and none while they stay."""
    if cached.are_away == bool(why):
        return
    cached.are_away = bool(why)
    if why:
        log.warning("the figures of the service cannot be read: %s", why)
    else:
        log.info("the figures of the service can be read again")
