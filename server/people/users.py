"""Users and organisations: admins read and change them, organisers approve users."""

from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from pydantic import AfterValidator, ConfigDict, Field, StrictBool
from sqlalchemy import ColumnElement, Select, false, func, or_, select
from sqlalchemy.orm import Session, selectinload

from finishline.api.people import Role
from finishline.api.schema import Name, Schema
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.error_answers import DISPLAY_PATTERN, EMAIL_PATTERN, NAME_PATTERN
from server.base.errors import (
    ConflictError,
    ContentError,
    no_such,
    problem,
)
from server.base.forms import Body, example
from server.base.models import Organisation, Submission, Token, User
from server.people.accounts import is_live, require_new_name, require_person
from server.people.audit import audited, record_new
from server.people.callers import Caller
from server.people.declared import Form, Routes, filled

router = Routes(tags=["users"])
CONSOLE = "/console/users"
ONE = CONSOLE + "/{user_name}"
Search = Annotated[str | None, Query(max_length=100)]


def _printable(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected printable characters without blanks around them")
    return text


Printable = AfterValidator(_printable)
Line = Annotated[str, Field(min_length=1, max_length=100), Printable]
UserName = Annotated[str, Field(min_length=1, max_length=100, pattern=NAME_PATTERN)]
DisplayName = Annotated[str, Field(min_length=1, max_length=100, pattern=DISPLAY_PATTERN)]
Email = Annotated[str, Field(max_length=254, pattern=EMAIL_PATTERN), Printable]


class UserFields(Body):
    """Fields set by an organiser. Readers see the `display_name` in place of the name."""

    display_name: DisplayName | None = None
    role: Role = "submitter"
    organisation: Line | None = None
    email: Email | None = None


class UserCreate(UserFields):
    """A user to add. Tokens are made separately."""

    model_config = example(name="alice", role="submitter", organisation="Example Labs")

    name: UserName


class UserChange(UserFields):
    """Changes of a user. Omitted fields stay. Null removes the value."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 1,
            "examples": [{"role": "organiser", "disabled": False}],
        }
    )

    disabled: StrictBool = False


class UserErasure(Body):
    """Erasure of a user for ever. `name` repeats the name in the address."""

    model_config = example(name="alice")

    name: str = Field(max_length=100)


class UserKnownChange(Body):
    """Whether the caller approves a user."""

    model_config = example(known=True)

    known: StrictBool


class UserView(Schema):
    """A user. The e-mail is for admins. `role` is the highest that their tokens may have.

    Readers see the `display_name` in place of the name. Code submissions of a user approved since
    `known_at` go to workers without a memory cgroup too. `tokens` counts valid tokens.
    `last_used_at` covers all of them.
    """

    id: int
    name: str
    display_name: str | None = None
    role: str
    organisation: Name | None
    email: str | None
    created_at: datetime
    known_at: datetime | None
    disabled_at: datetime | None
    tokens: int
    last_used_at: datetime | None


class UserList(Schema):
    """Users by name. `next_after` requests the next page."""

    users: list[UserView]
    next_after: str | None


class OrganisationCreate(Body):
    """An organisation for users to belong to."""

    model_config = example(name="Example Labs")

    name: Line


class OrganisationView(Schema):
    """An organisation and how many users it has."""

    id: int
    name: str
    created_at: datetime
    users: int


class OrganisationList(Schema):
    """Every organisation by name."""

    organisations: list[OrganisationView]


def find_user(session: Session, name: str) -> User:
    """Find a user by name. Raises NotFoundError naming the nearest one."""
    user = session.scalar(select(User).where(User.name == name))
    if user is None:
        near = func.length(User.name).between(len(name) - 2, len(name) + 2)
        raise no_such("user", name, known=session.scalars(select(User.name).where(near)))
    return user


def find_person(session: Session, name: str) -> User:
    """Find a user to change. Raises NotFoundError, or ConflictError for the server itself."""
    user = find_user(session, name)
    require_person(user)
    return user


@router.read("/users/{user_name}", role="organiser")
def get_user(session: Session, caller: Caller, user_name: str) -> UserView:
    """Read a user. The e-mail is for admins."""
    found = find_user(session, user_name)
    return _views(session, select(User).where(User.id == found.id), by=caller)[0]


@router.read("/users", role="organiser")
def list_users(
    session: Session,
    caller: Caller,
    limit: Annotated[int, Query(ge=1, le=1000)] = 200,
    after: Search = None,
    q: Search = None,
) -> UserList:
    """List users by name. `q` searches their names, and for admins their e-mails too."""
    query = select(User).options(selectinload(User.organisation)).order_by(User.name)
    if after is not None:
        query = query.where(User.name > after)
    if q:
        by_email = _holds(User.email, q) if caller.is_admin else false()
        query = query.where(or_(_holds(User.name, q), by_email))
    found = _views(session, query.limit(limit + 1), by=caller)
    following = found[limit - 1].name if len(found) > limit else None
    return UserList(users=found[:limit], next_after=following)


def _holds(column: Any, text: str) -> ColumnElement[bool]:
    found: ColumnElement[bool] = func.lower(column).contains(text.lower(), autoescape=True)
    return found


def _views(session: Session, query: Select[User], *, by: Caller) -> list[UserView]:
    live, used = func.count(Token.id).filter(is_live()), func.max(Token.last_used_at)
    query = query.outerjoin(Token, Token.user_id == User.id).group_by(User.id)
    hidden = {} if by.is_admin else {"email": None}
    return [
        UserView.of(user, tokens=tokens, last_used_at=last_used_at, **hidden)
        for user, tokens, last_used_at in session.execute(query.add_columns(live, used))
    ]


def organisation_id(session: Session, name: str | None) -> int | None:
    """Find an organisation's id by name. Raises NotFoundError."""
    if name is None:
        return None
    found = session.scalar(select(Organisation.id).where(Organisation.name == name))
    if found is None:
        raise no_such("organisation", name)
    return found


@router.read("/organisations", role="admin")
def list_organisations(session: Session) -> OrganisationList:
    """List every organisation by name."""
    query = (
        select(Organisation, func.count(User.id))
        .outerjoin(User, User.organisation_id == Organisation.id)
        .group_by(Organisation.id)
        .order_by(Organisation.name)
    )
    found = [OrganisationView.of(row, users=users) for row, users in session.execute(query)]
    return OrganisationList(organisations=found)


@router.command(
    "/users",
    Form(CONSOLE, "{0.name} is added.", to=CONSOLE + "/{0.name}"),
    role="admin",
    status=201,
)
def create_user(session: Session, caller: Caller, body: UserCreate) -> UserView:
    """Create a user. Tokens are made separately."""
    require_new_name(session, body.name)
    user = User(
        **body.model_dump(include={"name", "role", "email"}),
        organisation_id=organisation_id(session, body.organisation),
        created_at=utc_now(),
    )
    session.add(user)
    session.flush()
    set_display_name(session, user, body.display_name)
    record_new(session, caller, "user.create", user)
    return get_user(session, caller, user.name)


def set_display_name(session: Session, user: User, display_name: str | None) -> None:
    """Set the name shown to readers, by default the account's."""
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


FIELDS = ("display_name", "role", "organisation", "email")


@router.command(
    "/users/{user_name}",
    # An empty field removes its value.
    Form(ONE, "{0.name} is changed.", read=lambda fields: dict.fromkeys(FIELDS) | filled(fields)),
    Form(ONE + "/disable", "{0.name} is disabled.", page=ONE, read=lambda _: {"disabled": True}),
    Form(ONE + "/enable", "{0.name} is enabled.", page=ONE, read=lambda _: {"disabled": False}),
    role="admin",
    method="PATCH",
)
def change_user(session: Session, caller: Caller, user_name: str, body: UserChange) -> UserView:
    """Change display name, role, organisation or e-mail, disable or enable. Omitted fields stay.

    From then on the server refuses tokens above a lowered role, all tokens of a disabled user, and
    the sessions of both.
    """
    user = find_person(session, user_name)
    asked = body.model_dump(exclude_unset=True)
    if not asked:
        raise ContentError(
            "Nothing to change. Give display_name, role, organisation, email or disabled."
        )
    is_disabled = user.disabled_at is not None
    role = body.role if "role" in asked else user.role
    disables = body.disabled if "disabled" in asked else is_disabled
    if user.id == caller.user_id and (role != user.role or disables):
        raise ConflictError("Only another admin can change your own role and account.")
    with audited(session, caller, "user.update", user):
        if "display_name" in asked:
            set_display_name(session, user, body.display_name)
        if "organisation" in asked:
            user.organisation_id = organisation_id(session, body.organisation)
        if "email" in asked:
            user.email = body.email
        if (role, disables) != (user.role, is_disabled):
            user.role = role
            user.disabled_at = (user.disabled_at or utc_now()) if disables else None
            user.end_sessions()
    session.refresh(user)
    return get_user(session, caller, user_name)


@router.command("/users/{user_name}/known", role="organiser", method="PUT")
def change_known(
    session: Session, caller: Caller, user_name: str, body: UserKnownChange
) -> UserView:
    """Approve a user, so that workers without a memory cgroup train their code, or revoke it.

    Such a sandbox bounds less of the host's memory: approve only users whom you know.
    """
    user = find_person(session, user_name)
    if body.known != (user.known_at is not None):
        action = "user.approve" if body.known else "user.disapprove"
        with audited(session, caller, action, user):
            user.known_at = utc_now() if body.known else None
    return get_user(session, caller, user_name)


@router.command(
    "/organisations",
    Form(
        "/console/organisations",
        "{0.name} is added.",
        page=CONSOLE,
        renamed={"name": "organisation_name"},
    ),
    role="admin",
    status=201,
)
def create_organisation(
    session: Session, caller: Caller, body: OrganisationCreate
) -> OrganisationView:
    """Add an organisation, for users to belong to."""
    require_new_name(session, body.name)
    made = Organisation(name=body.name, created_at=utc_now())
    session.add(made)
    record_new(session, caller, "organisation.create", made)
    return OrganisationView.of(made, users=0)
