"""GET /metrics, in the text format of Prometheus."""

import asyncio
import logging
import secrets
import shutil
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry
from prometheus_client.core import Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from server.base.errors import NotSignedInError
from server.base.request_metrics import RequestMetrics
from server.base.services import Services, ServicesDep
from server.base.settings import Settings
from server.operations.copies import last_copy_at
from server.operations.figures import CachedFigures, family
from server.operations.health import CheckView, Readiness
from server.verifications.dispatch import Dispatcher

log = logging.getLogger(__name__)

router = APIRouter(include_in_schema=False)


def process_families(
    services: Services, findings: Sequence[CheckView], *, ready: bool
) -> Iterator[Metric]:
    """Findings of /readyz, and what they look at."""
    yield family("ready", "1 while this process can accept submissions, as in /readyz.", ready)
    yield family(
        "check_ok",
        "1 while a check of /readyz finds nothing wrong.",
        {(finding.name,): finding.state == "ok" for finding in findings},
        "check",
    )
    with suppress(OSError):
        free = shutil.disk_usage(services.artifacts.folder).free
        yield family("artifacts_free_bytes", "Free space for received logs.", free)
    seconds = services.of(Dispatcher).seconds_since_round
    if seconds is not None:
        yield family("dispatch_round_age_seconds", "Time since the last dispatch.", seconds)


def copies_families(settings: Settings) -> Iterator[Metric]:
    """The last export and backup, where the settings name a folder."""
    for kind, folder in (("export", settings.exports_dir), ("backup", settings.backups_dir)):
        if folder is not None:
            name, text = f"{kind}_last_success_timestamp_seconds", "in Unix time; 0 without one."
            yield family(name, f"When the last {kind} was made, {text}", last_copy_at(folder, kind))


@dataclass(frozen=True)
class Scrape(Collector):
    """A scrape: a registry's metrics, then families made for it."""

    registry: CollectorRegistry
    families: Sequence[Metric]

    def collect(self) -> Iterator[Metric]:
        """Every metric."""
        return chain(self.registry.collect(), self.families)


@router.get("/metrics", response_class=Response)
async def metrics(request: Request, services: ServicesDep) -> Response:
    """Counts of this process, and figures of the whole service from the database.

    Anybody may read them unless the settings name a token. While the database is away the rest is
    answered all the same, with `finishline_figures_ok` 0.
    """
    _require_token(services, request)
    readiness = services.of(Readiness)
    findings, figures = await asyncio.gather(readiness.look(), _figures(services.of(CachedFigures)))
    ready = readiness.is_ready(findings)
    families = [*process_families(services, findings, ready=ready), *figures]
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
    """The figures, or none while the database does not give them.

    Writes a line where they go or come back, and none while they stay.
    """
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
