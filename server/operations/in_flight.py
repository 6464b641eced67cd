"""Limit on requests in flight: a request over it waits shortly, or is answered 503.

Each request in flight needs a thread and a connection to the database. It holds its slot only while
the server works on it: not while its body comes, and not while its response is read.
"""

import asyncio
from collections import Counter

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.error_answers import has_body, refuse
from server.base.middleware import EVENT_STREAM
from server.base.request_metrics import RequestMetrics
from server.operations.rates import (
    REQUESTER,
    Requester,
    is_free,
    is_join,
    is_wait_for_work,
    is_worker_post,
)

MOST_WAITING = 64
# A class opens one link in the same instant; a lost form has to be typed again.
MOST_JOINING, JOIN_PATIENCE, BODY_PATIENCE = 1000, 60, 10
# Beside all others. A worker gives up on an answer after five seconds.
WORKER_POSTS, WORKER_WAIT_SECONDS = 8, 4.0
RETRY_SECONDS = 2
FULL = {
    "requests": "no capacity for more requests",
    "event_streams": "no capacity for more live streams, in all or for you",
}


class Slots:
    """Slots of requests in flight: limits on their number, on waiting requests and on the wait."""

    def __init__(self, most: int, *, wait_seconds: float, most_waiting: int = MOST_WAITING) -> None:
        self.waiting = 0
        self._semaphore = asyncio.Semaphore(most)
        self._wait_seconds = wait_seconds
        self._most_waiting = most_waiting

    async def acquire(self, *, was_admitted: bool = False, joins: bool = False) -> bool:
        """Take a slot, at once or after a short wait. Returns whether there was one.

        A request that was admitted, and has sent its body since, waits longer. So does one of
        somebody who joins, with the whole class before and behind them.
        """
        if not self._semaphore.locked():
            return await self._semaphore.acquire()
        most = MOST_JOINING if joins else self._most_waiting
        if self.waiting >= most and not was_admitted:
            return False
        self.waiting += 1
        patience = JOIN_PATIENCE if joins else BODY_PATIENCE if was_admitted else 1
        try:
            async with asyncio.timeout(self._wait_seconds * patience):
                return await self._semaphore.acquire()
        except TimeoutError:
            return False
        finally:
            self.waiting -= 1

    def release(self) -> None:
        """Give a slot to the request that has waited longest."""
        self._semaphore.release()


class OpenStreams:
    """Live streams that are open, bounded in all and for each requester."""

    name = "event_streams"

    def __init__(self, *, most: int, most_each: int) -> None:
        self._most = most
        self._most_each = most_each
        self._by_key: Counter[str] = Counter()

    @property
    def count(self) -> int:
        """Number of open ones."""
        return self._by_key.total()

    def open(self, key: str) -> bool:
        """Count one more. Returns whether there was room for it."""
        if self.count >= self._most or self._by_key.get(key, 0) >= self._most_each:
            return False
        self._by_key[key] += 1
        return True

    def close(self, key: str) -> None:
        """Count one less."""
        self._by_key[key] -= 1
        if not self._by_key[key]:
            del self._by_key[key]


def is_post_of_worker(scope: Scope) -> bool:
    """Whether a request is a post of a worker with a valid token.

    A report is compared with the times of its worker's posts, so one that waits behind readers
    would fail the verification.
    """
    requester: Requester | None = scope.get(REQUESTER)
    return requester is not None and requester.role == "worker" and is_worker_post(scope)


class InFlight:
    """Let in as many requests as there are slots, and answer 503 with Retry-After to the rest."""

    def __init__(
        self, app: ASGIApp, *, slots: Slots, streams: OpenStreams, metrics: RequestMetrics
    ) -> None:
        self.slots = slots
        self.posts = Slots(WORKER_POSTS, wait_seconds=WORKER_WAIT_SECONDS)
        self.streams = streams
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_of_worker = scope["type"] == "http" and is_post_of_worker(scope)
        # A worker that waits for work holds no slot: the rate of its posts bounds how many wait.
        if scope["type"] != "http" or is_free(scope) or (is_of_worker and is_wait_for_work(scope)):
            await self._app(scope, receive, send)
        elif scope["method"] == "GET" and scope["path"].endswith(EVENT_STREAM):
            requester: Requester | None = scope.get(REQUESTER)
            key = "local" if requester is None else requester.key
            if not self.streams.open(key):
                await self._refuse(self.streams.name, scope, receive, send)
                return
            try:
                await self._let_in(self.slots, scope, receive, send)
            finally:
                self.streams.close(key)
        else:
            slots = self.posts if is_of_worker else self.slots
            await self._let_in(slots, scope, receive, send)

    async def _let_in(self, slots: Slots, scope: Scope, receive: Receive, send: Send) -> None:
        """Hold a slot until the response begins, but not while the body comes."""
        joins = is_join(scope)
        if not await slots.acquire(joins=joins):
            await self._refuse("requests", scope, receive, send)
            return
        holds, body_comes = True, has_body(scope)

        def let_go() -> None:
            nonlocal holds
            if holds:
                holds = False
                slots.release()

        async def receive_body() -> Message:
            nonlocal holds, body_comes
            if not body_comes:
                return await receive()
            let_go()
            message = await receive()
            if not message.get("more_body", False):
                body_comes = False
                holds = await slots.acquire(was_admitted=True, joins=joins)
                if not holds:
                    self._metrics.shed.labels("requests").inc()
                    headers = {"Retry-After": str(RETRY_SECONDS)}
                    raise HTTPException(503, sentence("requests"), headers)
            return message

        async def send_part(message: Message) -> None:
            nonlocal body_comes
            body_comes = False
            let_go()
            await send(message)

        try:
            await self._app(scope, receive_body, send_part)
        finally:
            let_go()

    async def _refuse(self, full: str, scope: Scope, receive: Receive, send: Send) -> None:
        self._metrics.shed.labels(full).inc()
        headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
        await refuse(scope, receive, send, 503, "Busy", sentence(full), headers)


def sentence(full: str) -> str:
    """The refusal in words."""
    return f"The server has {FULL[full]}; nothing was changed. Try again in {RETRY_SECONDS} s."
