"""Limits of requests: how large and how slow, how many in a while, how many at once.

uvicorn itself reads a head of any size, for as long as it takes. An application sees a request only
once its head is whole, so no middleware can bound that: `uvicorn --http` takes the class below.
Each server process counts for itself. A crowd is for the proxy in front to limit.
"""

import asyncio
import hashlib
import math
import re
import time
from asyncio import BaseTransport
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs
from weakref import WeakValueDictionary

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.base.error_answers import has_body, refuse
from server.base.middleware import EVENT_STREAM
from server.base.request_context import RequestMetrics, current, note_read
from server.base.settings import MIB, Settings
from server.people.accounts import ORGANISERS
from server.people.callers import network_of, session_key

SILENT_SECONDS = 20.0
GRACE_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
RETRY_SECONDS = 5
CLOSE = {"Connection": "close"}


@dataclass
class BodyRoom:
    """Bodies of one kind: the largest, and the most bytes of all of them together."""

    name: str
    most_each: int
    most_together: int
    held: int = 0


class BodyLimit:
    """Refuse bodies that are too large, too slow, compressed, or too many at once.

    Uploads, which go to few addresses, lie on the disk. Every other body is read into memory before
    anybody is asked for a token, so it has a smaller limit.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        usual: BodyRoom,
        uploads: BodyRoom,
        upload_paths: Collection[str],
        metrics: RequestMetrics,
    ) -> None:
        self._app = app
        self._usual = usual
        self._uploads = uploads
        self._upload_paths = upload_paths
        self._metrics = metrics
        for room in (usual, uploads):
            metrics.shed.labels(room.name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        room = self._uploads if scope["path"] in self._upload_paths else self._usual
        try:
            self._check_head(room, Headers(scope=scope))
        except HTTPException as error:
            await refuse(scope, receive, send, error)
            return
        began_at: float | None = None
        received, is_whole = 0, False

        async def receive_piece() -> Message:
            """The next piece. Raises HTTPException: 408 too slow, 413 too large, 503 too many.

            FastAPI lets an HTTPException through while it reads a body, and no other exception.
            """
            nonlocal began_at, received, is_whole
            if is_whole:
                return await receive()
            began_at = time.monotonic() if began_at is None else began_at
            message = await _next_piece(receive, received, began_at)
            count = len(message.get("body", b""))
            self._check(room, received + count, room.held + count)
            received += count
            room.held += count
            is_whole = not message.get("more_body", False)
            if is_whole:
                note_read()
            return message

        try:
            await self._app(scope, receive_piece, send)
        finally:
            room.held -= received

    def _check_head(self, room: BodyRoom, headers: Headers) -> None:
        if headers.get("content-encoding", "identity") != "identity":
            # A small body could become a large one.
            raise HTTPException(
                415, "Compressed requests are not supported; send the body uncompressed."
            )
        stated = headers.get("content-length", "0")
        size = int(stated) if stated.isascii() and stated.isdigit() else 0
        self._check(room, size, room.held + size)

    def _check(self, room: BodyRoom, size: int, together: int) -> None:
        if size > room.most_each:
            most = f"{room.most_each / MIB:g} MiB"
            raise HTTPException(413, f"A request to this address may have at most {most}.")
        if together > room.most_together:
            self._metrics.shed.labels(room.name).inc()
            raise HTTPException(
                503,
                "The server has no capacity for more uploads; nothing of this request was stored. "
                f"Try again in {RETRY_SECONDS} s.",
                headers=CLOSE | {"Retry-After": str(RETRY_SECONDS)},
            )


async def _next_piece(receive: Receive, received: int, began_at: float) -> Message:
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            message = await receive()
    except TimeoutError as error:
        raise _too_slow(f"nothing came for {SILENT_SECONDS:.0f} s") from error
    seconds = time.monotonic() - began_at
    if seconds > GRACE_SECONDS and received < seconds * SLOWEST_BYTES_PER_SECOND:
        raise _too_slow(f"{received} bytes came in {seconds:.0f} s")
    return message


def _too_slow(why: str) -> HTTPException:
    detail = f"The body of this request came too slowly ({why}); nothing was stored."
    return HTTPException(408, detail, headers=CLOSE)


MOST_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0


class BoundedHttpProtocol(HttpToolsProtocol):
    """A head has so many bytes, and comes within so long. A connection that says nothing ends."""

    def connection_made(self, transport: BaseTransport) -> None:
        """Wait for the first head."""
        super().connection_made(transport)  # type: ignore[arg-type]
        self._head_bytes: int | None = 0
        self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait no longer."""
        self._too_late.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        """A head begins."""
        super().on_message_begin()
        self._head_bytes = self._head_bytes or 0

    def on_headers_complete(self) -> None:
        """The head is whole."""
        self._head_bytes = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on. Bound a head that is not whole."""
        super().data_received(data)
        if self._head_bytes is None or self.transport.is_closing():
            self._too_late.cancel()
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response(f"The head of a request may have {MOST_HEAD_BYTES} bytes.")
        elif self._too_late.cancelled():
            self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)


REQUESTER = "finishline.requester"
WORDS = {
    "reads": "read requests",
    "writes": "writing requests",
    "worker_posts": "posts of workers",
}
# A full count starts anew: so many addresses at once are a crowd, which the proxy in front limits.
# The storage looks at every key a hundred times a second, so there are few.
MOST_KEYS = 5000
MOST_KNOWN = 20_000

SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Probes of monitoring, and files served from memory under an address of their own.
FREE = frozenset({"/healthz", "/readyz", "/metrics", "/favicon.ico", "/robots.txt"})
FREE_UNDER = ("/static/", "/docs-assets/")
WORKER_POSTS = frozenset({"/api/v1/workers/hello", "/api/v1/workers/probes"})
WORKERS_UNDER, WAIT_ENDS = "/api/v1/workers/", "/next"
WORKER_UNDER = "/api/v1/attempts/"
JOIN = "/join/"
BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class Requester:
    """Sender of a request: the key of its counts, and the role of its secret if that is known.

    The key is the account of a good secret, of whichever token, or the token of a worker: one
    account may have one for each of many machines. Else it is the address. So neither a made-up
    token nor a new one of one's own brings a fresh limit.
    """

    key: str
    role: str | None = None


def sender_of(scope: Scope) -> Requester:
    """The sender of a request with no good secret: its address."""
    client = scope.get("client")
    return Requester(f"address:{network_of(client[0])}" if client else "local")


def secret_of(scope: Scope) -> str:
    """The SHA-256 of the secret of a request, "" if it has none."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == BEARER:
            return hashlib.sha256(value[7:].strip()).hexdigest()
    key = session_key(scope)
    return "" if key is None else hashlib.sha256(str(key).encode()).hexdigest()


