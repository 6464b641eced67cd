"""Console sessions: a signed cookie, who may send a form, and notices for the next page."""

from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import quote, urlsplit

from fastapi import Request, Response
from starlette.middleware.sessions import SessionMiddleware
from starlette.types import ASGIApp, Receive, Scope, Send

from server.base.database import utc_now
from server.base.errors import NotAllowedError
from server.base.settings import Settings
from server.people.accounts import Holder
from server.people.dependencies import Caller

NAME = "finishline_console"
# A browser takes a cookie of this prefix only if it is Secure, of Path=/ and without a Domain, so
# a neighbour under the same domain can plant none.
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
    """Starlette's sessions, in a cookie that is for https alone where the request is.

    The cookie is signed, and anybody who has it can read it: it holds no secret. It ends with the
    browser, or with the times in it.
    """

    def __init__(self, app: ASGIApp, *, key: str, settings: Settings) -> None:
        made = partial(SessionMiddleware, app, key, max_age=None, same_site="strict")
        self._plain = made(session_cookie=NAME)
        self._secure = made(session_cookie=HOST_PREFIX + NAME, https_only=True)
        self._app = app
        self._settings = settings

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if scope["type"] == "http":
            app = self._secure if is_secure(Request(scope), self._settings) else self._plain
        await app(scope, receive, send)


def is_secure(request: Request, settings: Settings) -> bool:
    """Whether the cookie is for https alone: by the settings, else by the request."""
    if settings.secure_cookies is not None:
        return settings.secure_cookies
    return request.url.scheme == "https"


@dataclass(frozen=True)
class SignedIn:
    """A signed-in browser."""

    caller: Caller
    ends_at: datetime
    token_expires_at: datetime | None


def begin_session(request: Request, holder: Holder) -> None:
    """Sign a browser in with a stored token. The earlier content of its cookie is gone.

    Called after the transaction: a token that was rolled back must open nothing.
    """
    now = utc_now().timestamp()
    request.session.clear()
    request.session.update(token=holder.token_id, number=holder.session_number, began=now, seen=now)


def session_key(scope: Scope) -> tuple[int, int] | None:
    """The id of the token and the number of its user's sessions in a cookie that we signed."""
    content = scope.get("session") or {}
    return (content["token"], content["number"]) if "token" in content else None


def ends_at(request: Request) -> datetime:
    """Time at which a session ends without further pages."""
    seen, began = (datetime.fromtimestamp(request.session[name], UTC) for name in ("seen", "began"))
    return min(seen + IDLE, began + LONGEST)


def note_page(request: Request) -> None:
    """Prolong a session, at most once a minute."""
    now = utc_now().timestamp()
    if now - request.session["seen"] > SEEN_EVERY.total_seconds():
        request.session["seen"] = now


def set_mark(response: Response, request: Request, settings: Settings, holder: Holder) -> None:
    """Set a cookie with role and name that scripts read and that allows nothing.

    Pages that are the same for everybody show by it who is signed in.
    """
    mark = quote(f"{holder.role} {holder.name}", safe="")
    secure = is_secure(request, settings)
    response.set_cookie(MARK, mark, path="/", secure=secure, samesite="strict")


def clear_mark(response: Response, request: Request, settings: Settings) -> None:
    """Delete the cookie with the user's name; also after a session has ended by itself."""
    if MARK in request.cookies:
        secure = is_secure(request, settings)
        response.delete_cookie(MARK, path="/", secure=secure, samesite="strict")


@dataclass(frozen=True)
class Notice:
    """Message about a form's effect. `once_only` is a secret just made, shown with the answer."""

    text: str
    once_only: str | None = field(default=None, repr=False)


def leave_notice(request: Request, notice: Notice) -> None:
    """Put a notice for the next page into the session; its secret never."""
    request.session[NOTICE] = notice.text[:LONGEST_NOTICE]


def take_notice(request: Request) -> Notice | None:
    """The notice that the last form left, once."""
    text = request.session.pop(NOTICE, None)
    return None if text is None else Notice(text)


def require_same_origin(request: Request, settings: Settings) -> None:
    """Raise NotAllowedError unless the browser says that one of our pages sent this.

    Every browser of today sends Origin with a form; a request without either header is refused.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in (None, "same-origin"):
        raise NotAllowedError("This form was sent by a page of another site; nothing was changed.")
    if origin is None and site is None:
        raise NotAllowedError(
            "The browser does not say which page sent this form (no Origin); nothing was changed."
        )
    if origin is not None and origin not in own_origins(request, settings):
        raise NotAllowedError(
            f"This form was sent by a page of {origin[:200]}, which is not this server; nothing "
            "was changed. Behind a proxy set FINISHLINE_PUBLIC_URL to the address browsers use."
        )


def own_origins(request: Request, settings: Settings) -> set[str]:
    """Origins of our pages: the request's own address, and the public address if it is set."""
    scheme = "https" if is_secure(request, settings) else request.url.scheme
    own = {f"{scheme}://{request.headers.get('host', '')}"}
    if not settings.public_url:
        return own
    public = urlsplit(settings.public_url)
    return own | {f"{public.scheme}://{public.netloc}"}
