"""Users and organisations: made and changed by admins, each change in the audit log."""

from typing import Any

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.accounts.names import require_new_name
from server.audit.service import Subject, record
from server.database import utc_now
from server.dependencies import Caller
from server.errors import ConflictError, ContentError
from server.models import ConsoleSession, Organisation, Token, User
from server.users.queries import find_organisation, find_user
from server.users.schemas import UserChange, UserCreate


def create_user(session: Session, caller: Caller, wanted: UserCreate) -> User:
    """Make an account without a token. Raises ConflictError, ContentError, NotFoundError."""
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
    _record(session, caller, "user.create", user, before=None)
    return user


def change_user(session: Session, caller: Caller, name: str, change: UserChange) -> User:
    """Change what is asked for. Nobody takes the console from themselves.

    Tokens beyond a lower role are refused from then on, those of a disabled user all, and the
    sessions of either end. Raises NotFoundError, ConflictError, ContentError.
    """
    user = find_user(session, name)
    asked = change.asked()
    if not asked:
        raise ContentError("Nothing to change: name role, organisation, email or disabled.")
    _refuse_locking_oneself_out(caller, user, asked)
    before, email = _logged(user), user.email
    if "role" in asked:
        user.role = change.role
    if "organisation" in asked:
        user.organisation_id = _organisation(session, change.organisation)
    if "email" in asked:
        user.email = change.email
    if "disabled" in asked and change.disabled != (user.disabled_at is not None):
        user.disabled_at = utc_now() if change.disabled else None
    session.flush()
    session.refresh(user)
    if user.role != before["role"] or user.disabled_at is not None:
        _end_sessions(session, user)
    if _logged(user) != before or user.email != email:
        _record(session, caller, "user.update", user, before=before)
    return user


def create_organisation(session: Session, caller: Caller, name: str) -> Organisation:
    """Add an organisation. Raises ConflictError, ContentError."""
    require_new_name(session, name)
    made = Organisation(name=name, created_at=utc_now())
    session.add(made)
    session.flush()
    subject = Subject("organisation", str(made.id))
    record(
        session, caller, "organisation.create", subject,
        reason=None, before=None, after={"name": name},
    )  # fmt: skip
    return made


def _organisation(session: Session, name: str | None) -> int | None:
    return find_organisation(session, name).id if name is not None else None


def _refuse_locking_oneself_out(caller: Caller, user: User, asked: dict[str, object]) -> None:
    """With this there is always an admin left: whoever disables or lowers another is one."""
    lowers = asked.get("role", user.role) != user.role or asked.get("disabled")
    if user.id == caller.user_id and lowers:
        raise ConflictError("Your own role and account are for another admin to change.")


def _end_sessions(session: Session, user: User) -> None:
    tokens = select(Token.id).where(Token.user_id == user.id)
    session.execute(delete(ConsoleSession).where(ConsoleSession.token_id.in_(tokens)))


def _record(
    session: Session, caller: Caller, action: str, user: User, *, before: dict[str, Any] | None
) -> None:
    subject = Subject("user", user.name)
    record(session, caller, action, subject, reason=None, before=before, after=_logged(user))


def _logged(user: User) -> dict[str, Any]:
    """What the audit log keeps of a user: not the e-mail, for it forgets nothing."""
    return {
        "role": user.role,
        "organisation": user.organisation.name if user.organisation is not None else None,
        "has_email": user.email is not None,
        "disabled_at": user.disabled_at,
    }
