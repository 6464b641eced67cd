"""Users by their identity at an OpenID provider: sign in, register, connect."""

import re
import secrets
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError, NotAllowedError
from server.base.models import Token, User
from server.people.accounts import (
    add_token,
    holder_of,
    is_expired,
    record_new_token,
    require_new_name,
    require_valid,
)
from server.people.audit import Subject, record
from server.people.dependencies import caller_of
from server.people.invitations import TOKEN_LIFETIME
from server.people.signed_in import SOURCE
from server.people.views import Email, UserName

NOT_IN_A_NAME = re.compile(r"[^\w.@ -]+")
LONGEST_SUBJECT = 255
LABEL = "browser sign-in"
NAME, EMAIL = TypeAdapter[str](UserName), TypeAdapter[str](Email)
Claims = Mapping[str, Any]


def sign_in_as(
    session: Session, claims: Claims, *, connect_to: int | None, may_register: bool
) -> tuple[Token, bool]:
    """Token of the session of an identity, and whether its user is new.

    The user `connect_to`, if there is one, gets this identity in place of their earlier one. An
    identity that nobody has becomes a submitter if it may.
    """
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    if not 0 < len(subject) <= LONGEST_SUBJECT:
        raise NotAllowedError("This identity is longer than any that is taken here.")
    user = session.scalar(select(User).where(User.issuer == issuer, User.subject == subject))
    if user is not None and connect_to not in (None, user.id):
        raise ConflictError("This identity belongs to another user here.")
    is_known = user is not None
    is_new = not is_known and connect_to is None
    if user is None:
        if is_new and not may_register:
            raise NotAllowedError(
                "Nobody here has this identity. Join by a link of an organiser, or sign in with a "
                "token and connect it on your account's page."
            )
        user = _register(session, claims) if is_new else session.get_one(User, connect_to)
        user.issuer, user.subject = issuer, subject
    token = _token_of(session, user)
    has_token = token is not None
    if token is None:
        token = add_token(
            session,
            user,
            role=user.role,
            expires_at=utc_now() + TOKEN_LIFETIME,
            label=LABEL,
        ).token
    holder = holder_of(token)
    require_valid(holder)
    caller = caller_of(holder, source=SOURCE)
    if not is_known:
        action = "user.register" if is_new else "user.connect"
        after = {"issuer": issuer, "role": user.role}
        about = Subject("user", user.name)
        record(session, caller, action, about, reason=None, before=None, after=after)
    if not has_token:
        record_new_token(session, caller, token, new_user=is_new)
    return token, is_new


def _register(session: Session, claims: Claims) -> User:
    email = claims.get("email") if claims.get("email_verified") is True else None
    user = User(
        name=_free_name(session, claims),
        role="submitter",
        email=email if _fits(EMAIL, email) else None,
        created_at=utc_now(),
    )
    session.add(user)
    session.flush()
    return user


def _free_name(session: Session, claims: Claims) -> str:
    for name in _names(claims):
        if not _fits(NAME, name):
            continue
        try:
            require_new_name(session, name)
        except (ConflictError, ContentError):
            continue
        return name
    raise ConflictError("No name could be made for this identity. Ask an organiser for a link.")


def _names(claims: Claims) -> Iterator[str]:
    known = [claims.get(claim) for claim in ("preferred_username", "nickname", "name")]
    for word in known:
        if isinstance(word, str) and (name := " ".join(NOT_IN_A_NAME.sub(" ", word).split())[:80]):
            yield name
            yield f"{name}-{secrets.randbelow(9000) + 1000}"
    yield f"user-{secrets.randbelow(900_000) + 100_000}"


def _fits(kind: TypeAdapter[str], value: object) -> bool:
    try:
        kind.validate_python(value)
    except ValidationError:
        return False
    return True


def _token_of(session: Session, user: User) -> Token | None:
    tokens = session.scalars(
        select(Token).where(
            Token.user_id == user.id,
            Token.label == LABEL,
            Token.role == user.role,
            Token.revoked_at.is_(None),
        )
    )
    return next((token for token in tokens if not is_expired(token, utc_now())), None)
