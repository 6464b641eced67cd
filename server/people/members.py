"""Reads for members alone: of a whole server, or of some benchmarks."""

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.types import Scope

from server.base.errors import NotAllowedError, NotSignedInError
from server.base.services import Services
from server.base.viewer import close_benchmarks
from server.people.accounts import find_holder
from server.people.dependencies import READING, caller_of
from server.people.signed_in import BEARER, SIGN_IN, sign_in_first, signed_in_or_none

OPEN = frozenset(
    {"/healthz", "/readyz", "/favicon.ico", "/robots.txt", "/.well-known/security.txt"}
)
# Signing in, joining and links in mails; a worker's lease is a secret of its own.
OPEN_UNDER = (f"{SIGN_IN}/", "/join/", "/mail/", "/static/", "/api/v1/attempts/")
METRICS = "/metrics"
SECRETS = (b"authorization", b"cookie")
# A token tells whose it is whatever its scopes.
OWN = frozenset({"/api/v1/me", "/api/v1/me/quota"})
# A stranger who asks for something else than a page gets no redirect.
NO_PAGE_UNDER = ("/api/", "/docs-assets/", METRICS)
NO_PAGE_ENDS = (".atom", ".csv", ".json", ".md", ".parquet", ".svg", ".toml", ".txt")
NO_PAGE_WITHIN = ("/charts/", "/docs/images/")


class Membership:
    """Tell members, who have a valid token or the cookie of a session, from strangers.

    Where members alone read a server, a stranger's request is refused; else it finds no benchmark
    that only members see.
    """

    def __init__(self, services: Services) -> None:
        self._services = services
        self._refuses = services.settings.reads == "members"
        metrics = {METRICS} if services.settings.metrics_token is not None else set()
        self._open = OPEN | metrics | {SIGN_IN}

    async def admit(self, scope: Scope) -> None:
        """Raise NotSignedInError, NotAllowedError, or a redirect; or hide benchmarks."""
        if self._is_open(scope["path"]):
            return  # They ask for a secret of their own, or tell of no benchmark.
        if self._refuses:
            await run_in_threadpool(require_member, Request(scope), self._services)
        elif not await self._is_members(scope):
            close_benchmarks(self._services.benchmarks.for_members)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(OPEN_UNDER)

    async def _is_members(self, scope: Scope) -> bool:
        headers = {name for name, _ in scope["headers"]}
        if headers.isdisjoint(SECRETS):
            return False
        return await run_in_threadpool(is_member, Request(scope), self._services)


def is_member(request: Request, services: Services) -> bool:
    """Whether a request reads as a member."""
    try:
        require_member(request, services)
    except (NotSignedInError, NotAllowedError, HTTPException):
        return False
    return True


def require_member(request: Request, services: Services) -> None:
    """Raise NotSignedInError, or a redirect to the sign-in, without a valid token or session.

    Raises NotAllowedError for a read with a token that has not the scope `read`.
    """
    sent = request.headers.get("authorization", "")
    if sent.lower().startswith(BEARER):
        _require_reading(request, services, sent[len(BEARER) :].strip())
    elif signed_in_or_none(request, services) is None:
        if is_page(request.url.path):
            raise sign_in_first(request)
        raise NotSignedInError(
            "Only members read this server: send the header 'Authorization: Bearer …' with your "
            "API token, or sign in at /console/sign-in."
        )


def _require_reading(request: Request, services: Services, secret: str) -> None:
    with services.database.read_columns() as connection:
        caller = caller_of(find_holder(connection, secret))
    may = caller.may("read") or caller.role == "worker" or request.url.path in OWN
    if request.method in READING and not may:
        has = ", ".join(sorted(caller.scopes)) or "none"
        raise NotAllowedError(f"This needs a token with the scope read; yours has {has}.")


def is_page(path: str) -> bool:
    """Whether an address is a page's: a browser is redirected from it to the sign-in."""
    is_other = path.startswith(NO_PAGE_UNDER) or path.endswith(NO_PAGE_ENDS)
    return not is_other and not any(part in path for part in NO_PAGE_WITHIN)
