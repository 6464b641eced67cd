"""Issue tokens to others: make, rotate and revoke them, with their lineage."""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from finishline.api.people import OwnTokenCreate, TokenCreate, TokenRotate
from server.base.database import utc_now
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    NotSignedInError,
    no_such,
)
from server.base.models import Invitation, Token, User
from server.people.accounts import (
    ROLES,
    SCOPES_OF,
    NewToken,
    add_token,
    create_token,
    find_own_token,
    find_user_or_none,
    in_order,
    is_expired,
    is_within,
    logged,
    may_hold,
    record_new_token,
    record_revocation,
    record_rotation,
)
from server.people.audit import Actor
from server.people.dependencies import Caller


def require_maker(session: Session, token_id: int, *also: int) -> Token:
    """Lock the token that another is made with, and others, until that one is stored.

    A revocation at the same time then includes it. Raises NotSignedInError if that came first.
    """
    lock_tokens(session, {token_id, *also})
    maker = session.get_one(Token, token_id)
    session.refresh(maker, ["revoked_at"])
    if maker.revoked_at is not None:
        raise NotSignedInError("This token was revoked; ask an organiser for a new one.")
    return maker


def revoke_line(session: Session, actor: Actor, token_id: int) -> list[int]:
    """Revoke a token and all that descend from it; return the ids of those that still worked.

    Links by which people join, made with any of them, end too.

    A rotated token and its successor are one line: tokens made with either are revoked too.
    """
    ids: set[int] = set()
    # One that is made meanwhile is seen once its maker is locked.
    while (found := _line(session, token_id)) != ids:
        ids = found
        lock_tokens(session, ids)
    living = select(Token).where(Token.id.in_(ids), Token.revoked_at.is_(None)).order_by(Token.id)
    ended = list(session.scalars(living, execution_options={"populate_existing": True}))
    now = utc_now()
    for token in ended:
        record_revocation(session, actor, token, at=now, named=token_id)
    session.execute(
        update(Invitation)
        .where(Invitation.made_with.in_(ids), Invitation.revoked_at.is_(None))
        .values(revoked_at=now)
        .execution_options(synchronize_session=False)
    )
    return [token.id for token in ended]


def _line(session: Session, token_id: int) -> set[int]:
    older = select(Token.id, Token.rotated_from).where(Token.id == token_id).cte(recursive=True)
    older = older.union(
        select(Token.id, Token.rotated_from).where(Token.id == older.c.rotated_from)
    )
    line = select(older.c.id).cte(recursive=True)
    line = line.union(
        select(Token.id).where(or_(Token.made_with == line.c.id, Token.rotated_from == line.c.id))
    )
    return set(session.scalars(select(line.c.id)))


def lock_tokens(session: Session, ids: Iterable[int]) -> None:
    """Lock tokens in the order of their ids, which prevents deadlocks."""
    session.execute(select(Token.id).where(Token.id.in_(ids)).order_by(Token.id).with_for_update())


# Roles of tokens that an organiser may give and end, and roles of their users; beside one's own.
ORGANISERS_GIVE = ("submitter", "worker")


def may_give(caller: Caller) -> tuple[str, ...]:
    """Roles of the tokens that a caller may make, rotate and revoke for others."""
    return ROLES if caller.may("administer") else ORGANISERS_GIVE


def give_token(session: Session, caller: Caller, wanted: TokenCreate) -> NewToken:
    """Make a token for any user; an unknown user is made with its role.

    Raises NotAllowedError, ConflictError if the user may have no such token, ContentError.
    """
    scopes = _scopes_of(wanted.role, wanted.scopes)
    _require_may_give(caller, wanted.role, scopes)
    require_maker(session, caller.token_id)
    user = find_user_or_none(session, wanted.user)
    if user is not None:
        _require_may_get(caller, user, wanted.role)
    expires_in = _lifetime(wanted.expires_in_days)
    made = create_token(session, user_name=wanted.user, role=wanted.role, expires_in=expires_in)
    made.token.scopes = scopes
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
    """Revoke another user's token and all that descend from it; returns the ids of all revoked.

    Raises NotFoundError, NotAllowedError.
    """
    return revoke_line(session, caller, _others_token(session, caller, token_id).id)


def rotate_token(session: Session, caller: Caller, token_id: int, how: TokenRotate) -> NewToken:
    """Rotate another user's token to a fresh one. It keeps the old one's expiry unless another is
    given. Raises NotFoundError, NotAllowedError, ConflictError."""
    require_maker(session, caller.token_id, token_id)
    token = _others_token(session, caller, token_id)
    _require_may_give(caller, token.role, token.scopes)
    expires_in = _lifetime(how.expires_in_days)
    expires_at = utc_now() + expires_in if expires_in is not None else token.expires_at
    return _take_over(session, caller, token, how.overlap_hours, expires_at)


