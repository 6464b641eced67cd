"""The request under way, as every log line of it names it."""

import hashlib
import os
import re
from contextvars import ContextVar
from dataclasses import dataclass, field
from datetime import UTC, datetime

from starlette.types import Scope

REQUEST_ID = b"x-request-id"
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
    """A request's id, and facts noted about it on the way; shared by all threads that serve it.

    Ids in the address are read from the scope, because the router fills it in later.
    """

    request_id: str
    scope: Scope
    signed_in: SignedIn | None = None
    # The moment at which its body was read. From then on it is answered, whoever goes away.
    read_at: datetime | None = None
    # Whether the log has the traceback of this request's failure.
    is_told: bool = False
    noted: dict[str, str | int] = field(default_factory=dict)

    def fields(self) -> dict[str, str | int]:
        """Fields of a log line of this request. Text of the address is taken in a safe shape."""
        found: dict[str, str | int] = {"request_id": self.request_id}
        parameters = self.scope.get("path_params") or {}
        for name in ID_PARAMETERS:
            value = parameters.get(name)
            if isinstance(value, str) and SAFE_ID.fullmatch(value):
                found[name] = value
        return found | self.noted


CURRENT: ContextVar[RequestContext | None] = ContextVar("request", default=None)


def begin_request(scope: Scope) -> RequestContext:
    """Make a request the one under way.

    A server runs each request in a context of its own, so nothing is undone at its end: a
    line that the last resort logs about a failed one carries its id too.
    """
    context = RequestContext(_sent_id(scope) or os.urandom(8).hex(), scope)
    CURRENT.set(context)
    return context


def note(**ids: str | int) -> None:
    """Add ids to every later log line of the request under way; outside of one nothing happens."""
    context = CURRENT.get()
    if context is not None:
        context.noted.update(ids)


def note_signed_in(secret: str, role: str, user_id: int) -> None:
    """A secret that the request under way carries is good, for this role and user."""
    context = CURRENT.get()
    if context is not None:
        digest = hashlib.sha256(secret.encode()).hexdigest()
        context.signed_in = SignedIn(digest, role, user_id)


def note_read() -> None:
    """The whole body of the request under way is read."""
    context = CURRENT.get()
    if context is not None:
        context.read_at = datetime.now(UTC)


def moment_of_reading() -> datetime:
    """The moment at which it was, however long the request has waited for its turn since."""
    context = CURRENT.get()
    known = None if context is None else context.read_at
    return known or datetime.now(UTC)


def note_told() -> None:
    """Note that the log has the traceback of the failure of the request under way."""
    context = CURRENT.get()
    if context is not None:
        context.is_told = True


def is_told() -> bool:
    """Whether the log has it already."""
    context = CURRENT.get()
    return context is not None and context.is_told


def signed_in() -> SignedIn | None:
    """Which secret of the request under way proved good, if any."""
    context = CURRENT.get()
    return None if context is None else context.signed_in


def current_request_id() -> str | None:
    """The id of the request under way, None outside of one."""
    context = CURRENT.get()
    return None if context is None else context.request_id


def _sent_id(scope: Scope) -> str | None:
    """The id that a proxy or a client gave the request, if it is one that may stand in a log."""
    for name, value in scope["headers"]:
        if name == REQUEST_ID:
            text: str = value.decode("latin-1")
            return text if SAFE_ID.fullmatch(text) else None
    return None
