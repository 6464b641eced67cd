"""Tokens with their lineage: make, list and revoke them, and read your account."""

from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import Field
from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from finishline.api.people import MeView, Role
from finishline.api.schema import Name, Schema
from server.base.database import find_row, utc_now
from server.base.errors import ConflictError, NotAllowedError, no_such
from server.base.forms import Body, example
from server.base.models import Invitation, Token, User
from server.people.accounts import (
    ROLES,
    add_token,
    is_within,
    may_hold,
    require_room,
    require_valid,
)
from server.people.audit import Actor, audited, record_new
from server.people.callers import Caller
from server.people.declared import Form, Routes, filled
from server.people.users import DisplayName, Line, UserName, find_person, set_display_name

router = Routes(tags=["accounts"])
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]
CONSOLE, ACCOUNT = "/console/tokens", "/account"
MADE = "Token {0.id} of {0.user}, role {0.role}, is made."


Days = Annotated[float, Field(gt=0, le=3650)]


class TokenCreate(Body):
    """A token to make: its user, role and expiry."""

    model_config = example(user="alice", role="submitter", expires_in_days=90)

    user: UserName
    role: Role
    label: Line | None = None
    expires_in_days: Days | None = None


class OwnTokenCreate(Body):
    """A token for yourself, within the token in use, which gives omitted fields their values."""

    model_config = example(label="nightly run", role="submitter", expires_in_days=30)

    label: Line | None = None
    role: Role | None = None
    expires_in_days: Days | None = None


class MeChange(Body):
    """Changes of your account: the name that readers see, or null for the account's name.

    It must differ from the names of other users, organisations and submitters of published results.
    """

    model_config = example(display_name="Ada Lovelace")

    display_name: DisplayName | None


class TokenView(Schema):
    """A token without its secret. It ends with `made_with`. `last_used_at` is right to a minute."""

    id: int
    user: Name
    role: str
    label: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    made_with: int | None
    state: Literal["valid", "revoked", "expired"]


class TokenCreated(TokenView):
    """A new token. Its secret is shown only once."""

    token: str


class TokensRevoked(Schema):
    """Tokens revoked together: the named token, and tokens made with it."""

    revoked: list[int]


class TokenList(Schema):
    """Tokens, newest first."""

    tokens: list[TokenView]


def revoked_words(made: TokensRevoked, token_id: int) -> str:
    """Say which tokens ended together."""
    others = [str(each) for each in made.revoked if each != token_id]
    words = f"Token {token_id} is revoked"
    if token_id not in made.revoked:
        words = f"Token {token_id} had already ended"
    if not others:
        return f"{words}."
    return f"{words}; also revoked: {len(others)} made with it: {', '.join(others)}."


def revoke_line(session: Session, actor: Actor, token_id: int) -> TokensRevoked:
    """Revoke a token, its descendants and their links. Returns the newly revoked tokens."""
    line = select(Token.id).where(Token.id == token_id).cte(recursive=True)
    line = line.union(select(Token.id).where(Token.made_with == line.c.id))
    ids = list(session.scalars(select(line.c.id)))
    living = select(Token).where(Token.id.in_(ids), Token.revoked_at.is_(None)).order_by(Token.id)
    ended, now = list(session.scalars(living)), utc_now()
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
    return TokensRevoked(revoked=[token.id for token in ended])


def record_new_token(session: Session, actor: Actor, token: Token, **more: Any) -> None:
    """Record a new token in the audit log, without its secret."""
    record_new(session, actor, "token.create", token, user=token.user.name, **more)


# Roles of tokens, and of their users, that an organiser may give to others and end.
ORGANISERS_GIVE = ("submitter", "worker")


def may_give(caller: Caller) -> tuple[str, ...]:
    """Return the roles of tokens that a caller may make and revoke for others."""
    return ROLES if caller.is_admin else ORGANISERS_GIVE


@router.command(
    "/tokens",
    Form(CONSOLE, MADE, once="token"),
    role="organiser",
    status=201,
)
def create_token(session: Session, caller: Caller, body: TokenCreate) -> TokenCreated:
    """Make a token for a user, shown only once. An admin makes tokens of organisers and admins."""
    role, allowed = body.role, may_give(caller)
    if role not in allowed:
        raise NotAllowedError(
            f"Only an admin can make tokens of role {role}; yours may make {' and '.join(allowed)}."
        )
    require_valid(session.get_one(Token, caller.token_id))
    user = find_person(session, body.user)
    if not may_hold(user.role, role):
        raise ConflictError(
            f"{user.name} is {user.role} and may have no token of role {role}; an admin can change "
            f"that: `finishline admin user set`."
        )
    if not _may_change(caller, user):
        raise NotAllowedError(f"{user.name} is {user.role}: only an admin can make their tokens.")
    days = body.expires_in_days
    expires_at = None if days is None else utc_now() + timedelta(days=days)
    return _create(session, caller, user, role, body.label, expires_at)


