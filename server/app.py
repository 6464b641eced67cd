"""The application: services, routes, error answers, middleware, start and stop."""

import gc
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache, partial
from secrets import token_hex
from typing import Any

from asgi_correlation_id import CorrelationIdMiddleware
from fastapi import APIRouter, FastAPI
from prometheus_fastapi_instrumentator.middleware import PrometheusInstrumentatorMiddleware
from starlette.middleware.gzip import DEFAULT_EXCLUDED_CONTENT_TYPES, GZipMiddleware
from starlette.routing import BaseRoute
from starlette.types import ASGIApp

from server.api_reference import TAGS, add_examples, describe, named_by_nouns
from server.base.artifacts import make_store
from server.base.board_versions import BoardCache, VersionReader
from server.base.broker import Broker
from server.base.database import Database, OfferedBenchmarks, Services
from server.base.error_answers import ERROR_ANSWERS, add_error_handlers
from server.base.http import (
    SAFE_ID,
    InContext,
    Reads,
    RequestMetrics,
    configure_logging,
    write_access_line,
)
from server.base.places import VERSION
from server.base.schema import require_current_schema
from server.base.settings import Settings, get_settings
from server.base.signing import load_signer
from server.benchmarks import endpoints as benchmarks
from server.benchmarks import phases, prices
from server.benchmarks.definitions import those_in_force
from server.benchmarks.in_force import PhaseWatch, install_definitions
from server.boards import compare, submissions
from server.boards import endpoints as boards
from server.boards.endpoints import GZIP_LEVEL
from server.notices import subscriptions as notices
from server.notices.outbox import NoticeLoop
from server.operations import health
from server.operations import metrics as metrics_page
from server.operations import runs as run_export
from server.operations.health import Readiness, drained_before_stop, make_checks
from server.operations.limits import Limits
from server.operations.metrics import CachedFigures
from server.pages import docs
from server.pages import endpoints as pages
from server.people import audit, erasure, invitations, tokens, users
from server.people.callers import Membership, Sessions
from server.reactions import connect_rooms
from server.submissions import quotas, standing_changes
from server.verifications import (
    attempts,
    calibrations,
    dispatch,
    live,
    proofs,
    queue,
    report,
    requests,
    reruns,
    settle,
    views,
    worker_endpoints,
    workers,
)
from server.verifications.dispatch import Dispatcher, PollDesk
from server.verifications.settle import BoardSettler

API = "/api/v1"
# Requests are matched with routes in this order: the most frequent and heaviest come first.
FEATURES = (
    workers,
    attempts,
    report,
    worker_endpoints,
    dispatch,
    queue,
    submissions,
    tokens,
    users,
    erasure,
    invitations,
    benchmarks,
    phases,
    run_export,
    standing_changes,
    settle,
    boards,
    compare,
    requests,
    reruns,
    live,
    views,
    proofs,
    calibrations,
    quotas,
    prices,
    audit,
    notices,
)
STALE_UPLOAD_SECONDS = 3600.0
# Requests waiting longer for a lock are refused, so a stuck lock blocks only for a while.
LOCK_SECONDS = 10.0
DESCRIPTION = (
    "Submit training runs, replay them on a worker, and rank measured times. "
    "Reads are public; writing takes a token: `Authorization: Bearer fl_...`. "
    "Errors are problem+json and name file, line and field."
)
# Compressed bytes, and event streams, which readers get event by event.
NOT_TEXT = (*DEFAULT_EXCLUDED_CONTENT_TYPES, "application/octet-stream")


class FinishlineApp(FastAPI):
    """FastAPI behind the cache of boards. Set `state.services` before the first request."""

    def openapi(self) -> dict[str, Any]:
        """Describe the API, with an example of each schema."""
        if self.openapi_schema is None:
            described = super().openapi()
            add_examples(described["components"]["schemas"])
            self.openapi_schema = named_by_nouns(described)
        return self.openapi_schema

    def build_middleware_stack(self) -> ASGIApp:
        """Observe the application, and put it behind the cache if everybody may read."""
        services: Services = self.state.services
        metrics = services.of(RequestMetrics)
        private = services.settings.reads == "members"
        app = observed(super().build_middleware_stack(), metrics, private=private)
        if private:
            return app  # The cache checks no token.
        # Its responses are counted, and stay out of the log.
        return BoardCache(app, services.of(VersionReader), metrics)


def observed(app: ASGIApp, metrics: RequestMetrics, *, private: bool = False) -> ASGIApp:
    """Count, time and log each request. Its id comes from a proxy or a client, or is drawn."""
    instrumented = PrometheusInstrumentatorMiddleware(
        app,
        should_group_status_codes=False,
        instrumentations=[metrics.observe, write_access_line],
        registry=metrics.registry,
    )
    return CorrelationIdMiddleware(
        InContext(instrumented, private=private),
        generator=partial(token_hex, 8),
        validator=lambda sent: SAFE_ID.fullmatch(sent) is not None,
    )


