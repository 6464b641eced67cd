"""In front of the application: whoever sends more than the limits allow is told when to come again.

It lies behind the kept boards, which cost less than a look at a limit.
"""

from collections.abc import Callable

from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.limits.answers import refuse
from server.limits.kinds import Kind, kind_of
from server.limits.metrics import LimitMetrics
from server.limits.rates import FAILED, RateLimits, Refusal, bucket_of
from server.limits.requesters import KnownSecrets, Requester
from server.observability.context import signed_in

REQUESTER = "finishline.requester"
KIND = "finishline.kind"
WORDS = {
    "reads": "read requests",
    "expensive_reads": "requests for exports, charts and comparisons",
    "writes": "writing requests",
    "organiser_writes": "writing requests",
    "worker_posts": "posts of workers",
    FAILED: "requests with a token that is not known",
}


class RateLimiting:
    """Counts each request against its limit, and learns which tokens are good."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        limits: RateLimits,
        known: KnownSecrets,
        metrics: LimitMetrics,
        enforced: bool,
        find_role: Callable[[str], str | None],
    ) -> None:
        self._app = app
        self._find_role = find_role
        self._enforced = enforced
        self._limits = limits
        self._known = known
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        kind = scope[KIND] = kind_of(scope)
        if kind is Kind.FREE:
            await self._app(scope, receive, send)
            return
        requester = scope[REQUESTER] = self._known.requester(scope)
        refused = await self._refusal(kind, requester)
        if refused is not None:
            self._metrics.note_limited(refused.bucket)
            await _answer(refused, scope, receive, send)
        elif requester.secret_sha256 is None:
            await self._app(scope, receive, send)
        else:
            await self._app(scope, receive, self._learning(kind, requester, send))

    async def _refusal(self, kind: Kind, requester: Requester) -> Refusal | None:
        if not self._enforced:
            return None
        guessed = None
        if requester.is_unproven:
            guessed = await self._limits.look(FAILED, requester.address)
        refused = await self._limits.hit(bucket_of(kind, requester), requester.key)
        if guessed is None or refused is not None or requester.secret_sha256 is None:
            return guessed or refused
        # Somebody at this address guesses; a token that is good is no guess.
        role = await run_in_threadpool(self._find_role, requester.secret_sha256)
        if role is None:
            return guessed
        self._known.note(requester.secret_sha256, role)
        return None

    def _learning(self, kind: Kind, requester: Requester, send: Send) -> Send:
        """Note from the answer which secret of a request is good, if one is."""
        digest = requester.secret_sha256 or ""

        async def noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                proved = signed_in()
                if proved is not None:  # A request may carry another secret beside this one.
                    self._known.note(proved.secret_sha256, proved.role)
                elif kind is Kind.WORKER and status < 300:
                    self._known.note(digest, "worker")
                elif status == 401:
                    self._known.forget(digest)
                    await self._limits.hit(FAILED, requester.address)
            await send(message)

        return noted


async def _answer(refused: Refusal, scope: Scope, receive: Receive, send: Send) -> None:
    seconds = refused.retry_seconds
    detail = (
        f"Too many {WORDS[refused.bucket]}: {refused.limit} are allowed. "
        f"Nothing was done; try again in {seconds} s."
    )
    headers = {
        "Retry-After": str(seconds),
        "RateLimit-Policy": refused.policy,
        "RateLimit": refused.state,
        "Cache-Control": "no-store",
    }
    await refuse(scope, receive, send, status=429, detail=detail, headers=headers)
