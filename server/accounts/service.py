"""Tokens: made once, shown once, kept as a hash."""

import hashlib
import secrets
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.audit.service import Actor, Subject, record
from server.database import insert_missing, utc_now
from server.errors import NotFoundError, NotSignedInError
from server.models import Token, User

TOKEN_PREFIX = "fl_"  # noqa: S105  a prefix, so that leaked tokens can be searched for


@dataclass(frozen=True)
class NewToken:
    """A token just made; `secret` is shown this once."""

    token: Token
    secret: str


def hash_token(secret: str) -> str:
    """What is stored of a token. It is random, so a plain SHA-256 cannot be guessed back."""
    return hashlib.sha256(secret.encode()).hexdigest()


def create_token(
    session: Session, *, user_name: str, role: str, expires_in: timedelta | None
) -> NewToken:
    """A token for a user, who is made if not there yet."""
    now = utc_now()
    insert_missing(session, User, name=user_name, created_at=now)
    user = session.scalars(select(User).where(User.name == user_name)).one()
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    token = Token(
        user=user,
        role=role,
        token_sha256=hash_token(secret),
        created_at=now,
        expires_at=now + expires_in if expires_in is not None else None,
    )
    session.add(token)
    session.flush()
    return NewToken(token=token, secret=secret)


def find_token(session: Session, secret: str) -> Token:
    """The valid token of a secret. Raises NotSignedInError saying what is wrong with it."""
    token = session.scalar(select(Token).where(Token.token_sha256 == hash_token(secret)))
    if token is None:
        raise NotSignedInError("This token is not known here; ask an organiser for one.")
    require_valid(token)
    return token


def require_valid(token: Token) -> None:
    """Raise NotSignedInError if a token was revoked or its time is over."""
    if token.revoked_at is not None:
        raise NotSignedInError("This token was revoked; ask an organiser for a new one.")
    if is_expired(token, utc_now()):
        raise NotSignedInError(
            f"This token expired on {token.expires_at:%Y-%m-%d %H:%M} UTC; "
            "ask an organiser for a new one."
        )


def is_expired(token: Token, now: datetime) -> bool:
    """Whether a token's time is over."""
    return token.expires_at is not None and token.expires_at <= now


def list_tokens(session: Session) -> list[Token]:
    """Every token, newest first."""
    return list(session.scalars(select(Token).order_by(Token.id.desc())))


def record_new_token(session: Session, actor: Actor, token: Token) -> None:
    """Write to the audit log that a token was made; its secret is not in it."""
    record(
        session,
        actor,
        "token.create",
        Subject("token", str(token.id)),
        reason=None,
        before=None,
        after=_logged(token),
    )


def revoke_token(session: Session, actor: Actor, token_id: int) -> None:
    """End a token now. Revoking twice changes nothing."""
    token = session.get(Token, token_id)
    if token is None:
        raise NotFoundError(f"There is no token {token_id}.")
    if token.revoked_at is not None:
        return
    before = _logged(token)
    token.revoked_at = utc_now()
    record(
        session,
        actor,
        "token.revoke",
        Subject("token", str(token_id)),
        reason=None,
        before=before,
        after=_logged(token),
    )


def _logged(token: Token) -> dict[str, Any]:
    return {
        "user": token.user.name,
        "role": token.role,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
    }
