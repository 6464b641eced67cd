"""Make, list and revoke tokens, with their lineage."""

from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.errors import (
    ConflictError,
    NotAllowedError,
    NotSignedInError,
    no_such,
)
from server.base.models import Invitation, Token, User
from server.people.accounts import (
    ROLES,
    NewToken,
    add_token,
    create_token,
    find_own_token,
    find_user_or_none,
    is_within,
    may_hold,
    record_new_token,
    require_room,
)
from server.people.audit import Actor, audited
from server.people.dependencies import Caller
from server.people.views import OwnTokenCreate, TokenCreate


def require_maker(session: Session, token_id: int) -> Token:
    """The token that another is made with. Raises NotSignedInError if it was revoked."""
    maker = session.get_one(Token, token_id)
    if maker.revoked_at is not None:
        raise NotSignedInError("This token was revoked; ask an organiser for a new one.")
    return maker


def revoke_line(session: Session, actor: Actor, token_id: int) -> list[int]:
    """Revoke a token and all that descend from it; return the ids of those that still worked.

    Links by which people join, made with any of them, end too.
    """
    ids = _line(session, token_id)
    living = select(Token).where(Token.id.in_(ids), Token.revoked_at.is_(None)).order_by(Token.id)
    ended = list(session.scalars(living))
    now = utc_now()
    for token in ended:
        more: dict[str, Any] = {"revoked_with": token_id} if token.id != token_id else {}
        with audited(session, actor, "token.revoke", token, user=token.user.name, **more):
            token.revoked_at = now
    session.execute(
        update(Invitation)
        .where(Invitation.made_with.in_(ids), Invitation.revoked_at.is_(None))
        .values(revoked_at=now)
        .execution_options(synchronize_session=False)
    )
    return [token.id for token in ended]


def _line(session: Session, token_id: int) -> set[int]:
    line = select(Token.id).where(Token.id == token_id).cte(recursive=True)
    line = line.union(select(Token.id).where(Token.made_with == line.c.id))
    return set(session.scalars(select(line.c.id)))


# Roles of tokens that an organiser may give and end, and roles of their users; beside one's own.
ORGANISERS_GIVE = ("submitter", "worker")


def may_give(caller: Caller) -> tuple[str, ...]:
    """Roles of the tokens that a caller may make and revoke for others."""
    return ROLES if caller.is_admin else ORGANISERS_GIVE


def give_token(session: Session, caller: Caller, wanted: TokenCreate) -> NewToken:
    """Make a token for any user. An unknown user is made with its role."""
    _require_may_give(caller, wanted.role)
    require_maker(session, caller.token_id)
    user = find_user_or_none(session, wanted.user)
    if user is not None:
        _require_may_get(caller, user, wanted.role)
    expires_in = _lifetime(wanted.expires_in_days)
    made = create_token(session, user_name=wanted.user, role=wanted.role, expires_in=expires_in)
    made.token.label = wanted.label
    made.token.made_with = caller.token_id
    record_new_token(session, caller, made.token, new_user=made.new_user)
    return made


def list_visible_tokens(
    session: Session, caller: Caller, *, user_name: str | None = None
) -> list[Token]:
    """Tokens that a caller may revoke, newest first: all for an admin."""
    query = select(Token).join(Token.user).order_by(Token.id.desc())
    if not caller.is_admin:
        visible = Token.role.in_(ORGANISERS_GIVE) & User.role.in_(ORGANISERS_GIVE)
        query = query.where(or_(visible, Token.user_id == caller.user_id))
    if user_name is not None:
        query = query.where(User.name == user_name)
    return list(session.scalars(query))


def revoke_token(session: Session, caller: Caller, token_id: int) -> list[int]:
    """Revoke another user's token and all that descend from it; returns the ids of all revoked."""
    return revoke_line(session, caller, _others_token(session, caller, token_id).id)


def make_own_token(session: Session, caller: Caller, wanted: OwnTokenCreate) -> NewToken:
    """Make a token for oneself, within the one in use."""
    held = require_maker(session, caller.token_id)
    role = wanted.role or held.role
    if not is_within(role, held.role):
        raise NotAllowedError(f"A token of role {held.role} cannot make one of role {role}.")
    require_room(session, held.user)
    made = add_token(
        session,
        held.user,
        role=role,
        label=wanted.label,
        expires_at=_own_expiry(held, wanted.expires_in_days),
        made_with=held.id,
    )
    record_new_token(session, caller, made.token)
    return made


def revoke_own_token(session: Session, caller: Caller, token_id: int) -> list[int]:
    """Revoke one of one's own tokens and all that descend from it, and return their ids."""
    return revoke_line(session, caller, find_own_token(session, caller.user_id, token_id).id)


def _lifetime(days: float | None) -> timedelta | None:
    return timedelta(days=days) if days is not None else None


def _require_may_give(caller: Caller, role: str) -> None:
    allowed = may_give(caller)
    if role not in allowed:
        raise NotAllowedError(
            f"Only an admin can make tokens of role {role}; yours may make {' and '.join(allowed)}."
        )


def _require_may_get(caller: Caller, user: User, role: str) -> None:
    if not may_hold(user.role, role):
        raise ConflictError(
            f"{user.name} is {user.role} and may have no token of role {role}; an admin can change "
            f"that: `finishline admin user set`."
        )
    own = user.id == caller.user_id
    if user.role not in ORGANISERS_GIVE and not own and not caller.is_admin:
        raise NotAllowedError(f"{user.name} is {user.role}: only an admin can make their tokens.")


def _others_token(session: Session, caller: Caller, token_id: int) -> Token:
    token = session.get(Token, token_id)
    if token is None:
        raise no_such("token", token_id)
    own = token.user_id == caller.user_id
    theirs = token.role in ORGANISERS_GIVE and token.user.role in ORGANISERS_GIVE
    if not (own or theirs or caller.is_admin):
        raise NotAllowedError(
            f"Token {token_id} is {token.user.name}'s, who is {token.user.role}: only an admin "
            "can change it."
        )
    return token


def _own_expiry(held: Token, days: float | None) -> datetime | None:
    """Expiry of an own token: at the latest that of the one in use. Raises NotAllowedError."""
    if days is None:
        return held.expires_at
    expires_at = utc_now() + timedelta(days=days)
    if held.expires_at is not None and expires_at > held.expires_at:
        raise NotAllowedError(
            f"The token you hold ends on {held.expires_at:%Y-%m-%d %H:%M} UTC, and tokens made "
            "with it may not end later; ask an organiser for a longer one."
        )
    return expires_at
