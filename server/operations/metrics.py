"""GET /metrics, in the text format of Prometheus."""

import asyncio
import json
import logging
import secrets
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from itertools import product
from pathlib import Path

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
from starlette.datastructures import State

from server.dependencies import Parts
from server.errors import NotSignedInError
from server.operations.checks import Finding
from server.operations.figures import Figures, Queue, WorkerSeen
from server.operations.folders import LAST
from server.operations.readiness import Readiness
from server.settings import Settings

OPEN = ("queued", "running")
CHANNELS = ("webhook", "mail")
DELIVERY_STATES = ("waiting", "delivered", "failed")


def figure_families(figures: Figures) -> Iterator[Metric]:
    """What the database says; the same from every server process."""
    yield from _queues(figures.queues)
    yield _workers(figures.workers)
    yield from _attempts(figures)
    replays = SummaryMetricFamily(
        "finishline_replay_seconds",
        "From claim to report of attempts that ended with one.",
        labels=("benchmark",),
    )
    for benchmark, (count, seconds) in sorted(figures.replays.items()):
        replays.add_metric((benchmark,), count_value=count, sum_value=seconds)
    yield replays
    yield _counter(
        "finishline_verdicts",
        "Verifications that ended in an outcome, by kind of verification.",
        ("kind", "outcome"),
        figures.verdicts,
    )
    yield _counter(
        "finishline_submissions",
        "Submissions kept, by kind; those of an archive were published elsewhere.",
        ("kind", "archive"),
        {(kind, str(old).lower()): count for (kind, old), count in figures.submissions.items()},
    )
    yield from _deliveries(figures)


def _deliveries(figures: Figures) -> Iterator[Metric]:
    family = GaugeMetricFamily(
        "finishline_deliveries",
        "Messages of the last 30 days by channel (webhook, mail) and state.",
        labels=("channel", "state"),
    )
    for labels in product(CHANNELS, DELIVERY_STATES):
        family.add_metric(labels, figures.deliveries.get(labels, 0))
    yield family
    yield GaugeMetricFamily(
        "finishline_delivery_overdue_seconds",
        "How long ago the next try of a message should have begun; 0 if none is late.",
        value=figures.delivery_overdue_seconds,
    )


def _queues(queues: Sequence[Queue]) -> Iterator[Metric]:
    waiting = GaugeMetricFamily(
        "finishline_queued_attempts",
        "Attempts that wait for a worker of a hardware class, or for any.",
        labels=("hardware_class",),
    )
    oldest = GaugeMetricFamily(
        "finishline_oldest_queued_attempt_age_seconds",
        "Age of the oldest attempt that waits; 0 if none does.",
        labels=("hardware_class",),
    )
    beside_free = GaugeMetricFamily(
        "finishline_queued_beside_free_worker_age_seconds",
        "Age of the oldest attempt that waits while a worker that could take it is idle, else 0.",
        labels=("hardware_class",),
    )
    for queue in queues:
        waiting.add_metric((queue.hardware_class,), queue.attempts)
        oldest.add_metric((queue.hardware_class,), queue.oldest_seconds)
        beside_free.add_metric((queue.hardware_class,), queue.beside_free_seconds)
    yield from (waiting, oldest, beside_free)


def _workers(workers: Sequence[WorkerSeen]) -> Metric:
    family = GaugeMetricFamily(
        "finishline_workers",
        "Workers by state: idle and busy ones get work; those in any other state get none.",
        labels=("hardware_class", "state"),
    )
    counts = Counter((worker.hardware_class, worker.state) for worker in workers)
    for labels, count in sorted(counts.items()):
        family.add_metric(labels, count)
    return family


def _attempts(figures: Figures) -> Iterator[Metric]:
    by_state: Counter[str] = Counter()
    for (state, _), count in figures.attempts.items():
        by_state[state] += count
    yield GaugeMetricFamily(
        "finishline_running_attempts", "Attempts under way.", value=by_state["running"]
    )
    yield _counter(
        "finishline_attempts_ended",
        "Attempts that ended, by state and kind of failure (none if it did not fail).",
        ("state", "failure"),
        {key: count for key, count in figures.attempts.items() if key[0] not in OPEN},
    )
    yield CounterMetricFamily(
        "finishline_leases_lost",
        "Attempts whose worker went silent until its lease ran out.",
        value=by_state["lost"],
    )
    yield GaugeMetricFamily(
        "finishline_running_attempt_past_lease_seconds",
        "How long ago the first lease of an attempt under way ran out; 0 if none did.",
        value=figures.past_lease_seconds,
    )