def make_own_token(session: Session, caller: Caller, wanted: OwnTokenCreate) -> NewToken:
    """Make a token for oneself, within the one in use. Raises NotAllowedError, ContentError."""
    held = require_maker(session, caller.token_id)
    role = wanted.role or held.role
    if not is_within(role, held.role):
        raise NotAllowedError(f"A token of role {held.role} cannot make one of role {role}.")
    scopes = (
        in_order(set(SCOPES_OF[role]) & set(held.scopes))
        if wanted.scopes is None
        else _scopes_of(role, wanted.scopes)
    )
    _require_within(held, scopes)
    made = add_token(
        session,
        held.user,
        role=role,
        scopes=scopes,
        label=wanted.label,
        expires_at=_own_expiry(held, wanted.expires_in_days),
        made_with=held.id,
    )
    record_new_token(session, caller, made.token)
    return made


def revoke_own_token(session: Session, caller: Caller, token_id: int) -> list[int]:
    """Revoke one of one's own tokens and all that descend from it; returns the ids of all revoked.

    Raises NotFoundError.
    """
    return revoke_line(session, caller, find_own_token(session, caller.user_id, token_id).id)


def rotate_own_token(session: Session, caller: Caller, token_id: int, how: TokenRotate) -> NewToken:
    """Rotate one of one's own tokens to a fresh one, if that is within the one in use.

    Raises NotFoundError, NotAllowedError, ConflictError.
    """
    held = require_maker(session, caller.token_id, token_id)
    token = find_own_token(session, caller.user_id, token_id)
    if not is_within(token.role, held.role):
        raise NotAllowedError(
            f"Token {token_id} is of role {token.role}, yours of role {held.role}: rotate it "
            "with itself."
        )
    _require_within(held, token.scopes)
    expires_at = _own_expiry(held, how.expires_in_days)
    if how.expires_in_days is None and token.expires_at is not None:
        expires_at = min(token.expires_at, expires_at or token.expires_at)
    return _take_over(session, caller, token, how.overlap_hours, expires_at)


def _lifetime(days: float | None) -> timedelta | None:
    return timedelta(days=days) if days is not None else None


def _scopes_of(role: str, wanted: Sequence[str] | None) -> list[str]:
    """Requested scopes; all of the role if there are none. Raises ContentError."""
    known = SCOPES_OF[role]
    if wanted is None:
        return list(known)
    if beyond := [scope for scope in wanted if scope not in known]:
        raise ContentError(
            f"A token of role {role} has no scope {beyond[0]}; expected some of {', '.join(known)}."
        )
    return in_order(wanted)


def _require_may_give(caller: Caller, role: str, scopes: Sequence[str]) -> None:
    allowed = may_give(caller)
    if role not in allowed:
        raise NotAllowedError(
            f"Only an admin can make tokens of role {role}; yours may make {' and '.join(allowed)}."
        )
    # An organiser's token may give the scope `work`, although it does not have it.
    if beyond := [scope for scope in scopes if scope not in {*caller.scopes, "work"}]:
        raise NotAllowedError(
            f"Your token lacks the scope {beyond[0]}, so it cannot give it to another token."
        )


def _require_may_get(caller: Caller, user: User, role: str) -> None:
    if not may_hold(user.role, role):
        raise ConflictError(
            f"{user.name} is {user.role} and may have no token of role {role}; an admin can change "
            f"that: `finishline admin user set`."
        )
    own = user.id == caller.user_id
    if user.role not in ORGANISERS_GIVE and not own and not caller.may("administer"):
        raise NotAllowedError(f"{user.name} is {user.role}: only an admin can make their tokens.")


def _others_token(session: Session, caller: Caller, token_id: int) -> Token:
    token = session.get(Token, token_id)
    if token is None:
        raise no_such("token", token_id)
    own = token.user_id == caller.user_id
    theirs = token.role in ORGANISERS_GIVE and token.user.role in ORGANISERS_GIVE
    if not (own or theirs or caller.may("administer")):
        raise NotAllowedError(
            f"Token {token_id} is {token.user.name}'s, who is {token.user.role}: only an admin "
            "can change it."
        )
    return token


def _require_within(held: Token, scopes: Sequence[str]) -> None:
    if not scopes:
        raise ContentError("A token needs at least one scope.")
    if beyond := [scope for scope in scopes if scope not in held.scopes]:
        raise NotAllowedError(
            f"Your token lacks the scope {beyond[0]}, so it cannot make a token with it."
        )


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


def _take_over(
    session: Session,
    caller: Caller,
    old: Token,
    overlap_hours: float,
    expires_at: datetime | None,
) -> NewToken:
    # Of two that rotate it at once, the second finds it ended: it was locked with its maker.
    session.refresh(old, ["revoked_at", "expires_at"])
    now = utc_now()
    if old.revoked_at is not None or is_expired(old, now):
        raise ConflictError(f"Token {old.id} has ended; make a fresh one instead.")
    before = logged(old)
    made = add_token(
        session,
        old.user,
        role=old.role,
        scopes=old.scopes,
        label=old.label,
        expires_at=expires_at,
        rotated_from=old.id,
        made_with=caller.token_id,
    )
    if overlap_hours:
        end = now + timedelta(hours=overlap_hours)
        old.expires_at = end if old.expires_at is None else min(old.expires_at, end)
    else:
        old.revoked_at = now
    record_rotation(session, caller, made.token, old=old, before=before)
    return made
