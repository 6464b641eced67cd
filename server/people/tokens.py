"""Make, list and revoke tokens, with their lineage."""

from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import Path, Query
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
from server.people import accounts
from server.people.accounts import (
    ROLES,
    NewToken,
    add_token,
    find_own_token,
    find_user_or_none,
    is_within,
    list_own_tokens,
    may_hold,
    record_new_token,
    require_room,
)
from server.people.audit import Actor, audited
from server.people.declared import Form, Routes
from server.people.dependencies import Caller
from server.people.views import (
    OwnTokenCreate,
    TokenCreate,
    TokenCreated,
    TokenList,
    TokensRevoked,
    token_view,
)

router = Routes(tags=["accounts"])
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]
CONSOLE, ACCOUNT = "/console/tokens", "/account"
MADE = "Token {0.id} of {0.user}, role {0.role}, is made."


def revoked_words(made: TokensRevoked, token_id: int) -> str:
    """Say which tokens ended together."""
    others = [str(each) for each in made.revoked if each != token_id]
    words = f"Token {token_id} is revoked"
    if token_id not in made.revoked:
        words = f"Token {token_id} had already ended"
    if not others:
        return f"{words}."
    return f"{words}; also revoked: {len(others)} made with it: {', '.join(others)}."


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


@router.command(
    "/tokens",
    Form(CONSOLE, MADE, once="token"),
    role="organiser",
    status=201,
)
def create_token(session: Session, caller: Caller, body: TokenCreate) -> TokenCreated:
    """Make a token for any user. One of an organiser or admin needs an admin. Shown only once."""
    _require_may_give(caller, body.role)
    require_maker(session, caller.token_id)
    user = find_user_or_none(session, body.user)
    if user is not None:
        _require_may_get(caller, user, body.role)
    days = body.expires_in_days
    expires_in = timedelta(days=days) if days is not None else None
    made = accounts.create_token(
        session, user_name=body.user, role=body.role, expires_in=expires_in
    )
    made.token.label = body.label
    made.token.made_with = caller.token_id
    record_new_token(session, caller, made.token, new_user=made.new_user)
    return _created(made)


def _created(made: NewToken) -> TokenCreated:
    return TokenCreated(**token_view(made.token).model_dump(), token=made.secret)


@router.read("/tokens", role="organiser")
def list_tokens(
    session: Session, caller: Caller, user: Annotated[str | None, Query(max_length=100)] = None
) -> TokenList:
    """List the tokens that the caller may revoke, without their secrets, newest first."""
    query = select(Token).join(Token.user).order_by(Token.id.desc())
    if not caller.is_admin:
        visible = Token.role.in_(ORGANISERS_GIVE) & User.role.in_(ORGANISERS_GIVE)
        query = query.where(or_(visible, Token.user_id == caller.user_id))
    if user is not None:
        query = query.where(User.name == user)
    return TokenList(tokens=[token_view(token) for token in session.scalars(query)])


@router.command(
    "/tokens/{token_id}",
    Form(CONSOLE + "/{token_id}/revoke", revoked_words, page=CONSOLE),
    role="organiser",
    method="DELETE",
)
def revoke_token(session: Session, caller: Caller, token_id: TokenId) -> TokensRevoked:
    """Revoke a token, and every token that was made with it."""
    token = _others_token(session, caller, token_id)
    return TokensRevoked(revoked=revoke_line(session, caller, token.id))


@router.read("/me/tokens", role="user")
def list_my_tokens(session: Session, caller: Caller) -> TokenList:
    """List my tokens without their secrets, newest first."""
    found = list_own_tokens(session, caller.user_id)
    return TokenList(tokens=[token_view(token) for token in found])


@router.command(
    "/me/tokens",
    Form(ACCOUNT + "/tokens", MADE, page=ACCOUNT, once="token"),
    role="submitter",
    status=201,
)
def create_my_token(session: Session, caller: Caller, body: OwnTokenCreate) -> TokenCreated:
    """Make a token for myself, no wider than the one of this request. Its secret is shown once."""
    held = require_maker(session, caller.token_id)
    role = body.role or held.role
    if not is_within(role, held.role):
        raise NotAllowedError(f"A token of role {held.role} cannot make one of role {role}.")
    require_room(session, held.user)
    made = add_token(
        session,
        held.user,
        role=role,
        label=body.label,
        expires_at=_own_expiry(held, body.expires_in_days),
        made_with=held.id,
    )
    record_new_token(session, caller, made.token)
    return _created(made)


@router.command(
    "/me/tokens/{token_id}",
    Form(ACCOUNT + "/tokens/{token_id}/revoke", revoked_words, page=ACCOUNT),
    role="submitter",
    method="DELETE",
)
def revoke_my_token(session: Session, caller: Caller, token_id: TokenId) -> TokensRevoked:
    """Revoke one of my tokens, and every token that was made with it."""
    found = find_own_token(session, caller.user_id, token_id)
    return TokensRevoked(revoked=revoke_line(session, caller, found.id))


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
