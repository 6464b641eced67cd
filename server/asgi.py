"""The application a server process calls: cached boards in front, everything else observed."""

import os
from typing import Any

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import FastAPI
from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware
from starlette.types import ASGIApp

from server.api_examples import add_examples
from server.api_reference import named_by_nouns
from server.base.board_versions import VersionReader
from server.base.middleware import OpenToPages
from server.base.request_context import SAFE_ID, InContext
from server.base.request_metrics import RequestMetrics
from server.base.services import Services
from server.boards.cache import BoardCache
from server.operations.logs import write_access_line


class FinishlineApp(FastAPI):
    """FastAPI behind the cache of boards, with all its middlewares observed.

    A response from the cache is counted and leaves no line in the log. `state.services` is set
    before the first request.
    """

    def openapi(self) -> dict[str, Any]:
        """The description of the API, with an example of each schema."""
        if self.openapi_schema is None:
            described = super().openapi()
            add_examples(described["components"]["schemas"])
            self.openapi_schema = named_by_nouns(described)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        """The whole application, observed, behind the cache where everybody reads."""
        services: Services = self.state.services
        metrics = services.of(RequestMetrics)
        app = observed(super().build_middleware_stack(), metrics)
        if services.settings.reads == "members":
            return app  # The cache looks at no token.
        return BoardCache(app, services.of(VersionReader), metrics)


def observed(app: ASGIApp, metrics: RequestMetrics) -> ASGIApp:
    """An application with an id for each request, which is counted, timed and logged.

    A proxy or a client may give the id.
    """
    instrumented = PrometheusInstrumentatorMiddleware(
        app,
        should_group_status_codes=False,
        instrumentations=[*metrics.instrumentations, write_access_line],
        registry=metrics.registry,
    )
    return CorrelationIdMiddleware(
        OpenToPages(InContext(instrumented)),
        generator=lambda: os.urandom(8).hex(),
        validator=lambda sent: SAFE_ID.fullmatch(sent) is not None,
    )