def create_app(
    settings: Settings, *, dispatch: bool = True, database: Database | None = None
) -> FastAPI:
    """Make the application for these settings. It starts threads only with `dispatch`.

    It closes `database`, an open database at the settings' address, when it stops. Raises
    RuntimeError if the database is not migrated, or another process serves it.
    """
    connect_rooms()
    database = database or Database(settings.database_url, lock_seconds=LOCK_SECONDS)
    try:
        revision = require_current_schema(database)
        if dispatch:
            database.serve()
        with database.write() as session:
            install_definitions(session, settings.benchmarks_dir)
            benchmarks = OfferedBenchmarks(those_in_force(session))
        services = Services(
            settings=settings,
            database=database,
            artifacts=make_store(settings),
            benchmarks=benchmarks,
        )
        services.artifacts.sweep(older_than_seconds=STALE_UPLOAD_SECONDS)
        session_secret = load_signer(settings.signing_key_path).derive("console sessions")
    except BaseException:
        database.close()
        raise
    broker, settler = Broker(settings.broker_url), BoardSettler(services)
    dispatcher = services.put(
        Dispatcher(services.database, broker, settings, settle_boards=settler.settle)
    )
    readiness = services.put(Readiness(make_checks(services, dispatcher, revision=revision)))
    version_reader = services.put(VersionReader(services.database))
    services.put(PollDesk(services.database))
    phase_watch = services.put(PhaseWatch(services))
    notice_loop = NoticeLoop(services.database, settings)
    services.put(CachedFigures(services.database))

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        if dispatch:
            dispatcher.start()
            phase_watch.thread.start()
            notice_loop.start()
        with drained_before_stop(readiness, drain_seconds=settings.drain_seconds):
            yield
        if dispatch:
            notice_loop.stop()
            phase_watch.thread.stop()
            dispatcher.stop()
        version_reader.close()
        services.database.close()

    app = FinishlineApp(
        title="Finishline",
        version=VERSION,
        description=DESCRIPTION,
        openapi_tags=TAGS,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
    )
    app.state.services = services
    app.router.routes.extend(_all_routes())
    app.mount(docs.ASSETS, docs.reference_assets())
    add_error_handlers(app)
    if settings.reads == "members":
        app.router.middleware_stack = Membership(app.router.middleware_stack, services)
    app.add_middleware(GZipMiddleware, compresslevel=GZIP_LEVEL, exclude_content_types=NOT_TEXT)
    metrics = services.of(RequestMetrics)
    for measure in quotas.MEASURES:  # A series is there from the start, so a rate is never absent.
        metrics.quota_refusals.labels(measure)
    app.add_middleware(Limits, settings=settings, metrics=metrics)
    app.add_middleware(Sessions, key=session_secret)
    app.add_middleware(Reads, routes=[each for one in FEATURES for each in one.router.routes])
    return app


@cache
def _all_routes() -> list[BaseRoute]:
    """Share the routes of all applications in this process: analysing them takes 0.15 s."""
    router = APIRouter(responses=ERROR_ANSWERS)
    # First, because analysing the other routes would delay a health check.
    router.include_router(health.router)
    router.include_router(metrics_page.router)
    describe(health.router.routes)
    for feature in FEATURES:
        describe(feature.router.routes)
        router.include_router(feature.router, prefix=API)
    for page in pages.ROUTERS:
        router.include_router(page, include_in_schema=False)
    return router.routes


def __getattr__(name: str) -> FastAPI:
    """Make `server.app:app` on demand, so that importing needs no database. May exit with 1."""
    if name != "app":
        raise AttributeError(name)
    try:
        settings = get_settings()
        configure_logging(settings)
        os.umask(0o077)  # Only this user may read logs and the signing key.
        app = globals()["app"] = create_app(settings)  # uvicorn asks twice.
    except RuntimeError as error:
        raise SystemExit(f"The server did not start: {error}") from None
    # Leave the start's objects out of garbage collections: ranking a board of 5,000 submissions
    # then takes half the time, because it makes so many objects that several collections run. The
    # start's garbage is half a MiB, and collecting it would take a tenth of the start.
    gc.freeze()
    # Rows refer to the objects read with them and back, so only the cycle collector frees them.
    # 50,000 waiting objects would be 16 MiB. Collecting after each 10,000 costs no more.
    gc.set_threshold(10_000, 5, 5)
    # A read changes threads a dozen times, and each time may wait for a thread that computes: 5 ms
    # by Python's default. A tenth of it costs the computing thread 2 %.
    sys.setswitchinterval(0.0005)
    return app
