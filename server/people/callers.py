"""Who sends a request: by a token, or by a browser's session in a signed cookie."""

import ipaddress
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from math import ceil
from time import time
from typing import Annotated
from urllib.parse import quote, urlencode, urlsplit

from fastapi import Depends, Request, Response
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer
from limits import parse
from limits.storage import MemoryStorage
from limits.strategies import MovingWindowRateLimiter
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from finishline.rules.text import count_text
from server.base.database import Services, ServicesDep, services_of, utc_now
from server.base.errors import NotAllowedError, NotSignedInError, UsedUpError
from server.base.http import note_signed_in
from server.base.models import Token
from server.base.visibility import ANYBODY, ORGANISER, Viewer
from server.people.accounts import (
    MAY,
    ORGANISERS,
    SUBMITTERS,
    find_session_token,
    find_token,
    note_use,
)

bearer = HTTPBearer(auto_error=False, description="An API token: `Bearer fl_...`")
BearerDep = Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)]


@dataclass(frozen=True)
class Caller:
    """The authenticated user of a request. The source is "console", None for the API."""

    user_id: int
    token_id: int
    name: str
    role: str
    source: str | None = None
    organisation_id: int | None = None

    @property
    def is_admin(self) -> bool:
        """Whether their token is an admin's."""
        return self.role == "admin"

    @property
    def is_organiser(self) -> bool:
        """Whether their token is an organiser's or an admin's."""
        return self.role in ORGANISERS

    @property
    def is_submitter(self) -> bool:
        """Whether their token may send submissions: any but a worker's."""
        return self.role in SUBMITTERS


def caller_of(token: Token, *, source: str | None = None) -> Caller:
    """Make the Caller behind a token."""
    return Caller(
        user_id=token.user_id,
        token_id=token.id,
        name=token.user.name,
        role=token.role,
        source=source,
        organisation_id=token.user.organisation_id,
    )


async def bearer_secret(credentials: BearerDep) -> str:
    """Return the bearer token of the request. Raises NotSignedInError."""
    if credentials is None:
        raise NotSignedInError(
            "This needs an API token: send the header 'Authorization: Bearer …'."
        )
    return credentials.credentials


SecretDep = Annotated[str, Depends(bearer_secret)]


def get_caller(services: ServicesDep, secret: SecretDep) -> Caller:
    """Find the caller of the request's bearer token. Raises NotSignedInError."""
    token = find_token(services.database, secret)
    note_signed_in(secret, token.role, token.user_id)
    note_use(services.database, token)
    return caller_of(token)


CallerDep = Annotated[Caller, Depends(get_caller)]


def require(caller: Caller, role: str) -> None:
    """Raise NotAllowedError unless the caller's token may act in this role."""
    if caller.role not in MAY[role]:
        *others, last = MAY[role]
        needed = f"{', '.join(others)} or {last}" if others else last
        raise NotAllowedError(f"This needs a token of role {needed}; yours is {caller.role}.")


def require_role(role: str) -> Callable[[Caller], Awaitable[Caller]]:
    """Make a dependency that requires a token for this role."""

    async def check(caller: CallerDep) -> Caller:
        require(caller, role)
        return caller

    return check


SubmitterDep = Annotated[Caller, Depends(require_role("submitter"))]
OrganiserDep = Annotated[Caller, Depends(require_role("organiser"))]
WorkerDep = Annotated[Caller, Depends(require_role("worker"))]


NAME = "finishline_console"
# A browser takes a cookie of this prefix only if it is Secure, of Path=/ and without a Domain. This
# keeps neighbours under the same domain from planting one.
HOST_PREFIX = "__Host-"
MARK = "finishline_signed_in"
IDLE = timedelta(hours=12)
LONGEST = timedelta(days=7)
# How old the last page may be until the cookie is written again.
SEEN_EVERY = timedelta(minutes=1)
NOTICE = "notice"
# A browser drops a cookie of more than 4096 bytes.
LONGEST_NOTICE = 400


class Sessions:
    """Starlette's sessions, in a cookie for https only if the request is https.

    Anybody who has the signed cookie can read it: keep secrets out. It ends with the browser or by
    its times.
    """

    def __init__(self, app: ASGIApp, *, key: str) -> None:
        made = partial(SessionMiddleware, app, key, max_age=None, same_site="strict")
        self._plain = made(session_cookie=NAME)
        self._secure = made(session_cookie=HOST_PREFIX + NAME, https_only=True)
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            app = self._secure if is_secure(Request(scope)) else self._plain
        await app(scope, receive, send)


def is_secure(request: Request) -> bool:
    """Return whether the cookie is for https only: by the settings, else by the request."""
    set_so = services_of(request).settings.secure_cookies
    return request.url.scheme == "https" if set_so is None else set_so


