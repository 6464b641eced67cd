"""Serve /metrics for Prometheus: figures of the service from its database, and of a process."""

import asyncio
import logging
import secrets
import shutil
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain, product
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
from sqlalchemy import Float, Select, case, cast, extract, func, select
from sqlalchemy.orm import Session

from server.base.database import Database, Services, ServicesDep, utc_now
from server.base.errors import NotSignedInError
from server.base.fleet import Fleet
from server.base.http import RequestMetrics
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Message,
    Receiver,
    Submission,
    Verification,
)
from server.base.visibility import ORGANISER
from server.notices.outbox import overdue_seconds
from server.operations.copies import last_copy_at
from server.operations.health import BackgroundValue, CheckView, Readiness, read_queues, state_of
from server.verifications.dispatch import Dispatcher

FAILURES = frozenset({"submitter", "rules", "infrastructure", "time_limit"})
OPEN = ("queued", "running")
DELIVERIES = dict.fromkeys(product(("webhook", "mail"), ("waiting", "delivered", "failed")), 0)
SECONDS_PER_DAY = 86_400.0
KEEP_SECONDS = 5.0
LIMIT_SECONDS = 4.0
Counts = Mapping[Any, float]


class CachedFigures(BackgroundValue[list[Metric]]):
    """Figures for all scrapes from one reading. `are_away`: the last scrape went without them."""

    def __init__(self, database: Database) -> None:
        ask = partial(read_figures, database)
        super().__init__(ask, keep_seconds=KEEP_SECONDS, limit_seconds=LIMIT_SECONDS)
        self.are_away = False


def family(name: str, text: str, values: float | Counts, *labels: str) -> Metric:
    """Make a metric of one value, or one for each tuple of labels. `_total` makes a counter."""
    kind = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
    made = kind(f"finishline_{name}", text, labels=labels)
    counts = values if isinstance(values, Mapping) else {(): values}
    for each, value in sorted(counts.items()):
        made.add_metric(each, value)
    return made


def _counted(session: Session, *by: Any, where: Any = True) -> Counts:
    named = [column.label(f"by_{number}") for number, column in enumerate(by)]
    query: Select[Any] = select(*named, func.count()).where(where).group_by(*named)
    return {tuple(labels): count for *labels, count in session.execute(query)}


def read_figures(database: Database) -> list[Metric]:
    """Read every figure at one moment. Raises errors of the database."""
    now = utc_now()
    kind = Attempt.failure["kind"].as_string()
    failure = case((kind.is_(None), "none"), (kind.in_(FAILURES), kind), else_="other")
    archive = case((Submission.evidence == "published", "true"), else_="false")
    channel = select(Receiver.channel).where(Receiver.id == Message.receiver_id).scalar_subquery()
    ended, judged = Attempt.state.not_in(OPEN), Verification.outcome.is_not(None)
    running = select(func.min(Attempt.lease_expires_at)).where(Attempt.state == "running")
    with database.read(ORGANISER) as session:
        fleet = Fleet.read(session)
        queues = {(name,): queue for name, queue in read_queues(session, fleet).items()}
        workers = Counter((each.hardware_class, state_of(fleet, each)) for each in fleet.workers)
        attempts = _counted(session, Attempt.state)
        first = session.scalar(running)
        late_seconds = 0.0 if first is None else max((now - first).total_seconds(), 0.0)
        outcomes = _counted(session, Verification.kind, Verification.outcome, where=judged)
        deliveries = {**DELIVERIES, **_counted(session, channel, Message.state)}
        return [
            family("queued_attempts",
                   "Attempts that wait for a worker of a hardware class, or any.",
                   {name: each.attempts for name, each in queues.items()}, "hardware_class"),
            family("oldest_queued_attempt_age_seconds", "Age of the oldest that waits, else 0.",
                   {name: each.oldest_seconds for name, each in queues.items()}, "hardware_class"),
            family("queued_beside_free_worker_age_seconds",
                   "Age of the oldest that waits while a suitable worker is idle, else 0.",
                   {name: each.beside_free_seconds for name, each in queues.items()},
                   "hardware_class"),
            family("workers", "Workers by state: idle and busy ones alone get work.",
                   workers, "hardware_class", "state"),
            family("running_attempts", "Attempts under way.", attempts.get(("running",), 0)),
            family("running_attempt_past_lease_seconds",
                   "How long ago the first lease of an attempt under way ran out, else 0.",
                   late_seconds),
            family("attempts_ended_total", "Attempts that ended, by kind of failure.",
                   _counted(session, Attempt.state, failure, where=ended), "state", "failure"),
            family("leases_lost_total",
                   "Attempts whose lease ran out because the worker went offline.",
                   attempts.get(("lost",), 0)),
            family("verdicts_total", "Verifications that ended in an outcome.",
                   outcomes, "kind", "outcome"),
            family("submissions_total",
                   "Submissions; those of an archive were published elsewhere.",
                   _counted(session, Submission.kind, archive), "kind", "archive"),
            family("deliveries", "Messages of the last 30 days.", deliveries, "channel", "state"),
            family("delivery_overdue_seconds",
                   "Delay of the most overdue retry of a message, else 0.",
                   overdue_seconds(session, now=now)),
            _of_replays(session, is_sqlite=database.is_sqlite),
        ]  # fmt: skip


