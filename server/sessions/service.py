"""Console sessions: started with a token, kept as a hash, ended by sign-out, time or revocation."""

import base64
import hashlib
import hmac
import secrets
from datetime import timedelta

from cryptography.fernet import Fernet, InvalidToken
from sqlalchemy import delete
from sqlalchemy.orm import Session

from server.accounts.service import find_token, hash_token
from server.database import utc_now
from server.errors import NotSignedInError
from server.models import ConsoleSession
from server.sessions.queries import IDLE, LONGEST
from server.sessions.schemas import Notice

SECRET_BYTES = 32
# How stale the last sign of life may be: a write for every page would be one too many.
SEEN_EVERY = timedelta(minutes=1)


def start_session(
    session: Session, token_secret: str, *, instead_of: str | None
) -> tuple[str, str]:
    """A session for the owner of a token: its secret, for the cookie, and the owner's name.

    The secret is always a fresh one.

    The browser's earlier session ends, as do all whose time is over. Raises NotSignedInError.
    """
    token = find_token(session, token_secret)
    if "read" not in token.scopes:
        raise NotSignedInError("This token has not the scope read, so it can show nothing here.")
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
    session.add(
        ConsoleSession(
            id_sha256=hash_token(secret), token=token, created_at=now, last_seen_at=now, notices=[]
        )
    )
    return secret, token.user.name


def end_session(session: Session, secret: str) -> None:
    """Sign out."""
    session.execute(delete(ConsoleSession).where(ConsoleSession.id_sha256 == hash_token(secret)))


def go_on_with(session: Session, secret: str, token_id: int) -> None:
    """Have a session go on with another token of its user, which took over from its own."""
    found = session.get(ConsoleSession, hash_token(secret))
    if found is not None:
        found.token_id = token_id


def is_stale(found: ConsoleSession) -> bool:
    """Whether a session's last sign of life is worth writing again."""
    return found.last_seen_at <= utc_now() - SEEN_EVERY


def note_seen(session: Session, secret: str) -> None:
    """A session is alive."""
    found = session.get(ConsoleSession, hash_token(secret))
    if found is not None:
        found.last_seen_at = utc_now()


def leave_notice(session: Session, secret: str, notice: Notice) -> None:
    """What the next page tells. A token in it is sealed: the database never holds one readable."""
    found = session.get(ConsoleSession, hash_token(secret))
    if found is not None:
        shown = notice.once_only
        sealed = _seal(secret).encrypt(shown.encode()).decode() if shown is not None else None
        found.notices = [*found.notices, {"text": notice.text, "sealed": sealed}]


def take_notices(session: Session, secret: str) -> list[Notice]:
    """What is to be told, once: it is gone afterwards."""
    found = session.get(ConsoleSession, hash_token(secret), with_for_update=True)
    if found is None:
        return []
    notices = [Notice(item["text"], _opened(secret, item["sealed"])) for item in found.notices]
    found.notices = []
    return notices


def _opened(secret: str, sealed: str | None) -> str | None:
    try:
        return _seal(secret).decrypt(sealed.encode()).decode() if sealed is not None else None
    except InvalidToken:
        return None


def _seal(secret: str) -> Fernet:
    """A seal that only who has the session's secret, which is not kept here, can open."""
    key = hmac.new(secret.encode(), b"notice", hashlib.sha256).digest()
    return Fernet(base64.urlsafe_b64encode(key))