def _may_change(caller: Caller, user: User) -> bool:
    return user.role in ORGANISERS_GIVE or user.id == caller.user_id or caller.is_admin


def _create(
    session: Session,
    caller: Caller,
    user: User,
    role: str,
    label: str | None,
    expires_at: datetime | None,
) -> TokenCreated:
    require_room(session, user)
    made = add_token(
        session, user, role=role, label=label, expires_at=expires_at, made_with=caller.token_id
    )
    record_new_token(session, caller, made.token)
    return TokenCreated.of(made.token, token=made.secret)


@router.read("/tokens", role="organiser")
def list_tokens(
    session: Session, caller: Caller, user: Annotated[str | None, Query(max_length=100)] = None
) -> TokenList:
    """List the tokens you may revoke, newest first, without their secrets."""
    query = select(Token).join(Token.user).order_by(Token.id.desc())
    if not caller.is_admin:
        visible = Token.role.in_(ORGANISERS_GIVE) & User.role.in_(ORGANISERS_GIVE)
        query = query.where(or_(visible, Token.user_id == caller.user_id))
    if user is not None:
        query = query.where(User.name == user)
    return TokenList(tokens=[TokenView.of(token) for token in session.scalars(query)])


@router.command(
    "/tokens/{token_id}",
    Form(CONSOLE + "/{token_id}/revoke", revoked_words, page=CONSOLE),
    role="organiser",
    method="DELETE",
)
def revoke_token(session: Session, caller: Caller, token_id: TokenId) -> TokensRevoked:
    """Revoke a token, and every token made with it."""
    token = find_row(session, Token, token_id)
    user, is_own = token.user, token.user_id == caller.user_id
    given = token.role in ORGANISERS_GIVE and _may_change(caller, user)
    if not (is_own or given or caller.is_admin):
        raise NotAllowedError(
            f"Token {token_id} is {user.name}'s, who is {user.role}: only an admin can change it."
        )
    return revoke_line(session, caller, token_id)


@router.read("/me/tokens", role="user")
def list_my_tokens(session: Session, caller: Caller) -> TokenList:
    """List my tokens without their secrets, newest first."""
    query = select(Token).where(Token.user_id == caller.user_id).order_by(Token.id.desc())
    return TokenList(tokens=[TokenView.of(token) for token in session.scalars(query)])


@router.command(
    "/me/tokens",
    Form(ACCOUNT + "/tokens", MADE, page=ACCOUNT, once="token"),
    role="submitter",
    status=201,
)
def create_my_token(session: Session, caller: Caller, body: OwnTokenCreate) -> TokenCreated:
    """Make a token for myself, at most as wide as the token of this request. It is shown once."""
    held = session.get_one(Token, caller.token_id)
    require_valid(held)
    role, days, expires_at = body.role or held.role, body.expires_in_days, held.expires_at
    if not is_within(role, held.role):
        raise NotAllowedError(f"A token of role {held.role} cannot make one of role {role}.")
    if days is not None:
        expires_at = utc_now() + timedelta(days=days)
        if held.expires_at is not None and expires_at > held.expires_at:
            raise NotAllowedError(
                f"The token you hold ends on {held.expires_at:%Y-%m-%d %H:%M} UTC, and tokens made "
                "with it may not end later; ask an organiser for a longer one."
            )
    return _create(session, caller, held.user, role, body.label, expires_at)


@router.command(
    "/me/tokens/{token_id}",
    Form(ACCOUNT + "/tokens/{token_id}/revoke", revoked_words, page=ACCOUNT),
    role="submitter",
    method="DELETE",
)
def revoke_my_token(session: Session, caller: Caller, token_id: TokenId) -> TokensRevoked:
    """Revoke a token of mine, and every token made with it."""
    token = session.get(Token, token_id)
    if token is None or token.user_id != caller.user_id:
        raise no_such("token", token_id, of="You have no")
    return revoke_line(session, caller, token_id)


@router.read("/me", role="user")
def get_me(session: Session, caller: Caller) -> MeView:
    """Read the user, role and expiry of this request's token."""
    token = session.get_one(Token, caller.token_id)
    user = token.user
    return MeView.of(
        token,
        display_name=user.display_name,
        organisation=user.organisation,
        email=user.email,
        highest_role=user.role,
        token_id=token.id,
    )


@router.command(
    "/me",
    Form(
        ACCOUNT + "/display-name",
        lambda made, body: f"Readers see you as {made.display_name or made.user}.",
        page=ACCOUNT,
        read=lambda fields: {"display_name": filled(fields).get("display_name")},
    ),
    role="submitter",
    method="PATCH",
)
def change_me(session: Session, caller: Caller, body: MeChange) -> MeView:
    """Change the name that readers see with my results. Null takes the account's name."""
    user = session.get_one(User, caller.user_id)
    with audited(session, caller, "user.update", user):
        set_display_name(session, user, body.display_name)
    return get_me(session, caller)