def _of_replays(session: Session, *, is_sqlite: bool) -> Metric:
    if is_sqlite:
        days = func.julianday(Attempt.ended_at) - func.julianday(Attempt.started_at)
        taken = cast(days * SECONDS_PER_DAY, Float)
    else:
        taken = cast(extract("epoch", Attempt.ended_at - Attempt.started_at), Float)
    query = (
        select(BenchmarkDefinition.benchmark_id, func.count(), func.sum(taken))
        .join(Verification, Verification.benchmark_sha256 == BenchmarkDefinition.sha256)
        .join(Attempt, Attempt.verification_id == Verification.id)
        .where(Attempt.state == "done", Attempt.started_at.is_not(None))
        .group_by(BenchmarkDefinition.benchmark_id)
    )
    text = "From claim to report of attempts that ended with one."
    taken_by = SummaryMetricFamily("finishline_replay_seconds", text, labels=("benchmark",))
    for benchmark, count, seconds in session.execute(query):
        taken_by.add_metric((benchmark,), count_value=count, sum_value=seconds)
    return taken_by


log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)


@dataclass(frozen=True)
class Scrape(Collector):
    """A scrape: a registry's metrics, then families made for it."""

    registry: CollectorRegistry
    families: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        """Yield every metric."""
        return chain(self.registry.collect(), self.families)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """Serve counts of this process, and figures of the service from the database.

    Anybody may read them unless the settings name a token. If the database fails, the rest is
    served with `finishline_figures_ok` 0.
    """
    token = services.settings.metrics_token
    if token is not None:
        sent = request.headers.get("authorization", "").encode()
        if not secrets.compare_digest(sent, f"Bearer {token.get_secret_value()}".encode()):
            raise NotSignedInError("The metrics of this server need the token its settings name.")
    readiness = services.of(Readiness)
    findings, figures = await asyncio.gather(readiness.look(), _figures(services.of(CachedFigures)))
    ready = readiness.is_ready(findings)
    families = [*_of_process(services, findings, ready=ready), *figures]
    encode, content_type = choose_encoder(request.headers.get("accept", ""))
    content = encode(Scrape(services.of(RequestMetrics).registry, families))
    return Response(content, headers={"Content-Type": content_type, "Cache-Control": "no-store"})


def _of_process(
    services: Services, findings: Sequence[CheckView], *, ready: bool
) -> Iterator[Metric]:
    yield family("ready", "1 while this process can accept submissions, as in /readyz.", ready)
    states = {(finding.name,): finding.state == "ok" for finding in findings}
    yield family("check_ok", "1 while a check of /readyz finds nothing wrong.", states, "check")
    with suppress(OSError):
        free = shutil.disk_usage(services.artifacts.folder).free
        yield family("artifacts_free_bytes", "Free space for received logs.", free)
    seconds = services.of(Dispatcher).seconds_since_round
    if seconds is not None:
        yield family("dispatch_round_age_seconds", "Time since the last dispatch.", seconds)
    settings = services.settings
    for kind, folder in (("export", settings.exports_dir), ("backup", settings.backups_dir)):
        if folder is not None:
            name, text = f"{kind}_last_success_timestamp_seconds", "in Unix time; 0 without one."
            yield family(name, f"When the last {kind} was made, {text}", last_copy_at(folder, kind))


async def _figures(cached: CachedFigures) -> list[Metric]:
    """Read the figures, empty while the database fails. Only a change writes a log line."""
    families, why = list[Metric](), ""
    try:
        families = await cached.get()
    except TimeoutError:
        why = "the database takes too long: does a transaction hold a table?"
    except Exception as error:  # noqa: BLE001  Whatever it is, the rest is told all the same.
        why = str(error)
    if cached.are_away != bool(why):
        cached.are_away = bool(why)
        told = f"cannot be read: {why}" if why else "can be read again"
        log.log(logging.WARNING if why else logging.INFO, "the figures of the service %s", told)
    text = "1 while the figures of the database could be read for this scrape."
    return [family("figures_ok", text, bool(families)), *families]
