"""How many requests of a kind somebody may send in a while, counted in memory or in Redis.

With Redis all server processes count together. While it is away each counts for itself, so that a
broker that is down makes limits looser, never the service unavailable.
"""

import asyncio
import logging
import math
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from limits import RateLimitItem, parse
from limits.aio.strategies import SlidingWindowCounterRateLimiter

from server.limits.kinds import Kind
from server.limits.memory import BoundedMemory
from server.limits.requesters import Requester
from server.settings import Settings

if TYPE_CHECKING:
    from server.limits.shared_counts import SharedCounts

log = logging.getLogger(__name__)

REDIS_SECONDS = 0.25
TRY_REDIS_AGAIN_SECONDS = 5.0
FAILED = "failed_sign_ins"


@dataclass(frozen=True)
class Refusal:
    """A limit that is used up: its name, as it is written in the settings, and when to come again.

    `policy` and `state` are the values of the headers RateLimit-Policy and RateLimit.
    """

    bucket: str
    limit: str
    retry_seconds: int
    policy: str
    state: str


def bucket_of(kind: Kind, requester: Requester) -> str:
    """Which limit holds for a request."""
    if kind in (Kind.WRITE, Kind.UPLOAD):
        return "organiser_writes" if requester.is_trusted else "writes"
    if kind is Kind.WORKER:
        return "worker_posts"
    return "expensive_reads" if kind is Kind.EXPENSIVE else "reads"


class RateLimits:
    """The limits of the settings and where hits are counted."""

    def __init__(self, settings: Settings, *, local: BoundedMemory | None = None) -> None:
        self._items: dict[str, RateLimitItem] = {
            "reads": parse(settings.rate_reads),
            "expensive_reads": parse(settings.rate_expensive_reads),
            "writes": parse(settings.rate_writes),
            "organiser_writes": parse(settings.rate_organiser_writes),
            "worker_posts": parse(settings.rate_worker_posts),
            FAILED: parse(settings.rate_failed_sign_ins),
        }
        self._local = SlidingWindowCounterRateLimiter(local or BoundedMemory())
        self._shared = shared_counts(settings)
        self._shared_again_at = 0.0
        self.shared_ok = True
        self.bucket_names = tuple(self._items)

    async def hit(self, bucket: str, key: str) -> Refusal | None:
        """Count a request; the refusal if there is no room for it."""
        return await self._ask(bucket, key, count=True)

    async def look(self, bucket: str, key: str) -> Refusal | None:
        """The refusal that a request would meet, without counting one."""
        return await self._ask(bucket, key, count=False)

    async def _ask(self, bucket: str, key: str, *, count: bool) -> Refusal | None:
        if self._shared is not None and time.monotonic() >= self._shared_again_at:
            try:
                async with asyncio.timeout(REDIS_SECONDS):
                    refusal = await self._ask_one(self._shared.counter, bucket, key, count=count)
            except Exception as error:  # noqa: BLE001  Whatever it is, a local count stands in.
                self._note_away(error)
            else:
                self._note_back()
                return refusal
        return await self._ask_one(self._local, bucket, key, count=count)

    async def _ask_one(
        self, counter: SlidingWindowCounterRateLimiter, bucket: str, key: str, *, count: bool
    ) -> Refusal | None:
        item = self._items[bucket]
        has_room = await (counter.hit if count else counter.test)(item, bucket, key)
        if has_room:
            return None
        window = await counter.get_window_stats(item, bucket, key)
        wait = max(1, math.ceil(window.reset_time - time.time()))
        return Refusal(
            bucket=bucket,
            limit=str(item),
            retry_seconds=wait,
            policy=f'"{bucket}";q={item.amount};w={item.get_expiry()}',
            state=f'"{bucket}";r=0;t={wait}',
        )

    async def close(self) -> None:
        """Close the connections to Redis."""
        if self._shared is not None:
            await self._shared.close()

    def _note_away(self, error: Exception) -> None:
        self._shared_again_at = time.monotonic() + TRY_REDIS_AGAIN_SECONDS
        if self.shared_ok:
            why = str(error) or type(error).__name__
            log.warning("rate limits are counted by each process alone: Redis is away (%s)", why)
        self.shared_ok = False

    def _note_back(self) -> None:
        if not self.shared_ok:
            log.info("rate limits are counted together again: Redis answers")
        self.shared_ok = True


def shared_counts(settings: Settings) -> "SharedCounts | None":
    """Where all processes count together; None where each counts for itself."""
    address = settings.rate_limit_storage
    if address == "memory":
        return None
    from server.limits.shared_counts import SharedCounts

    return SharedCounts(
        settings.broker_url if address == "broker" else address, limit_seconds=REDIS_SECONDS
    )
