"""The limits of one process, made from its settings."""

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

import anyio.to_thread
from prometheus_client import CollectorRegistry

from server.limits.metrics import LimitMetrics
from server.limits.pace import Pace
from server.limits.rates import RateLimits
from server.limits.requesters import KnownSecrets
from server.limits.shedding import (
    MOST_DOWNLOADS,
    NEWCOMER_PLACES,
    RESERVED_PLACES,
    Capacity,
    make_capacity,
)
from server.quotas.usage import MEASURES
from server.settings import Settings

# Reading files and polling for streams take threads beside the requests in work.
OTHER_THREADS = 16
SWITCH_SECONDS = 0.0005


@dataclass(frozen=True)
class LimitParts:
    """Everything that limits; without `enforced` rates are not, rooms always are."""

    rates: RateLimits
    known: KnownSecrets
    capacity: Capacity
    pace: Pace
    metrics: LimitMetrics
    enforced: bool


def make_limits(settings: Settings, registry: CollectorRegistry) -> LimitParts:
    """The parts of an application with these settings."""
    rates, capacity, metrics = RateLimits(settings), make_capacity(settings), LimitMetrics(registry)
    metrics.show(limits=rates.bucket_names, full=capacity.names, measures=MEASURES)
    metrics.gauge(
        "finishline_rate_limits_shared",
        "0 while Redis is away and each process counts rate limits for itself.",
        lambda: float(rates.shared_ok),
    )
    metrics.gauge(
        "finishline_requests_waiting",
        "Requests that wait for a place to be worked at.",
        lambda: float(capacity.public.waiting + capacity.reserved.waiting),
    )
    metrics.gauge(
        "finishline_event_streams", "Live streams open.", lambda: float(capacity.streams.count)
    )
    pace = Pace(capacity.public, most=settings.max_requests_in_work)
    metrics.gauge(
        "finishline_event_loop_late_seconds",
        "How late the event loop was at its last look; fewer requests are worked at while it is.",
        lambda: pace.late_seconds,
    )
    return LimitParts(rates, KnownSecrets(), capacity, pace, metrics, settings.rate_limits)


@asynccontextmanager
async def limits_at_work(limits: LimitParts, settings: Settings) -> AsyncIterator[None]:
    """Everything that limits while the application serves."""
    _prepare_threads(settings)
    limits.pace.start()
    yield
    await limits.pace.stop()
    await limits.rates.close()


def _prepare_threads(settings: Settings) -> None:
    """As many threads as requests may be worked at, so that reserved places are worth something.

    They hand the interpreter over ten times as often as by default: the event loop, which asks for
    it at each request, would wait for each of them in turn.
    """
    sys.setswitchinterval(SWITCH_SECONDS)
    needed = (
        settings.max_requests_in_work
        + RESERVED_PLACES
        + NEWCOMER_PLACES
        + MOST_DOWNLOADS // 2
        + OTHER_THREADS
    )
    limiter = anyio.to_thread.current_default_thread_limiter()
    limiter.total_tokens = max(limiter.total_tokens, needed)