class Rates:
    """Limits by name. A window begins with the first request of a key."""

    def __init__(self, settings: Settings) -> None:
        self.items = {name: parse(getattr(settings, f"rate_{name}")) for name in WORDS}
        self._storage = MemoryStorage()
        self._windows = FixedWindowRateLimiter(self._storage)

    def wait_seconds(self, name: str, key: str) -> int:
        """Count a request. Seconds until the next window where a limit is used up, else 0."""
        if len(self._storage.storage) >= MOST_KEYS:
            self._storage.reset()
        if self._windows.hit(self.items[name], name, key):
            return 0
        stats = self._windows.get_window_stats(self.items[name], name, key)
        return max(1, math.ceil(stats.reset_time - time.time()))


def limit_of(scope: Scope, role: str | None) -> str | None:
    """Name of the limit for a request, by its address and method. None if there is none."""
    if is_worker_post(scope):
        return "worker_posts"
    if is_free(scope):
        return None
    if scope["method"] in SAFE or str(scope["path"]).startswith(JOIN):
        # A class joins from one address within a minute. Unknown links are throttled elsewhere.
        return "reads"
    # An organiser's import is many writes.
    return None if role in ORGANISERS else "writes"


def is_free(scope: Scope) -> bool:
    """Whether a request is answered without limits."""
    path: str = scope["path"]
    return scope["method"] in SAFE and (path in FREE or path.startswith(FREE_UNDER))