def _counter(
    name: str, text: str, labels: tuple[str, str], counts: Mapping[tuple[str, str], int]
) -> Metric:
    family = CounterMetricFamily(name, text, labels=labels)
    for key, count in sorted(counts.items()):
        family.add_metric(key, count)
    return family


def finding_families(findings: Sequence[Finding], *, ready: bool) -> Iterator[Metric]:
    """What /readyz says, and the figures it found on the way."""
    yield GaugeMetricFamily(
        "finishline_ready", "1 while this process can take submissions, as /readyz says.", ready
    )
    well = GaugeMetricFamily(
        "finishline_check_ok", "1 while a check of /readyz finds nothing wrong.", labels=("check",)
    )
    for finding in findings:
        well.add_metric((finding.name,), finding.state == "ok")
    yield well
    for finding in findings:
        for name, (text, value) in finding.figures.items():
            yield GaugeMetricFamily(f"finishline_{name}", text, value)


def kept_copies_families(settings: Settings) -> Iterator[Metric]:
    """Of each kind that the settings name a folder for; 0 while none has ended well."""
    for kind, folder in (("export", settings.exports_dir), ("backup", settings.backups_dir)):
        if folder is None:
            continue
        ended, seconds = _last_success(folder)
        yield GaugeMetricFamily(
            f"finishline_{kind}_last_success_timestamp_seconds",
            f"When the last {kind} ended well, in Unix time; 0 if none did.",
            ended,
        )
        yield GaugeMetricFamily(
            f"finishline_{kind}_last_duration_seconds",
            f"How long the last {kind} that ended well took.",
            seconds,
        )


def _last_success(folder: Path) -> tuple[float, float]:
    try:
        found = json.loads((folder / LAST).read_text())
        return datetime.fromisoformat(found["ended_at"]).timestamp(), float(found["seconds"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0.0, 0.0


log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)


class Scrape(Collector):
    """What one scrape answers: a registry's metrics, then families made for it."""

    def __init__(self, registry: CollectorRegistry, families: Sequence[Metric]) -> None:
        self._registry = registry
        self._families = families

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        yield from self._registry.collect()
        yield from self._families


@router.get("/metrics", response_class=Response)
async def metrics(request: Request) -> Response:
    """Counts of this process, and figures of the whole service from the database.

    Anybody may read them unless the settings name a token. While the database is away the rest is
    answered all the same, with `finishline_figures_ok` 0.
    """
    state = request.app.state
    parts: Parts = state.parts
    _require_token(parts, request)
    readiness: Readiness = state.readiness
    findings, figures = await asyncio.gather(readiness.look(), _figures(state))
    families = [*finding_families(findings, ready=readiness.is_ready(findings)), *figures]
    families += kept_copies_families(parts.settings)
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    content = encode(Scrape(state.request_metrics.registry, families))
    return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def _require_token(parts: Parts, request: Request) -> None:
    token = parts.settings.metrics_token
    if token is None:
        return
    sent = request.headers.get("authorization", "").encode()
    if not secrets.compare_digest(sent, f"Bearer {token.get_secret_value()}".encode()):
        raise NotSignedInError("The metrics of this server need the token its settings name.")


async def _figures(state: State) -> list[Metric]:
    families: list[Metric] = []
    why = ""
    try:
        families = list(figure_families(await state.figures.get()))
    except TimeoutError:
        why = "the database takes too long: does a transaction hold a table?"
    except Exception as error:  # noqa: BLE001  Whatever it is, the rest is told all the same.
        why = str(error)
    _note(state, why)
    text = "1 while the figures of the database could be read for this scrape."
    return [GaugeMetricFamily("finishline_figures_ok", text, bool(families)), *families]


def _note(state: State, why: str) -> None:
    """Write a line where the figures go or come back, and none while they stay."""
    if state.figures_are_away == bool(why):
        return
    state.figures_are_away = bool(why)
    if why:
        log.warning("the figures of the service cannot be read: %s", why)
    else:
        log.info("the figures of the service can be read again")
