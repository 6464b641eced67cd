"""GET /metrics, in the text format of Prometheus."""

import asyncio
import secrets
from collections.abc import Iterator, Sequence

from fastapi import APIRouter, Request, Response
from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from server.dependencies import Parts
from server.errors import NotSignedInError
from server.health.readiness import Readiness
from server.observability.families import figure_families, finding_families
from server.observability.figures import Figures
from server.observability.kept import Kept
from server.observability.kept_copies import kept_copies_families

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
    findings, figures = await asyncio.gather(readiness.look(), _figures(state.figures))
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


async def _figures(kept: Kept[Figures]) -> list[Metric]:
    families: list[Metric] = []
    try:
        families = list(figure_families(await kept.get()))
    except Exception:  # noqa: BLE001  The check of the database says what is wrong.
        families = []
    text = "1 while the figures of the database could be read for this scrape."
    return [GaugeMetricFamily("finishline_figures_ok", text, bool(families)), *families]