def begin_session(request: Request, token: Token) -> None:
    """Sign a browser in with a stored token, and drop its cookie's earlier content.

    Call it after the commit: a token that was rolled back must open nothing.
    """
    now = utc_now().timestamp()
    request.session.clear()
    number = token.user.session_number
    request.session.update(token=token.id, number=number, began=now, seen=now)


def session_key(scope: Scope) -> tuple[int, int] | None:
    """Return the token's id and the user's session number from our signed cookie."""
    content = scope.get("session") or {}
    return (content["token"], content["number"]) if "token" in content else None


def ends_at(request: Request) -> datetime:
    """Return when a session ends without further pages."""
    seen, began = (datetime.fromtimestamp(request.session[name], UTC) for name in ("seen", "began"))
    return min(seen + IDLE, began + LONGEST)


def set_mark(response: Response, request: Request, token: Token) -> None:
    """Set a cookie by which scripts show who is signed in. It allows nothing."""
    mark = quote(f"{token.role} {token.user.name}", safe="")
    response.set_cookie(MARK, mark, path="/", secure=is_secure(request), samesite="strict")


def clear_mark(response: Response, request: Request) -> None:
    """Delete the cookie with the user's name, also after a session ended by itself."""
    if MARK in request.cookies:
        response.delete_cookie(MARK, path="/", secure=is_secure(request), samesite="strict")


@dataclass(frozen=True)
class Notice:
    """A message about a form's effect. `once_only` is a new secret, shown with the answer."""

    text: str
    once_only: str | None = field(default=None, repr=False)


def leave_notice(request: Request, text: str) -> None:
    """Put a notice for the next page into the session. Keep secrets out of it."""
    request.session[NOTICE] = text[:LONGEST_NOTICE]


def take_notice(request: Request) -> Notice | None:
    """Take the notice of the last form."""
    text = request.session.pop(NOTICE, None)
    return None if text is None else Notice(text)


def require_same_origin(request: Request) -> None:
    """Raise NotAllowedError unless the headers say that our page sent this form.

    Every browser of today sends Origin with a form. A request with neither header is refused.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in (None, "same-origin"):
        raise NotAllowedError("This form was sent by a page of another site; nothing was changed.")
    if origin is None and site is None:
        raise NotAllowedError(
            "The browser does not say which page sent this form (no Origin); nothing was changed."
        )
    scheme = "https" if is_secure(request) else request.url.scheme
    own = {f"{scheme}://{request.headers.get('host', '')}"}
    if address := services_of(request).settings.public_url:
        public = urlsplit(address)
        own.add(f"{public.scheme}://{public.netloc}")
    if origin is not None and origin not in own:
        raise NotAllowedError(
            f"This form was sent by a page of {origin[:200]}, which is not this server; nothing "
            "was changed. Behind a proxy set FINISHLINE_PUBLIC_URL to the address browsers use."
        )


FAILURES = parse("10/5 minutes")
MOST_ADDRESSES = 10_000


class FailedSignIns:
    """Counts failed sign-ins by address in this process. A full count starts anew."""

    def __init__(self) -> None:
        self._storage = MemoryStorage()
        self._window = MovingWindowRateLimiter(self._storage)

    def count(self, request: Request, what: str) -> str:
        """Count a failure and return its address. Raises UsedUpError after too many."""
        address = request.client.host if request.client is not None else "unknown"
        if len(self._storage.events) >= MOST_ADDRESSES:
            self._storage.reset()
        network = network_of(address)
        if not self._window.hit(FAILURES, network):
            reset = self._window.get_window_stats(FAILURES, network).reset_time
            wait = max(1, ceil(reset - time()))
            told = f"Too many {what}. Try again in {count_text(wait, 'second')}."
            raise UsedUpError(told, measure="sign-ins", retry_seconds=wait)
        return address


def network_of(address: str) -> str:
    """Return an address's network: itself, or for IPv6 its /64, which one host has whole.

    A socket for both kinds gives IPv4 addresses as IPv6 addresses, all of a single /64.
    """
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv4Address):
        return address
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return str(ipaddress.ip_network((parsed.packed[:8] + bytes(8), 64)))


SIGN_IN = "/console/sign-in"
SOURCE = "console"
MOST_FIELDS = 100
Fields = dict[str, str]


def signed_in_or_none(request: Request) -> Caller | None:
    """Find the caller of this browser's session, looking up its token and user each time."""
    key, database = session_key(request.scope), services_of(request).database
    if key is None or ends_at(request) <= utc_now():
        return None
    try:
        token = find_session_token(database, *key)
    except NotSignedInError:
        return None
    note_signed_in(str(key), token.role, token.user_id)
    note_use(database, token)
    return caller_of(token, source=SOURCE)


