"""The application a server process calls: cached boards in front, everything else observed."""

from typing import Any

from fastapi import FastAPI
from starlette.types import ASGIApp

from server.api_examples import add_examples
from server.base.board_versions import VersionReader
from server.base.middleware import OpenToPages
from server.base.request_metrics import RequestMetrics
from server.base.services import Services
from server.boards.service import BoardCache
from server.operations.logs import Observed


class FinishlineApp(FastAPI):
    """FastAPI behind the cache of boards, with all its middlewares observed.

    A response from the cache is counted and leaves no line in the log. `state.services` is set
    before the first request.
    """

    def openapi(self) -> dict[str, Any]:
        """The description of the API, with an example of each schema."""
        if self.openapi_schema is None:
            add_examples(super().openapi()["components"]["schemas"])
        return super().openapi()

    def build_middleware_stack(self) -> ASGIApp:
        """The whole application, observed, behind the cache where everybody reads."""
        services: Services = self.state.services
        metrics = services.of(RequestMetrics)
        app = OpenToPages(Observed(super().build_middleware_stack(), metrics))
        if services.settings.reads == "members":
            return app  # The cache looks at no token.
        return BoardCache(app, services.of(VersionReader), metrics)
