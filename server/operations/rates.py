"""Rate limits: so many requests in a while for each account, or else for each address.

Each server process counts for itself. A crowd is for the proxy in front to limit.
"""

import hashlib
import math
import time
from dataclasses import dataclass

from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import FixedWindowRateLimiter
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.base.error_answers import refuse
from server.base.request_context import RequestMetrics, current
from server.base.settings import Settings
from server.people.accounts import ORGANISERS
from server.people.callers import network_of, session_key

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
