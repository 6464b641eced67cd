"""Console sessions: cookies, origin checks, sign-in and sign-out."""

import secrets
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from urllib.parse import quote, unquote, urlsplit

from fastapi import Request, Response
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import delete
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.errors import NotAllowedError, NotSignedInError
from server.base.models import ConsoleSession, Token
from server.base.settings import Settings
from server.people.accounts import find_token, hash_token, holder_of, require_valid
from server.people.dependencies import Caller

NAME = "finishline_console"
# A browser takes a cookie of this prefix only if it is Secure, of Path=/ and without a Domain, so
# a neighbour under the same domain can plant none.
HOST_PREFIX = "__Host-"
MARK = "finishline_signed_in"
NOTICE = "finishline_notice"
NOTICE_SECONDS = 600


def is_secure(request: Request, settings: Settings) -> bool:
    """Whether the cookie is for https alone: by the settings, else by the request."""
    if settings.secure_cookies is not None:
        return settings.secure_cookies
    return request.url.scheme == "https"


def cookie_name(request: Request, settings: Settings, name: str = NAME) -> str:
    """Name of a cookie for this request."""
    return f"{HOST_PREFIX}{name}" if is_secure(request, settings) else name


def read_cookie(request: Request, settings: Settings) -> str | None:
    """Session secret in the request's cookie."""
    return request.cookies.get(cookie_name(request, settings))


def set_cookie(
    response: Response,
    request: Request,
    settings: Settings,
    secret: str,
    *,
    user_name: str,
    role: str,
) -> None:
    """Set the session cookie until the browser closes; the server ends the session in time.

    Role and name are in a cookie beside it that scripts read and that allows nothing: pages that
    are the same for everybody show by it who is signed in. A notice of an earlier session goes.
    """
    response.set_cookie(
        cookie_name(request, settings),
        secret,
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )
    secure = is_secure(request, settings)
    mark = quote(f"{role} {user_name}", safe="")
    response.set_cookie(MARK, mark, path="/", secure=secure, samesite="strict")
    clear_cookie(response, request, settings, NOTICE)


def clear_cookie(
    response: Response, request: Request, settings: Settings, name: str = NAME
) -> None:
    """Delete a cookie, by default that of the session."""
    response.delete_cookie(
        cookie_name(request, settings, name),
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )


def clear_mark(response: Response, request: Request, settings: Settings) -> None:
    """Delete the cookie with the user's name; also after a session has ended by itself."""
    if MARK in request.cookies:
        secure = is_secure(request, settings)
        response.delete_cookie(MARK, path="/", secure=secure, samesite="strict")


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


IDLE = timedelta(hours=12)
LONGEST = timedelta(days=7)


def find_session(session: Session, secret: str) -> ConsoleSession:
    """Find the session of a browser. Raises NotSignedInError with the reason if it has ended."""
    found = session.get(ConsoleSession, hash_token(secret))
    if found is None:
        raise NotSignedInError("You are not signed in, or signed out elsewhere.")
    require_valid(holder_of(found.token))
    if ends_at(found) <= utc_now():
        raise NotSignedInError("This session has ended; sign in again.")
    return found


def ends_at(found: ConsoleSession) -> datetime:
    """Time at which a session ends without further requests."""
    return min(found.last_seen_at + IDLE, found.created_at + LONGEST)


@dataclass(frozen=True)
class Notice:
    """Message about a form's effect, for the next page; `once_only` is a token just made."""

    text: str
    once_only: str | None = field(default=None, repr=False)


_NOTICE = TypeAdapter(Notice)


def leave_notice(response: Response, request: Request, settings: Settings, notice: Notice) -> None:
    """Put a notice for the next page into a cookie, which a link of another site cannot set."""
    response.set_cookie(
        cookie_name(request, settings, NOTICE),
        quote(_NOTICE.dump_json(notice), safe=""),
        max_age=NOTICE_SECONDS,
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )


def read_notice(request: Request, settings: Settings) -> Notice | None:
    """The notice that the last form left; the page that shows it clears the cookie."""
    sent = request.cookies.get(cookie_name(request, settings, NOTICE))
    try:
        return None if sent is None else _NOTICE.validate_json(unquote(sent))
    except ValidationError:
        return None


@dataclass(frozen=True)
class SignedIn:
    """Session of a browser. `secret` is the value of its cookie and is never logged or shown."""

    secret: str = field(repr=False)
    caller: Caller
    ends_at: datetime
    token_expires_at: datetime | None


SECRET_BYTES = 32
# How stale the last sign of life may be: a write for every page would be one too many.
SEEN_EVERY = timedelta(minutes=1)


def start_session(
    session: Session, token_secret: str, *, instead_of: str | None
) -> tuple[str, str, str]:
    """Start a session for a token's owner, always with a fresh secret.

    The browser's earlier session ends, as do all expired ones.
    """
    token = find_token(session, token_secret)
    secret = start_session_of(session, token, instead_of=instead_of)
    return secret, token.user.name, token.role


def start_session_of(session: Session, token: Token, *, instead_of: str | None) -> str:
    """Start a session of a valid token; returns its secret. The browser's earlier one ends."""
    now = utc_now()
    if instead_of is not None:
        end_session(session, instead_of)
    session.execute(
        delete(ConsoleSession).where(
            (ConsoleSession.last_seen_at <= now - IDLE)
            | (ConsoleSession.created_at <= now - LONGEST)
        )
    )
    secret = secrets.token_urlsafe(SECRET_BYTES)
    token.last_used_at = now
    session.add(
        ConsoleSession(id_sha256=hash_token(secret), token=token, created_at=now, last_seen_at=now)
    )
    return secret


def end_session(session: Session, secret: str) -> None:
    """Delete a session, to sign out."""
    session.execute(delete(ConsoleSession).where(ConsoleSession.id_sha256 == hash_token(secret)))


def is_stale(found: ConsoleSession) -> bool:
    """Whether a session's last-seen time is old enough to be written again."""
    return found.last_seen_at <= utc_now() - SEEN_EVERY


def note_seen(session: Session, secret: str) -> None:
    """Update the last-seen time of a session, and of its token's last use."""
    found = session.get(ConsoleSession, hash_token(secret))
    if found is not None:
        found.last_seen_at = found.token.last_used_at = utc_now()
