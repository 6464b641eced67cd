"""Users and organisations as they cross the API."""

from datetime import datetime
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from server.accounts.roles import Role
from server.accounts.schemas import UserName
from server.models import User

# One address and no more: what is before and behind the @ is for the mail server to judge.
EMAIL_PATTERN = r"^[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+$"


def _printable_ends(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected printable characters without blanks around them")
    return text


Email = Annotated[
    str, Field(max_length=254, pattern=EMAIL_PATTERN), AfterValidator(_printable_ends)
]
OrganisationName = Annotated[
    str, Field(min_length=1, max_length=100), AfterValidator(_printable_ends)
]


class UserCreate(BaseModel):
    """Somebody who is to have an account; tokens are made apart from it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"name": "alice", "role": "submitter", "organisation": "Example Labs"}]
        },
    )

    name: UserName
    role: Role = "submitter"
    organisation: OrganisationName | None = None
    email: Email | None = None


class UserChange(BaseModel):
    """What is to change of a user. What is left out stays; null takes it away."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "minProperties": 1,
            "examples": [{"role": "organiser", "disabled": False}],
        },
    )

    role: Role = "submitter"
    organisation: OrganisationName | None = None
    email: Email | None = None
    disabled: StrictBool = False

    def asked(self) -> dict[str, object]:
        """Only what was asked for."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


class UserView(BaseModel):
    """A user, for admins. `role` is the highest that their tokens may have.

    `tokens` counts those that are neither revoked nor expired; `last_used_at` is of any of theirs.
    """

    id: int
    name: str
    role: str
    organisation: str | None
    email: str | None
    created_at: datetime
    disabled_at: datetime | None
    tokens: int
    last_used_at: datetime | None


class UserList(BaseModel):
    """Users by name; `next_after` asks for the next page."""

    users: list[UserView]
    next_after: str | None


class OrganisationCreate(BaseModel):
    """An organisation that users may belong to."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"name": "Example Labs"}]}
    )

    name: OrganisationName


class OrganisationView(BaseModel):
    """An organisation and how many users it has."""

    id: int
    name: str
    created_at: datetime
    users: int


class OrganisationList(BaseModel):
    """Every organisation by name."""

    organisations: list[OrganisationView]


def user_view(user: User, *, tokens: int, last_used_at: datetime | None) -> UserView:
    """A stored user as admins see them."""
    return UserView(
        id=user.id,
        name=user.name,
        role=user.role,
        organisation=user.organisation.name if user.organisation is not None else None,
        email=user.email,
        created_at=user.created_at,
        disabled_at=user.disabled_at,
        tokens=tokens,
        last_used_at=last_used_at,
    )
