"""Hits counted in Redis, by all server processes together.

Imported only where the settings name a Redis: a server that counts in its own memory, which is the
default, starts without the client of one.
"""

from limits.aio.storage import RedisStorage
from limits.aio.strategies import SlidingWindowCounterRateLimiter
from redis.asyncio import ConnectionPool
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

KEY_PREFIX = "finishline-rate"


class SharedCounts:
    """A counter, and the connections it counts over, which are made when they are needed."""

    def __init__(self, address: str, *, limit_seconds: float) -> None:
        self._pool = make_pool(address, limit_seconds=limit_seconds)
        self.counter = _counter(self._pool)

    async def close(self) -> None:
        """Close the connections."""
        await self._pool.disconnect()


def make_pool(address: str, *, limit_seconds: float) -> ConnectionPool:
    """Connections that give up after so many seconds. Raises ValueError on a bad address."""
    # Celery writes the address of a socket in its own way.
    return ConnectionPool.from_url(
        address.replace("redis+socket://", "unix://", 1),
        socket_timeout=limit_seconds,
        socket_connect_timeout=limit_seconds,
        retry=Retry(NoBackoff(), 0),
    )


def _counter(pool: ConnectionPool) -> SlidingWindowCounterRateLimiter:
    """The library takes a pool, as its documents say; its types leave that out."""
    storage = RedisStorage(
        "async+redis://",
        implementation="redispy",
        key_prefix=KEY_PREFIX,
        connection_pool=pool,  # type: ignore[arg-type]
    )
    return SlidingWindowCounterRateLimiter(storage)