def is_worker_post(scope: Scope) -> bool:
    """Whether a request is a post of a worker while it trains."""
    path: str = scope["path"]
    is_under = path in WORKER_POSTS or path.startswith(WORKER_UNDER)
    return scope["method"] not in SAFE and (is_under or is_wait_for_work(scope))


def is_wait_for_work(scope: Scope) -> bool:
    """Whether a request waits until there is work for a worker."""
    path: str = scope["path"]
    return path.startswith(WORKERS_UNDER) and path.endswith(WAIT_ENDS)


class RateLimiting:
    """Count each request against its limit, and learn from responses which secrets are good.

    A secret is a bearer token, else the content of a cookie that this server signed. The latest
    good ones are known by their hashes.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: RequestMetrics) -> None:
        self._app = app
        self._rates = Rates(settings)
        self._metrics = metrics
        self._enforced = settings.rate_limits
        self._known: dict[str, Requester] = {}
        for name in WORDS:
            metrics.limited.labels(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_free(scope):
            await self._app(scope, receive, send)
            return
        digest = secret_of(scope)
        requester = scope[REQUESTER] = self._known.get(digest) or sender_of(scope)
        name = limit_of(scope, requester.role)
        counts = self._enforced and name is not None
        seconds = self._rates.wait_seconds(str(name), requester.key) if counts else 0
        if seconds:
            await refuse(scope, receive, send, self._refusal(str(name), seconds))
            return

        async def learn(message: Message) -> None:
            if message["type"] == "http.response.start":
                proved, status = current().signed_in, message["status"]
                if proved is not None:  # A request may carry another secret beside this one.
                    self._note(proved.secret_sha256, proved.role, proved.user_id)
                elif name == "worker_posts" and status < 300:
                    self._note(digest, "worker")
                elif status == 401:
                    self._known.pop(digest, None)
            await send(message)

        await self._app(scope, receive, learn if digest else send)

    def _note(self, digest: str, role: str, user_id: int | None = None) -> None:
        """Remember a secret that proved good. The token of an attempt has no user."""
        self._known.pop(digest, None)
        key = f"token:{digest[:32]}" if role == "worker" else f"account:{user_id}"
        self._known[digest] = Requester(key, role)
        if len(self._known) > MOST_KNOWN:
            del self._known[next(iter(self._known))]

    def _refusal(self, name: str, seconds: int) -> HTTPException:
        limit = self._rates.items[name]
        self._metrics.limited.labels(name).inc()
        detail = (
            f"Too many {WORDS[name]}: {limit.amount} per {limit.GRANULARITY.name} are allowed. "
            f"Nothing was changed; try again in {seconds} s."
        )
        headers = {
            "Retry-After": str(seconds),
            "RateLimit-Policy": f'"{name}";q={limit.amount};w={limit.get_expiry()}',
            "RateLimit": f'"{name}";r=0;t={seconds}',
            "Cache-Control": "no-store",
        }
        return HTTPException(429, detail, headers)


MOST_WAITING = 64
# A class opens one link in the same instant, and a lost form has to be typed again.
MOST_PATIENT, JOIN_PATIENCE, BODY_PATIENCE = 1000, 60, 10
# Beside all others. A worker gives up on an answer after five seconds.
WORKER_SLOTS, WORKER_WAIT_SECONDS = 8, 4.0
# Of one reader, who may be a class behind one address.
MOST_TURNS, TURN_SECONDS = 100, 30.0
BUSY_SECONDS = 2
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
        self._posts = Slots(WORKER_SLOTS)
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
        detail = f"{why}. Nothing was changed; try again in {BUSY_SECONDS} s."
        headers = {"Retry-After": str(BUSY_SECONDS), "Cache-Control": "no-store"}
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