def get_signed_in(request: Request) -> Caller:
    """Require and prolong a session. Else a page redirects to the sign-in, a form is refused."""
    caller = signed_in_or_none(request)
    if caller is None:
        raise sign_in_first(request)
    now = utc_now().timestamp()
    if now - request.session["seen"] > SEEN_EVERY.total_seconds():
        request.session["seen"] = now
    return caller


def sign_in_first(request: Request) -> HTTPException | NotSignedInError:
    """Make the error for a browser without a session. A page redirects to the sign-in and back."""
    if request.method != "GET":
        return NotSignedInError(
            "Your session has ended, and nothing was changed. Sign in at /console/sign-in in "
            "another tab, come back here and send the form again from the page before this one."
        )
    asked = quote(request.url.path) + (f"?{request.url.query}" if request.url.query else "")
    address = f"{SIGN_IN}?{urlencode({'next': asked})}"
    return HTTPException(303, "Sign in first.", headers={"Location": address})


SignedInDep = Annotated[Caller, Depends(get_signed_in)]


async def read_fields(request: Request) -> Fields:
    """Read a form's text fields. Replaces half characters, which break pages and hashes."""
    form = await request.form(max_files=0, max_fields=MOST_FIELDS)
    return {
        name: value.encode(errors="replace").decode().replace("\r\n", "\n")
        for name, value in form.items()
        if isinstance(value, str)
    }


FieldsDep = Annotated[Fields, Depends(read_fields)]


def _own_form(request: Request, _signed_in: SignedInDep, sent: FieldsDep) -> Fields:
    require_same_origin(request)
    return sent


FormDep = Annotated[Fields, Depends(_own_form)]


BEARER = "bearer "


def viewer_for(caller: Caller) -> Viewer:
    """Return a caller's viewer: of their and their organisation's submissions, or of all.

    A worker's token shows only its user's, because others manage its machine.
    """
    if caller.role in ORGANISERS:
        return ORGANISER
    organisation_id = None if caller.role == "worker" else caller.organisation_id
    return Viewer(user_ids=(caller.user_id,), organisation_id=organisation_id)


def _sent_secret(request: Request) -> str | None:
    sent = request.headers.get("authorization", "")
    return sent[len(BEARER) :].strip() if sent.lower().startswith(BEARER) else None


def get_viewer(request: Request) -> Viewer:
    """Return the viewer of the request's token or session. An invalid one sees public data."""
    secret = _sent_secret(request)
    try:
        if secret is None:
            caller = signed_in_or_none(request)
        else:
            caller = get_caller(services_of(request), secret)
    except NotSignedInError:
        return ANYBODY
    return ANYBODY if caller is None else viewer_for(caller)


ViewerDep = Annotated[Viewer, Depends(get_viewer)]


async def anybody() -> Viewer:
    """Return the viewer without an account."""
    return ANYBODY


AnybodyDep = Annotated[Viewer, Depends(anybody)]


OPEN = frozenset(
    {"/healthz", "/readyz", "/favicon.ico", "/robots.txt", "/.well-known/security.txt"}
)
# Signing in, joining, links in mails, and workers with the secret of a lease.
OPEN_UNDER = (f"{SIGN_IN}/", "/join/", "/mail/", "/static/", "/api/v1/attempts/")
METRICS = "/metrics"
# Only pages redirect a stranger to the sign-in.
NO_PAGE_UNDER = ("/api/", "/docs-assets/", METRICS)
NO_PAGE_ENDS = (".atom", ".csv", ".json", ".md", ".parquet", ".svg", ".toml", ".txt")
NO_PAGE_WITHIN = ("/charts/", "/docs/images/")


class Membership:
    """Refuse strangers, inside the error handlers. Members have a valid token or a session."""

    def __init__(self, app: ASGIApp, services: Services) -> None:
        self._app = app
        self._services = services
        metrics = {METRICS} if services.settings.metrics_token is not None else set()
        self._open = OPEN | metrics | {SIGN_IN}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_open = scope["type"] != "http" or scope["path"] in self._open
        if not is_open and not scope["path"].startswith(OPEN_UNDER):
            await run_in_threadpool(self._require_member, Request(scope))
        await self._app(scope, receive, send)

    def _require_member(self, request: Request) -> None:
        if (secret := _sent_secret(request)) is not None:
            find_token(self._services.database, secret)
        elif signed_in_or_none(request) is None:
            if is_page(request.url.path):
                raise sign_in_first(request)
            raise NotSignedInError(
                "Only members read this server: send the header 'Authorization: Bearer …' with "
                "your API token, or sign in at /console/sign-in."
            )


def is_page(path: str) -> bool:
    """Return whether an address is a page's, which redirects a stranger to the sign-in."""
    is_other = path.startswith(NO_PAGE_UNDER) or path.endswith(NO_PAGE_ENDS)
    return not is_other and not any(part in path for part in NO_PAGE_WITHIN)
