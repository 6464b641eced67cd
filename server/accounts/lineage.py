"""Tokens that end together: one, those made with it, those rotated from it, and so on down."""

from collections.abc import Iterable

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from server.accounts.service import record_revocation
from server.audit.service import Actor
from server.database import utc_now
from server.errors import NotSignedInError
from server.models import Token


def require_maker(session: Session, token_id: int, *also: int) -> Token:
    """Lock the token that another is made with, and others, until that one is stored.

    A revocation at the same time then sees the one made. Raises NotSignedInError if it was first.
    """
    _lock(session, {token_id, *also})
    maker = session.get_one(Token, token_id)
    session.refresh(maker, ["revoked_at"])
    if maker.revoked_at is not None:
        raise NotSignedInError("This token was revoked; ask an organiser for a new one.")
    return maker


def revoke_line(session: Session, actor: Actor, token_id: int) -> list[int]:
    """Revoke a token and all that descend from it; return the ids of those that still worked.

    A token and the one that took over from it are one line: the children of either end.
    """
    ids: set[int] = set()
    # One that is made meanwhile is seen once its maker is locked.
    while (found := _line(session, token_id)) != ids:
        ids = found
        _lock(session, ids)
    living = select(Token).where(Token.id.in_(ids), Token.revoked_at.is_(None)).order_by(Token.id)
    ended = list(session.scalars(living, execution_options={"populate_existing": True}))
    now = utc_now()
    for token in ended:
        record_revocation(session, actor, token, at=now, named=token_id)
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


def _lock(session: Session, ids: Iterable[int]) -> None:
    """Lock in the order of ids, so that two never wait for each other."""
    session.execute(select(Token.id).where(Token.id.in_(ids)).order_by(Token.id).with_for_update())
