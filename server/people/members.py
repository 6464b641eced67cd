"""A server that members alone read."""

from fastapi import Request
from starlette.concurrency import run_in_threadpool
from starlette.types import ASGIApp, Receive, Scope, Send

from server.base.errors import NotSignedInError
from server.base.services import Services
from server.people.accounts import find_holder
from server.people.signed_in import BEARER, SIGN_IN, sign_in_first, signed_in_or_none

OPEN = frozenset(
    {"/healthz", "/readyz", "/favicon.ico", "/robots.txt", "/.well-known/security.txt"}
)
# Signing in, joining and links in mails; a worker's lease is a secret of its own.
OPEN_UNDER = (f"{SIGN_IN}/", "/join/", "/mail/", "/static/", "/api/v1/attempts/")
METRICS = "/metrics"
# A stranger who asks for something else than a page gets no redirect.
NO_PAGE_UNDER = ("/api/", "/docs-assets/", METRICS)
NO_PAGE_ENDS = (".atom", ".csv", ".json", ".md", ".parquet", ".svg", ".toml", ".txt")
NO_PAGE_WITHIN = ("/charts/", "/docs/images/")


class Membership:
    """Refuse requests of strangers: members have a valid token or the cookie of a session.

    It stands inside the error handlers, which answer what it raises.
    """

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        metrics = {METRICS} if services.settings.metrics_token is not None else set()
        self._open = OPEN | metrics | {SIGN_IN}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not self._is_open(scope["path"]):
            await run_in_threadpool(require_member, Request(scope), self._services)
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(OPEN_UNDER)


def require_member(request: Request, services: Services) -> None:
    """Raise NotSignedInError, or a redirect to the sign-in, without a valid token or session."""
    sent = request.headers.get("authorization", "")
    if sent.lower().startswith(BEARER):
        with services.database.read_columns() as connection:
            find_holder(connection, sent[len(BEARER) :].strip())
    elif signed_in_or_none(request, services) is None:
        if is_page(request.url.path):
            raise sign_in_first(request)
        raise NotSignedInError(
            "Only members read this server: send the header 'Authorization: Bearer …' with your "
            "API token, or sign in at /console/sign-in."
        )


def is_page(path: str) -> bool:
    """Whether an address is a page's: a browser is redirected from it to the sign-in."""
    is_other = path.startswith(NO_PAGE_UNDER) or path.endswith(NO_PAGE_ENDS)
    return not is_other and not any(part in path for part in NO_PAGE_WITHIN)
