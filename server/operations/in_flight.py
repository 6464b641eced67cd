"""Limit on requests in work: a request over it waits shortly, or is told to come again.

Each request in work needs a thread and a connection to the database. It holds its slot only while
the server works on it: not while its body comes, and not while its response is read. Of the
expensive requests of one reader the server works on one at a time.
"""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from urllib.parse import parse_qs
from weakref import WeakValueDictionary

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.error_answers import has_body, refuse
from server.base.middleware import EVENT_STREAM
from server.base.request_context import RequestMetrics
from server.base.settings import Settings
from server.operations.rates import (
    JOIN,
    REQUESTER,
    SAFE,
    Requester,
    is_free,
    is_wait_for_work,
    is_worker_post,
)
from server.people.accounts import ORGANISERS

MOST_WAITING = 64
# A class opens one link in the same instant, and a lost form has to be typed again.
MOST_PATIENT, JOIN_PATIENCE, BODY_PATIENCE = 1000, 60, 10
# Beside all others. A worker gives up on an answer after five seconds.
WORKER_POSTS, WORKER_WAIT_SECONDS = 8, 4.0
# Of one reader, who may be a class behind one address.
MOST_TURNS, TURN_SECONDS = 100, 30.0
RETRY_SECONDS = 2
NO_CAPACITY = {
    "requests": (503, "The server has no capacity for more requests"),
    "event_streams": (503, "The server has no capacity for more live streams, in all or for you"),
    "expensive_reads": (
        429,
        "Too many requests for exports, charts, comparisons and what-if boards, or submissions, "
        "at once: the server works on one of yours at a time",
    ),
}

# Reads of many rows, and those that draw, compress or sign.
EXPENSIVE_ENDS = (
    *("/proof", "/runs.json", ".csv", ".parquet", "/convergence"),
    *("/compare", "/preview", "/log.json", "/ideas"),
)
EXPENSIVE_WITHIN = "/charts/"
# Of a board: another clock, target or price. It is made anew from every curve.
BOARD = re.compile(r"/(?:api/v1/leaderboards|benchmarks)/[^/]+")
EXPENSIVE_PARAMETERS = frozenset({"clock", "target", "price", "prices_on"})
# Submissions, dry runs too: logs are scored and code is parsed.
EXPENSIVE_POSTS = frozenset({"/submit", "/submit/send", "/api/v1/submissions"})


class Slots:
    """So many requests at once, and a bound on those that wait."""

    def __init__(self, most: int) -> None:
        self.waiting = 0
        self._free = asyncio.Semaphore(most)

    @asynccontextmanager
    async def hold(self, *, seconds: float, most_waiting: int) -> AsyncIterator[None]:
        """A slot, at once or after a wait. Raises TimeoutError if none is free in time."""
        if self._free.locked() and self.waiting >= most_waiting:
            raise TimeoutError
        self.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        finally:
            self.waiting -= 1
        try:
            yield
        finally:
            self._free.release()


class InFlight:
    """Let in as many requests as there are slots, and tell the rest when to come again."""

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: RequestMetrics) -> None:
        self.slots = Slots(settings.max_requests_in_work)
        self.streams: Counter[str] = Counter()  # Live streams that are open, by requester.
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self._posts = Slots(WORKER_POSTS)
        self._turns: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        metrics.gauge(
            "requests_waiting", "Requests that wait for a slot.", lambda: self.slots.waiting
        )
        metrics.gauge("event_streams", "Live streams open.", self.streams.total)
        for what in NO_CAPACITY:
            metrics.shed.labels(what)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_free(scope):
            await self._app(scope, receive, send)
            return
        requester: Requester = scope.get(REQUESTER, Requester("local"))
        # A worker that waits for work holds no slot: the rate of its posts bounds how many wait.
        if requester.role == "worker" and is_wait_for_work(scope):
            await self._app(scope, receive, send)
            return
        comes = has_body(scope) and scope["method"] not in SAFE
        async with AsyncExitStack() as stream, AsyncExitStack() as held:

            async def receive_body() -> Message:
                nonlocal comes
                message = await receive()
                if comes and not message.get("more_body", False):
                    comes = False
                    await self._begin(scope, requester, held, has_sent=True)
                return message

            async def send_part(message: Message) -> None:
                await held.aclose()
                await send(message)

            if not comes:
                try:
                    if scope["path"].endswith(EVENT_STREAM):
                        stream.enter_context(self._open_stream(requester.key))
                    await self._begin(scope, requester, held, has_sent=False)
                except HTTPException as full:
                    await refuse(scope, receive, send, full)
                    return
            await self._app(scope, receive_body, send_part)

    async def _begin(
        self, scope: Scope, requester: Requester, held: AsyncExitStack, *, has_sent: bool
    ) -> None:
        """Hold a slot, after the reader's turn if the request is expensive.

        Who has sent a body waits longer, and so does who joins, beside a whole class.
        """
        what = "expensive_reads"
        try:
            if is_one_at_a_time(scope, requester.role):
                turn = self._turns.setdefault(requester.key, Slots(1))
                place = turn.hold(seconds=TURN_SECONDS, most_waiting=MOST_TURNS - 1)
                await held.enter_async_context(place)
            what, slots, most = "requests", self.slots, MOST_WAITING
            seconds = self._settings.max_wait_seconds
            if requester.role == "worker" and is_worker_post(scope):
                # A report is compared with the times of its worker's posts, so one that waits
                # behind readers would fail the verification.
                slots, seconds = self._posts, WORKER_WAIT_SECONDS
            elif scope["path"].startswith(JOIN):
                seconds, most = seconds * JOIN_PATIENCE, MOST_PATIENT
            elif has_sent:
                seconds, most = seconds * BODY_PATIENCE, MOST_PATIENT
            await held.enter_async_context(slots.hold(seconds=seconds, most_waiting=most))
        except TimeoutError:
            raise self._full(what) from None

    @contextmanager
    def _open_stream(self, key: str) -> Iterator[None]:
        """Count a live stream. Raises HTTPException if there are too many, in all or of one."""
        if (
            self.streams.total() >= self._settings.max_event_streams
            or self.streams[key] >= self._settings.max_event_streams_each
        ):
            raise self._full("event_streams")
        self.streams[key] += 1
        try:
            yield
        finally:
            self.streams -= Counter([key])

    def _full(self, what: str) -> HTTPException:
        self._metrics.shed.labels(what).inc()
        status, why = NO_CAPACITY[what]
        detail = f"{why}. Nothing was changed; try again in {RETRY_SECONDS} s."
        headers = {"Retry-After": str(RETRY_SECONDS), "Cache-Control": "no-store"}
        return HTTPException(status, detail, headers)


def is_one_at_a_time(scope: Scope, role: str | None) -> bool:
    """Whether the server works on one such request of a reader at a time.

    An import of an organiser sends several submissions at once.
    """
    path: str = scope["path"]
    if scope["method"] not in SAFE:
        return path in EXPENSIVE_POSTS and role not in ORGANISERS
    if path.endswith(EXPENSIVE_ENDS) or EXPENSIVE_WITHIN in path:
        return True
    query = scope.get("query_string", b"")
    if not query or BOARD.fullmatch(path) is None:
        return False
    return not EXPENSIVE_PARAMETERS.isdisjoint(parse_qs(query.decode("latin-1")))
