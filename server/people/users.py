"""Read and change users and organisations, for admins; read and approve users, for organisers."""

from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, false, func, or_, select
from sqlalchemy.orm import Session, joinedload

from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.errors import (
    ConflictError,
    ContentError,
    no_such,
    problem,
)
from server.base.models import Organisation, Submission, Token, User
from server.people.accounts import require_new_name, require_person
from server.people.audit import audited, record_new
from server.people.dependencies import Caller
from server.people.views import OrganisationView, UserChange, UserCreate, UserView


def find_user(session: Session, name: str) -> User:
    """Find a user by name. Raises NotFoundError."""
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        raise no_such("user", name)
    return user


def find_person(session: Session, name: str) -> User:
    """Find a user to change. Raises NotFoundError, or ConflictError for the server's own."""
    user = find_user(session, name)
    require_person(user)
    return user


def read_user(session: Session, name: str, *, by: Caller) -> UserView:
    """Read a user by name, as an admin or organiser sees them. Raises NotFoundError."""
    return _views(session, [find_user(session, name)], by=by)[0]


def list_users(
    session: Session,
    *,
    by: Caller,
    limit: int,
    after: str | None = None,
    search: str | None = None,
) -> list[UserView]:
    """List users by name, after `after`; with `search` those with it in their name.

    An admin finds them by their e-mail too, which nobody else sees.
    """
    query = select(User).options(joinedload(User.organisation)).order_by(User.name).limit(limit)
    if after is not None:
        query = query.where(User.name > after)
    if search:
        by_email = _holds(User.email, search) if by.is_admin else false()
        query = query.where(or_(_holds(User.name, search), by_email))
    return _views(session, list(session.scalars(query)), by=by)


def _holds(column: Any, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = func.lower(column).contains(text.lower(), autoescape=True)
    return found


def _views(session: Session, users: list[User], *, by: Caller) -> list[UserView]:
    found = _tokens_of(session, [user.id for user in users])
    nothing: tuple[int, datetime | None] = (0, None)
    views = []
    for user in users:
        tokens, last_used_at = found.get(user.id, nothing)
        views.append(
            UserView.of(
                user,
                organisation=user.organisation.name if user.organisation is not None else None,
                email=user.email if by.is_admin else None,
                tokens=tokens,
                last_used_at=last_used_at,
            )
        )
    return views


def _tokens_of(session: Session, user_ids: list[int]) -> dict[int, tuple[int, datetime | None]]:
    now = utc_now()
    good = Token.revoked_at.is_(None) & (Token.expires_at.is_(None) | (Token.expires_at > now))
    query = (
        select(Token.user_id, func.count(Token.id).filter(good), func.max(Token.last_used_at))
        .where(Token.user_id.in_(user_ids))
        .group_by(Token.user_id)
    )
    return {row[0]: (row[1], row[2]) for row in session.execute(query)}


def find_organisation(session: Session, name: str) -> Organisation:
    """Find an organisation by name. Raises NotFoundError."""
    found = session.scalar(select(Organisation).where(Organisation.name == name))
    if found is None:
        raise no_such("organisation", name)
    return found


def list_organisations(session: Session) -> list[OrganisationView]:
    """List every organisation by name, with its number of users."""
    query = (
        select(Organisation, func.count(User.id))
        .outerjoin(User, User.organisation_id == Organisation.id)
        .group_by(Organisation.id)
        .order_by(Organisation.name)
    )
    return [OrganisationView.of(row, users=users) for row, users in session.execute(query)]


def create_user(session: Session, caller: Caller, wanted: UserCreate) -> User:
    """Create a user without a token. Raises ConflictError, ContentError, NotFoundError."""
    require_new_name(session, wanted.name)
    user = User(
        name=wanted.name,
        role=wanted.role,
        email=wanted.email,
        organisation_id=_organisation(session, wanted.organisation),
        created_at=utc_now(),
    )
    session.add(user)
    session.flush()
    set_display_name(session, user, wanted.display_name)
    record_new(session, caller, "user.create", user)
    return user


def set_display_name(session: Session, user: User, display_name: str | None) -> None:
    """Set the name that readers see, None for that of the account."""
    wanted = None if display_name == user.name else display_name
    if wanted == user.display_name:
        return
    if wanted is not None:
        try:
            require_new_name(session, wanted, user_id=user.id)
        except (ConflictError, ContentError) as error:
            error.problems = [problem("display_name", error.detail, "another display name")]
            raise
    user.display_name = wanted
    own = select(Submission.benchmark_id).where(Submission.user_id == user.id).distinct()
    for benchmark_id in sorted(session.scalars(own)):
        raise_board_version(session, benchmark_id)


def change_me(session: Session, caller: Caller, display_name: str | None) -> None:
    """Change the caller's own display name. Raises ContentError, ConflictError."""
    user = session.get_one(User, caller.user_id)
    with audited(session, caller, "user.update", user):
        set_display_name(session, user, display_name)


def change_user(session: Session, caller: Caller, name: str, change: UserChange) -> User:
    """Change the requested fields of a user. Nobody may lower or disable themselves.

    Tokens above a lowered role are refused from then on, all tokens of a disabled user, and so are
    the sessions of either.
    """
    user = find_person(session, name)
    asked = change.model_dump(exclude_unset=True)
    if not asked:
        raise ContentError(
            "Nothing to change. Give display_name, role, organisation, email or disabled."
        )
    _refuse_locking_oneself_out(caller, user, asked)
    with audited(session, caller, "user.update", user):
        if "display_name" in asked:
            set_display_name(session, user, change.display_name)
        if "role" in asked and change.role != user.role:
            user.role = change.role
            user.end_sessions()
        if "organisation" in asked:
            user.organisation_id = _organisation(session, change.organisation)
        if "email" in asked:
            user.email = change.email
        if "disabled" in asked and change.disabled != (user.disabled_at is not None):
            user.disabled_at = utc_now() if change.disabled else None
            user.end_sessions()
    session.refresh(user)
    return user


def change_known(session: Session, caller: Caller, name: str, *, known: bool) -> User:
    """Take a user as known to an organiser, or no longer. Raises NotFoundError."""
    user = find_person(session, name)
    if known == (user.known_at is not None):
        return user
    action = "user.approve" if known else "user.disapprove"
    with audited(session, caller, action, user):
        user.known_at = utc_now() if known else None
    return user


def create_organisation(session: Session, caller: Caller, name: str) -> Organisation:
    """Add an organisation. Raises ConflictError, ContentError."""
    require_new_name(session, name)
    made = Organisation(name=name, created_at=utc_now())
    session.add(made)
    record_new(session, caller, "organisation.create", made)
    return made


def _organisation(session: Session, name: str | None) -> int | None:
    return find_organisation(session, name).id if name is not None else None


def _refuse_locking_oneself_out(caller: Caller, user: User, asked: dict[str, object]) -> None:
    lowers = asked.get("role", user.role) != user.role or asked.get("disabled")
    if user.id == caller.user_id and lowers:
        raise ConflictError("Only another admin can change your own role and account.")
