"""Rate limits: so many requests in a while for each account, or else for each address.

Each server process counts for itself. A crowd is for the proxy in front to limit.
"""

import asyncio
import hashlib
import math
import re
import time
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from urllib.parse import parse_qs

from limits import RateLimitItem, parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.database import OUTAGES
from server.base.error_answers import refuse
from server.base.errors import BusyError
from server.base.request_context import SignedIn, signed_in
from server.base.request_metrics import RequestMetrics
from server.base.settings import Settings
from server.people.accounts import ORGANISERS
from server.people.sessions import session_key
from server.people.sign_in_throttle import network_of

REQUESTER = "finishline.requester"
FAILED = "failed_sign_ins"
WORDS = {
    "reads": "read requests",
    "expensive_reads": "requests for exports, charts, comparisons and what-if boards",
    "writes": "writing requests",
    "organiser_writes": "writing requests",
    "worker_posts": "posts of workers",
    FAILED: "requests with an unknown token",
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
# Of one reader, who may be a class behind one address; then the reader is asked to wait.
MOST_WAITING, WAIT_SECONDS = 100, 30.0
BEARER = b"bearer "


@dataclass(frozen=True, slots=True)
class Requester:
    """Sender of a request: its address, and the SHA-256 of the secret it carries, if any.

    The secret is a bearer token, else the content of a cookie that this server signed. `role` and
    `user_id` are None until it is known to be good; the token of an attempt has no user.
    """

    address: str
    secret_sha256: str | None
    role: str | None
    user_id: int | None = None
    is_session: bool = False

    @property
    def key(self) -> str:
        """Key of the counts: the account of a good secret, of whichever token, else the address.

        A made-up token for each request, or a new one of one's own, brings no fresh limit.
        """
        return self.key_of_token if self.user_id is None else account_key(self.user_id)

    @property
    def key_of_token(self) -> str:
        """Key of the counts of workers: one account may have a token for each of many machines."""
        if self.role is None or self.secret_sha256 is None:
            return f"address:{self.address}"
        return f"token:{self.secret_sha256[:32]}"

    @property
    def is_unproven(self) -> bool:
        """Whether it carries a token that has not proved good. A signed cookie is no guess."""
        return self.secret_sha256 is not None and self.role is None and not self.is_session


def account_key(user_id: int) -> str:
    """Key of an account, whichever of its tokens a request carries."""
    return f"account:{user_id}"


class KnownSecrets:
    """Hashes of the secrets that proved good in this process, with role and user; the latest stay.

    It runs in the event loop alone, so it needs no lock.
    """

    def __init__(self, most: int = MOST_KNOWN) -> None:
        self._known: OrderedDict[str, tuple[str, int | None]] = OrderedDict()
        self._most = most

    def requester(self, scope: Scope) -> Requester:
        """Address and secret of a request."""
        token, key = _bearer_of(scope), session_key(scope)
        secret = str(key).encode() if token is None and key is not None else token
        client = scope.get("client")
        address = network_of(client[0]) if client else "local"
        if secret is None:
            return Requester(address, None, None)
        digest = hashlib.sha256(secret).hexdigest()
        role, user_id = self._known.get(digest, (None, None))
        return Requester(address, digest, role, user_id, is_session=token is None)

    def note(self, digest: str, role: str, user_id: int | None = None) -> None:
        """Remember a secret that proved good."""
        self._known[digest] = (role, user_id)
        self._known.move_to_end(digest)
        if len(self._known) > self._most:
            self._known.popitem(last=False)

    def forget(self, digest: str) -> None:
        """Forget a secret that was refused."""
        self._known.pop(digest, None)


class Rates:
    """Limits by name. A window begins with the first request of a key."""

    def __init__(self, items: Mapping[str, RateLimitItem]) -> None:
        self.items = items
        self._storage = MemoryStorage()
        self._windows = FixedWindowRateLimiter(self._storage)

    def wait_seconds(self, name: str, key: str, *, count: bool = True) -> int:
        """Seconds until the next window where a limit is used up, else 0; counts a hit."""
        if len(self._storage.storage) >= MOST_KEYS:
            self._storage.reset()
        item, look = self.items[name], self._windows.hit if count else self._windows.test
        if look(item, name, key):
            return 0
        left = self._windows.get_window_stats(item, name, key).reset_time - time.time()
        return max(1, math.ceil(left))


def rate_limits(settings: Settings) -> Rates:
    """The limits of the settings, such as "120/minute"."""
    return Rates({name: parse(getattr(settings, f"rate_{name}")) for name in WORDS})


def limit_of(scope: Scope, role: str | None) -> str | None:
    """Name of the limit for a request, by its address and method; None if it is free."""
    if is_worker_post(scope):
        return "worker_posts"
    # A class joins from one address within a minute. Unknown links are throttled by themselves.
    if scope["method"] not in SAFE and not is_join(scope):
        return "organiser_writes" if role in ORGANISERS else "writes"
    if is_free(scope):
        return None
    return "expensive_reads" if is_expensive(scope) else "reads"


def is_expensive(scope: Scope) -> bool:
    """Whether an address makes the server read, draw, compress or sign a lot."""
    path: str = scope["path"]
    if path.endswith(EXPENSIVE_ENDS) or EXPENSIVE_WITHIN in path:
        return True
    query = scope.get("query_string", b"")
    if not query or BOARD.fullmatch(path) is None:
        return False
    return not EXPENSIVE_PARAMETERS.isdisjoint(parse_qs(query.decode("latin-1")))


def is_join(scope: Scope) -> bool:
    """Whether a request opens or sends the form of a link to join."""
    return str(scope["path"]).startswith(JOIN)


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
    """Count each request against its limit, and learn from responses which tokens are good.

    Without `enforced` nothing is counted.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        rates: Rates,
        metrics: RequestMetrics,
        enforced: bool,
        find_signed_in: Callable[[str], SignedIn | None],
    ) -> None:
        self._app = app
        self._rates = rates
        self._metrics = metrics
        self._enforced = enforced
        self._find_signed_in = find_signed_in
        self._known = KnownSecrets()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or is_free(scope):
            await self._app(scope, receive, send)
            return
        requester = scope[REQUESTER] = self._known.requester(scope)
        name = limit_of(scope, requester.role) or "reads"
        used_up, seconds = await self._used_up(name, requester)
        if seconds:
            self._metrics.limited.labels(used_up).inc()
            await self._refuse(used_up, seconds, scope, receive, send)
        elif requester.secret_sha256 is None:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, self._learning(name, requester, send))

    async def _used_up(self, name: str, requester: Requester) -> tuple[str, int]:
        """The limit that refuses a request, and for how many seconds; 0 if none does."""
        if not self._enforced:
            return name, 0
        guessed = 0
        if requester.is_unproven:
            guessed = self._rates.wait_seconds(FAILED, requester.address, count=False)
        key = requester.key_of_token if name == "worker_posts" else requester.key
        seconds = self._rates.wait_seconds(name, key)
        if not guessed or requester.secret_sha256 is None:
            return name, seconds
        if not seconds:
            # Somebody at this address guesses; a token that is good is no guess.
            try:
                found = await run_in_threadpool(self._find_signed_in, requester.secret_sha256)
            except OUTAGES:  # The application looks for it too, and answers that it cannot.
                return name, 0
            if found is not None:
                self._known.note(found.secret_sha256, found.role, found.user_id)
                return name, 0
        return FAILED, guessed

    def _learning(self, name: str, requester: Requester, send: Send) -> Send:
        """Note from the response which secret of a request is good, if one is."""
        digest = requester.secret_sha256 or ""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                proved = signed_in()
                if proved is not None:  # A request may carry another secret beside this one.
                    self._known.note(proved.secret_sha256, proved.role, proved.user_id)
                elif name == "worker_posts" and status < 300:
                    self._known.note(digest, "worker")
                elif status == 401:
                    self._known.forget(digest)
                    self._rates.wait_seconds(FAILED, requester.address)
            await send(message)

        return noted

    async def _refuse(
        self, name: str, seconds: int, scope: Scope, receive: Receive, send: Send
    ) -> None:
        limit = self._rates.items[name]
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
        await refuse(scope, receive, send, 429, "Too many requests", detail, headers)


class OneAtATime:
    """Work on one expensive request of each requester at a time: the next one waits for it.

    A request that waits holds no thread and no slot. Bodies may come, and responses may be read, at
    the same time.
    """

    def __init__(self, app: ASGIApp, *, metrics: RequestMetrics) -> None:
        self._app = app
        self._metrics = metrics
        self._turns: dict[str, asyncio.Semaphore] = {}
        self._asked: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or REQUESTER not in scope or not is_one_at_a_time(scope):
            await self._app(scope, receive, send)
            return
        async with AsyncExitStack() as stack:

            async def receive_in_turn() -> Message:
                """Return a piece of the body, the last one when the turn has come."""
                message = await receive()
                is_whole = message["type"] == "http.request" and not message.get("more_body", False)
                if is_whole and not _is_organisers():
                    await stack.enter_async_context(self._turn(_key_of(scope)))
                return message

            async def send_after_turn(message: Message) -> None:
                """Send a piece of the response. The next request begins with its first one."""
                await stack.aclose()
                await send(message)

            if scope["method"] == "POST":
                await self._app(scope, receive_in_turn, send_after_turn)
                return
            try:
                await stack.enter_async_context(self._turn(_key_of(scope)))
            except BusyError as busy:
                headers = {"Retry-After": str(busy.retry_seconds), "Cache-Control": "no-store"}
                await refuse(scope, receive, send, busy.status, busy.title, busy.detail, headers)
                return
            await self._app(scope, receive, send_after_turn)

    @asynccontextmanager
    async def _turn(self, key: str) -> AsyncIterator[None]:
        """Wait for a requester's turn, and have it. Raises BusyError."""
        turn = self._turns.setdefault(key, asyncio.Semaphore())
        self._asked[key] += 1
        try:
            if self._asked[key] > MOST_WAITING or not await _takes(turn):
                self._metrics.shed.labels("expensive_reads").inc()
                raise BusyError(
                    f"Too many {WORDS['expensive_reads']}, or submissions, at once: the server "
                    "works on one of yours at a time. Nothing was changed; try again in "
                    f"{BusyError.retry_seconds} s."
                )
            try:
                yield
            finally:
                turn.release()
        finally:
            self._asked[key] -= 1
            if not self._asked[key]:
                del self._asked[key], self._turns[key]


def _is_organisers() -> bool:
    """Whether an organiser has signed in with the request. An import sends several at once."""
    proved = signed_in()
    return proved is not None and proved.role in ORGANISERS


def _key_of(scope: Scope) -> str:
    """Key of a requester: the account that the request has signed in with, if it has by now."""
    proved = signed_in()
    requester: Requester = scope[REQUESTER]
    return requester.key if proved is None else account_key(proved.user_id)


def is_one_at_a_time(scope: Scope) -> bool:
    """Whether the server works on one such request of a reader at a time."""
    if scope["method"] == "POST":
        return scope["path"] in EXPENSIVE_POSTS
    return scope["method"] in SAFE and is_expensive(scope)


async def _takes(turn: asyncio.Semaphore) -> bool:
    """Wait for the turn. Returns whether it came in time."""
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            return await turn.acquire()
    except TimeoutError:
        return False


def _bearer_of(scope: Scope) -> bytes | None:
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == BEARER:
            secret: bytes = value[7:].strip()
            return secret
    return None
