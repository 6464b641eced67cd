"""Limit on requests in flight: a request over it waits shortly, or is answered 503.

Each request in flight needs a thread and a connection to the database. It holds its slot only while
the server works on it: not while its body comes, and not while its response is read.
"""

import asyncio
from collections import Counter

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.error_answers import has_body, refuse
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
SEND_SECONDS = 30.0
EVENT_STREAM = "text/event-stream"
FULL = {
    "requests": "no capacity for more requests",
    "downloads": "no capacity for more downloads",
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


class OpenResponses:
    """Responses of no stated length that are open, bounded in all and for each requester."""

    def __init__(self, name: str, *, most: int, most_each: int) -> None:
        self.name = name
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
        self,
        app: ASGIApp,
        *,
        slots: Slots,
        streams: OpenResponses,
        downloads: OpenResponses,
        metrics: RequestMetrics,
    ) -> None:
        self.slots = slots
        self.posts = Slots(WORKER_POSTS, wait_seconds=WORKER_WAIT_SECONDS)
        self.streams = streams
        self.downloads = downloads
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_of_worker = scope["type"] == "http" and is_post_of_worker(scope)
        # A worker that waits for work holds no slot: the rate of its posts bounds how many wait.
        if scope["type"] != "http" or is_free(scope) or (is_of_worker and is_wait_for_work(scope)):
            await self._app(scope, receive, send)
            return
        slots = self.posts if is_of_worker else self.slots
        if not await slots.acquire(joins=is_join(scope)):
            await self.refuse("requests", scope, receive, send)
            return
        request = RequestInFlight(self, slots, scope, receive, send)
        try:
            await self._app(scope, request.receive, request.send)
        except Exception:
            # A refused or abandoned response ends the application's sending with an exception.
            if not request.is_cut_off:
                raise
        finally:
            request.end()

    def kind_of(self, start: Message) -> OpenResponses | None:
        """The count that a response belongs to; None if it states its length."""
        headers = Headers(raw=start["headers"])
        if start["status"] != 200 or "content-length" in headers:
            return None
        is_stream = headers.get("content-type", "").startswith(EVENT_STREAM)
        return self.streams if is_stream else self.downloads

    async def refuse(self, full: str, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer 503."""
        self._metrics.shed.labels(full).inc()
        headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
        await refuse(scope, receive, send, 503, "Busy", sentence(full), headers)

    def busy(self) -> HTTPException:
        """Count and return the 503 of a request that has its whole body but finds no free slot."""
        self._metrics.shed.labels("requests").inc()
        return HTTPException(503, sentence("requests"), {"Retry-After": str(RETRY_SECONDS)})


class RequestInFlight:
    """A request that was let in: its slot, its body, and its response on the way out."""

    def __init__(
        self, limits: InFlight, slots: Slots, scope: Scope, receive: Receive, send: Send
    ) -> None:
        self._limits = limits
        self._slots = slots
        self._scope = scope
        self._receive = receive
        self._send = send
        requester = scope.get(REQUESTER)
        self._key = "local" if requester is None else requester.key
        self._has_slot = True
        self._body_comes = has_body(scope)
        self._open: OpenResponses | None = None
        self.is_cut_off = False

    async def receive(self) -> Message:
        """The next piece of the body; the slot is given back until the body is whole."""
        if not self._body_comes:
            return await self._receive()
        self._release()
        message = await self._receive()
        if not message.get("more_body", False):
            self._body_comes = False
            self._has_slot = await self._slots.acquire(
                was_admitted=True, joins=is_join(self._scope)
            )
            if not self._has_slot:
                raise self._limits.busy()
        return message

    async def send(self, message: Message) -> None:
        """Send a part of the response. The work is done, so the slot is given back.

        Raises ClientDisconnect where too many responses are open, or nobody reads this one.
        """
        if self.is_cut_off:
            return
        self._body_comes = False
        self._release()
        if message["type"] == "http.response.start":
            await self._open_response(message)
        try:
            async with asyncio.timeout(SEND_SECONDS):
                await self._send(message)
        except TimeoutError as error:
            self.is_cut_off = True
            raise ClientDisconnect from error

    async def _open_response(self, message: Message) -> None:
        """Count a response of no stated length; refuse it where too many are open."""
        kind = self._limits.kind_of(message)
        if kind is None:
            return
        if not kind.open(self._key):
            self.is_cut_off = True
            await self._limits.refuse(kind.name, self._scope, self._receive, self._send)
            raise ClientDisconnect
        self._open = kind

    def end(self) -> None:
        """Give back all that the request holds."""
        self._release()
        if self._open is not None:
            self._open.close(self._key)
            self._open = None

    def _release(self) -> None:
        if self._has_slot:
            self._has_slot = False
            self._slots.release()


def sentence(full: str) -> str:
    """The refusal in words."""
    return f"The server has {FULL[full]}; nothing was changed. Try again in {RETRY_SECONDS} s."
