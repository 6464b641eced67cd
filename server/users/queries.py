"""Reading users and organisations."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, func, or_, select
from sqlalchemy.orm import Session, joinedload

from server.database import utc_now
from server.errors import NotFoundError
from server.models import Organisation, Token, User
from server.users.schemas import OrganisationView, UserView, user_view


def find_user(session: Session, name: str) -> User:
    """A user by name. Raises NotFoundError."""
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise NotFoundError(f"There is no user {name!r}.")
    return user


def read_user(session: Session, name: str) -> UserView:
    """A user by name, as admins see them. Raises NotFoundError."""
    return _views(session, [find_user(session, name)])[0]


def list_users(
    session: Session, *, limit: int, after: str | None = None, search: str | None = None
) -> list[UserView]:
    """Users by name, from behind `after`; of `search` the name or e-mail holds it."""
    query = select(User).options(joinedload(User.organisation)).order_by(User.name).limit(limit)
    if after is not None:
        query = query.where(User.name > after)
    if search:
        query = query.where(or_(_holds(User.name, search), _holds(User.email, search)))
    return _views(session, list(session.scalars(query)))


def _holds(column: Any, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = func.lower(column).contains(text.lower(), autoescape=True)
    return found


def _views(session: Session, users: list[User]) -> list[UserView]:
    found = _tokens_of(session, [user.id for user in users])
    nothing: tuple[int, datetime | None] = (0, None)
    views = []
    for user in users:
        tokens, last_used_at = found.get(user.id, nothing)
        views.append(user_view(user, tokens=tokens, last_used_at=last_used_at))
    return views


def _tokens_of(session: Session, user_ids: list[int]) -> dict[int, tuple[int, datetime | None]]:
    """How many tokens each user has that are still good, and when one of theirs was last used."""
    now = utc_now()
    good = Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > now))
    query = (
        select(Token.user_id, func.count(Token.id).filter(good), func.max(Token.last_used_at))
        .where(Token.user_id.in_(user_ids))
        .group_by(Token.user_id)
    )
    return {row[0]: (row[1], row[2]) for row in session.execute(query)}


def find_organisation(session: Session, name: str) -> Organisation:
    """An organisation by name. Raises NotFoundError."""
    found = session.scalar(select(Organisation).where(Organisation.name == name))
    if found is None:
        raise NotFoundError(
            f"There is no organisation {name!r}; an admin adds it first: "
            "`finishline admin organisation add`."
        )
    return found


def list_organisations(session: Session) -> list[OrganisationView]:
    """Every organisation by name, with its number of users."""
    query = (
        select(Organisation, func.count(User.id))
        .outerjoin(User, User.organisation_id == Organisation.id)
        .group_by(Organisation.id)
        .order_by(Organisation.name)
    )
    return [
        OrganisationView(id=row.id, name=row.name, created_at=row.created_at, users=users)
        for row, users in session.execute(query)
    ]
