"""Limit requests: their rate, their size and speed, and how many run at once.

uvicorn reads a head of any size for any time. Middleware sees a request only with its whole head,
so `uvicorn --http` takes the class below. Each server process counts for itself. The proxy in front
limits crowds.
"""

import asyncio
import hashlib
import math
import re
import time
from asyncio import BaseTransport
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
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

from server.base.error_answers import refuse
from server.base.http import EVENT_STREAM, RequestMetrics, current, has_body, note_read
from server.base.settings import MIB, Settings
from server.people.accounts import ORGANISERS
from server.people.callers import network_of, session_key

MOST_HEAD_BYTES = 64 * 1024
HEAD_SECONDS = 30.0


class BoundedHttpProtocol(HttpToolsProtocol):
    """Bounds the bytes and seconds of a head, and closes a silent connection."""

    def connection_made(self, transport: BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        self._head_bytes: int | None = 0
        self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._too_late.cancel()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._head_bytes = self._head_bytes or 0

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        """Read on, and bound a head that is not whole."""
        super().data_received(data)
        if self._head_bytes is None or self.transport.is_closing():
            self._too_late.cancel()
            return
        self._head_bytes += len(data)
        if self._head_bytes > MOST_HEAD_BYTES:
            self.send_400_response(f"The head of a request may have {MOST_HEAD_BYTES} bytes.")
        elif self._too_late.cancelled():
            self._too_late = self.loop.call_later(HEAD_SECONDS, self.transport.close)


SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
# Probes of monitoring, and files served from memory.
FREE = re.compile(r"/(healthz|readyz|metrics|favicon\.ico|robots\.txt|(static|docs-assets)/.*)")
# Posts of a worker while it trains, and its wait until there is work.
WORKER_POST = re.compile(r"/api/v1/(workers/(hello|probes|.*/next)|attempts/.*)")
WAIT_ENDS = "/next"
# A class joins from one address within a minute. Unknown links are throttled elsewhere.
JOIN = "/join/"
UPLOADS = frozenset({"/submit", "/api/v1/submissions", "/api/v1/benchmarks"})
# Reads of many rows, and reads that draw, compress or sign.
EXPENSIVE = re.compile(
    r"(/proof|/runs\.json|\.csv|\.parquet|/convergence|/compare|/preview|/log\.json|/ideas)\Z"
    r"|/charts/"
)
# Of a board: another clock, target or price. It is made anew from every curve.
BOARD = re.compile(r"/(?:api/v1/leaderboards|benchmarks)/[^/]+")
EXPENSIVE_PARAMETERS = frozenset({"clock", "target", "price", "prices_on"})
# Submissions, dry runs too: logs are scored and code is parsed.
EXPENSIVE_POSTS = frozenset({"/submit", "/submit/send", "/api/v1/submissions"})


def is_free(scope: Scope) -> bool:
    """Check whether a request is free of limits."""
    return scope["method"] in SAFE and FREE.fullmatch(scope["path"]) is not None


def is_worker_post(scope: Scope) -> bool:
    """Check whether a request is a post of a worker while it trains."""
    return scope["method"] not in SAFE and WORKER_POST.fullmatch(scope["path"]) is not None


def rate_of(scope: Scope, role: str | None) -> str | None:
    """Name the rate of a request, by address and method."""
    if is_worker_post(scope):
        return "worker_posts"
    if scope["method"] in SAFE or scope["path"].startswith(JOIN):
        return "reads"
    return None if role in ORGANISERS else "writes"  # An organiser's import is many writes.


def is_one_at_a_time(scope: Scope, role: str | None) -> bool:
    """Check whether a reader gets one such request at a time. Organisers' imports send several."""
    path: str = scope["path"]
    if scope["method"] not in SAFE:
        return path in EXPENSIVE_POSTS and role not in ORGANISERS
    if EXPENSIVE.search(path) is not None:
        return True
    query = scope.get("query_string", b"")
    if not query or BOARD.fullmatch(path) is None:
        return False
    return not EXPENSIVE_PARAMETERS.isdisjoint(parse_qs(query.decode("latin-1")))


@dataclass(frozen=True, slots=True)
class Requester:
    """Sender of a request: the key of its counts, and the role of its secret if known.

    The key is the account of a good secret, or the token of a worker, because one account may have
    many workers. Otherwise it is the address. So a made-up or new token brings no fresh limit.
    """

    key: str
    role: str | None = None


def secret_of(scope: Scope) -> str:
    """Hash the secret of a request: a bearer token, or a signed cookie. "" without a secret."""
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == b"bearer ":
            return hashlib.sha256(value[7:].strip()).hexdigest()
    key = session_key(scope)
    return "" if key is None else hashlib.sha256(str(key).encode()).hexdigest()


@dataclass
class Room:
    """Bodies of one kind: the largest, and the most bytes of all together."""

    name: str
    most_each: int
    most_together: int
    held: int = 0


class Slots:
    """Slots for requests at once, and a bound on waiting ones."""

    def __init__(self, most: int) -> None:
        self.waiting = 0
        self._free = asyncio.Semaphore(most)

    async def take(self, held: ExitStack, *, seconds: float, most_waiting: int) -> None:
        """Take a slot until `held` is closed. Raises TimeoutError if none is free in time."""
        if self._free.locked() and self.waiting >= most_waiting:
            raise TimeoutError
        self.waiting += 1
        try:
            async with asyncio.timeout(seconds):
                await self._free.acquire()
        finally:
            self.waiting -= 1
        held.callback(self._give_back)  # The method keeps `self` in memory while a slot is held.

    def _give_back(self) -> None:
        self._free.release()


SILENT_SECONDS = 20.0
GRACE_SECONDS = 30.0
SLOWEST_BYTES_PER_SECOND = 16 * 1024
UPLOAD_RETRY_SECONDS, BUSY_SECONDS = 5, 2
CLOSE = {"Connection": "close"}
RATES = {
    "reads": "read requests",
    "writes": "writing requests",
    "worker_posts": "posts of workers",
}
# A full count starts anew: the proxy in front limits such a crowd. The storage looks at every key a
# hundred times a second, so there are few.
MOST_KEYS = 5000
MOST_KNOWN = 20_000
MOST_WAITING = 64
# A class opens one link in the same instant, and a lost form has to be typed again.
MOST_PATIENT, JOIN_PATIENCE, BODY_PATIENCE = 1000, 60, 10
# Only for workers, which give up on an answer after five seconds.
WORKER_SLOTS, WORKER_WAIT_SECONDS = 8, 4.0
# Of one reader, who may be a class behind one address.
MOST_TURNS, TURN_SECONDS = 100, 30.0
NO_CAPACITY = {
    "bodies": (503, "The server has no capacity for more uploads"),
    "upload_bytes": (503, "The server has no capacity for more uploads"),
    "requests": (503, "The server has no capacity for more requests"),
    "event_streams": (503, "The server has no capacity for more live streams, in all or for you"),
    "expensive_reads": (
        429,
        "Too many requests for exports, charts, comparisons and what-if boards, or submissions, "
        "at once: the server works on one of yours at a time",
    ),
}


def too_much(
    status: int, why: str, seconds: int, headers: Mapping[str, str] | None = None
) -> HTTPException:
    """Make a refusal that says when to come again."""
    detail = f"{why}. Nothing was changed; try again in {seconds} s."
    again = {"Retry-After": str(seconds), "Cache-Control": "no-store"}
    return HTTPException(status, detail, {**again, **(headers or {})})


class Limits:
    """Lets in the requests with room on the server, and tells the rest when to come again.

    A request counts for the rate of its sender. Its body is uncompressed, small and fast enough,
    and fits with all other bodies: uploads are on disk, every other body is in memory. With its
    body whole, it waits for a slot, after its sender's turn if it is expensive, and holds the slot
    until its response begins.
    """

    def __init__(self, app: ASGIApp, *, settings: Settings, metrics: RequestMetrics) -> None:
        self._app = app
        self._settings = settings
        self._metrics = metrics
        self.rates = {name: parse(getattr(settings, f"rate_{name}")) for name in RATES}
        self.counts = MemoryStorage()
        self._windows = FixedWindowRateLimiter(self.counts)
        # The latest good secrets, by their hashes.
        self.known: dict[str, Requester] = {}
        usual = settings.max_json_bytes, settings.max_body_bytes_in_flight
        uploads = settings.max_request_bytes, settings.max_upload_bytes_in_flight
        self.bodies, self.uploads = Room("bodies", *usual), Room("upload_bytes", *uploads)
        self.slots = Slots(settings.max_requests_in_work)
        self._posts = Slots(WORKER_SLOTS)
        self._turns: WeakValueDictionary[str, Slots] = WeakValueDictionary()
        self.streams: Counter[str] = Counter()  # Open live streams, by requester.
        metrics.gauge(
            "requests_waiting", "Requests that wait for a slot.", lambda: self.slots.waiting
        )
        metrics.gauge("event_streams", "Live streams open.", lambda: self.streams.total())
        for name in RATES:  # Each series exists from the start, and so does its rate.
            metrics.limited.labels(name)
        for name in NO_CAPACITY:
            metrics.shed.labels(name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_free(scope):
            await self._app(scope, receive, send)
            return
        digest = secret_of(scope)
        sender = self.known.get(digest) or _sender_without_secret(scope)
        rate = rate_of(scope, sender.role)
        room = self.uploads if scope["path"] in UPLOADS else self.bodies
        comes = has_body(scope) and scope["method"] not in SAFE
        received, began_at, is_whole = 0, 0.0, False

        async def receive_piece() -> Message:
            """Return the next piece. FastAPI lets only HTTPException through: 408, 413 or 503."""
            nonlocal received, began_at, is_whole
            if is_whole:
                return await receive()
            began_at = began_at or time.monotonic()
            message = await _next_piece(receive, received, began_at)
            count = len(message.get("body", b""))
            self._check_room(room, received + count, room.held + count)
            received += count
            room.held += count
            is_whole = not message.get("more_body", False)
            if is_whole:
                note_read()
                if comes:
                    await self._begin(scope, sender, slot)
            return message

        async def send_part(message: Message) -> None:
            slot.close()
            if digest and message["type"] == "http.response.start":
                self._learn(digest, message["status"], is_worker=rate == "worker_posts")
            await send(message)

        with ExitStack() as whole, ExitStack() as slot:
            try:
                self._count(rate, sender.key)
                self._check_head(room, Headers(scope=scope))
                if scope["path"].endswith(EVENT_STREAM) and not comes:
                    self._open_stream(whole, sender.key)
                if not comes:
                    await self._begin(scope, sender, slot)
            except HTTPException as error:
                await refuse(scope, receive, send, error)
                return
            try:
                await self._app(scope, receive_piece, send_part)
            finally:
                room.held -= received

    def _count(self, rate: str | None, key: str) -> None:
        if rate is None or not self._settings.rate_limits:
            return
        if len(self.counts.storage) >= MOST_KEYS:
            self.counts.reset()
        limit = self.rates[rate]
        if self._windows.hit(limit, rate, key):
            return
        self._metrics.limited.labels(rate).inc()
        reset_at = self._windows.get_window_stats(limit, rate, key).reset_time
        seconds = max(1, math.ceil(reset_at - time.time()))
        each = f"{limit.amount} per {limit.GRANULARITY.name} are allowed"
        policy = f'"{rate}";q={limit.amount};w={limit.get_expiry()}'
        headers = {"RateLimit-Policy": policy, "RateLimit": f'"{rate}";r=0;t={seconds}'}
        raise too_much(429, f"Too many {RATES[rate]}: {each}", seconds, headers)

    def _learn(self, digest: str, status: int, *, is_worker: bool) -> None:
        proved = current().proved
        if proved is not None:  # A request may carry a second secret.
            self._note(*proved)
        elif is_worker and status < 300:
            self._note(digest, "worker")
        elif status == 401:
            self.known.pop(digest, None)

    def _note(self, digest: str, role: str, user_id: int | None = None) -> None:
        """Remember a good secret. The token of an attempt has no user."""
        self.known.pop(digest, None)
        key = f"token:{digest[:32]}" if role == "worker" else f"account:{user_id}"
        self.known[digest] = Requester(key, role)
        if len(self.known) > MOST_KNOWN:
            del self.known[next(iter(self.known))]

    def _check_head(self, room: Room, headers: Headers) -> None:
        if headers.get("content-encoding", "identity") != "identity":
            # A small body could become a large one.
            raise HTTPException(
                415, "Compressed requests are not supported; send the body uncompressed."
            )
        stated = headers.get("content-length", "0")
        size = int(stated) if stated.isascii() and stated.isdigit() else 0
        self._check_room(room, size, room.held + size)

    def _check_room(self, room: Room, size: int, together: int) -> None:
        if size > room.most_each:
            most = f"{room.most_each / MIB:g} MiB"
            raise HTTPException(413, f"A request to this address may have at most {most}.")
        if together > room.most_together:
            raise self._full(room.name, UPLOAD_RETRY_SECONDS, CLOSE)

    def _full(
        self, what: str, seconds: int = BUSY_SECONDS, headers: Mapping[str, str] | None = None
    ) -> HTTPException:
        self._metrics.shed.labels(what).inc()
        return too_much(*NO_CAPACITY[what], seconds, headers)

    async def _begin(self, scope: Scope, sender: Requester, slot: ExitStack) -> None:
        """Take a slot, after the sender's turn if the request is expensive."""
        is_post = sender.role == "worker" and is_worker_post(scope)
        if is_post and scope["path"].endswith(WAIT_ENDS):
            return  # It costs no work. The rate of a worker's posts bounds how many wait.
        what = "expensive_reads"
        try:
            if is_one_at_a_time(scope, sender.role):
                turn = self._turns.setdefault(sender.key, Slots(1))
                await turn.take(slot, seconds=TURN_SECONDS, most_waiting=MOST_TURNS - 1)
            what, slots = "requests", self.slots
            seconds, most = self._settings.max_wait_seconds, MOST_WAITING
            if is_post:
                # A report is compared with the times of its worker's posts, so one that waits
                # behind readers would fail the verification.
                slots, seconds = self._posts, WORKER_WAIT_SECONDS
            elif scope["path"].startswith(JOIN):
                seconds, most = seconds * JOIN_PATIENCE, MOST_PATIENT
            elif scope["method"] not in SAFE and has_body(scope):
                seconds, most = seconds * BODY_PATIENCE, MOST_PATIENT
            await slots.take(slot, seconds=seconds, most_waiting=most)
        except TimeoutError:
            raise self._full(what) from None

    def _open_stream(self, whole: ExitStack, key: str) -> None:
        most, most_each = self._settings.max_event_streams, self._settings.max_event_streams_each
        if self.streams.total() >= most or self.streams[key] >= most_each:
            raise self._full("event_streams")
        self.streams[key] += 1
        whole.callback(self._close_stream, key)

    def _close_stream(self, key: str) -> None:
        self.streams -= Counter([key])


def _sender_without_secret(scope: Scope) -> Requester:
    client = scope.get("client")
    return Requester(f"address:{network_of(client[0])}" if client else "local")


async def _next_piece(receive: Receive, received: int, began_at: float) -> Message:
    why = ""
    try:
        async with asyncio.timeout(SILENT_SECONDS):
            message = await receive()
    except TimeoutError:
        why = f"nothing came for {SILENT_SECONDS:.0f} s"
    seconds = time.monotonic() - began_at
    if seconds > GRACE_SECONDS and received < seconds * SLOWEST_BYTES_PER_SECOND:
        why = why or f"{received} bytes came in {seconds:.0f} s"
    if why:
        detail = f"The body of this request came too slowly ({why}); nothing was stored."
        raise HTTPException(408, detail, headers=CLOSE)
    return message
