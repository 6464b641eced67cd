"""The request under way, as every log line of it names it."""

import hashlib
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime

from asgi_correlation_id import correlation_id
from starlette.types import ASGIApp, Receive, Scope, Send

SAFE_ID = re.compile(r"[A-Za-z0-9._-]{1,128}")
ID_PARAMETERS = ("attempt_id", "verification_id", "submission_id")


@dataclass(frozen=True)
class SignedIn:
    """The SHA-256 of a secret that proved good, with its role and the user that has it."""

    secret_sha256: str
    role: str
    user_id: int


@dataclass
class RequestContext:
    """Facts noted about a request on the way; shared by all threads that serve it.

    Ids in the address are read from the scope, because the router fills it in later.
    """

    scope: Scope
    signed_in: SignedIn | None = None
    # The moment at which its body was read. From then on it is answered, whoever goes away.
    read_at: datetime | None = None
    # Whether the log has the traceback of this request's failure.
    is_told: bool = False
    noted: dict[str, str | int] = field(default_factory=dict)

    def fields(self) -> dict[str, str | int]:
        """Fields of a log line of this request. Text of the address is taken in a safe shape."""
        found: dict[str, str | int] = {"request_id": correlation_id.get() or ""}
        parameters = self.scope.get("path_params") or {}
        for name in ID_PARAMETERS:
            value = parameters.get(name)
            if isinstance(value, str) and SAFE_ID.fullmatch(value):
                found[name] = value
        return found | self.noted


CURRENT: ContextVar[RequestContext | None] = ContextVar("request", default=None)


class InContext:
    """Makes each request the one under way.

    A server runs each request in a context of its own, so nothing is undone at its end: a
    line that the last resort logs about a failed one carries its facts too.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            CURRENT.set(RequestContext(scope))
        await self._app(scope, receive, send)


def current() -> RequestContext:
    """The request under way; outside of one, a context that nobody reads."""
    return CURRENT.get() or RequestContext({})


def note(**ids: str | int) -> None:
    """Add ids to every later log line of the request under way; outside of one nothing happens."""
    current().noted.update(ids)


def note_signed_in(secret: str, role: str, user_id: int) -> None:
    """A secret that the request under way carries is good, for this role and user."""
    digest = hashlib.sha256(secret.encode()).hexdigest()
    current().signed_in = SignedIn(digest, role, user_id)


def note_read() -> None:
    """The whole body of the request under way is read."""
    current().read_at = datetime.now(UTC)


def moment_of_reading() -> datetime:
    """The moment at which it was, however long the request has waited for its turn since."""
    return current().read_at or datetime.now(UTC)
