"""GET /metrics, in the text format of Prometheus."""

import asyncio
import logging
import secrets
from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.datastructures import State

from server.dependencies import Parts
from server.errors import NotSignedInError
from server.health.readiness import Readiness
from server.observability.families import figure_families, finding_families
from server.observability.kept_copies import kept_copies_families

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
