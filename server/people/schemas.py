"""API and page models of accounts, users and organisations."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StrictBool

from server.base.models import Token, User
from server.people.accounts import Role, Scope
from server.people.token_issue import Rotation, Wanted

LONGEST_DAYS = 3650
LONGEST_OVERLAP_HOURS = 168
# No name begins with a dot: "." and ".." are no step of an address.
NAME_PATTERN = r"^[\w@ -][\w.@ -]*$"
Days = Annotated[float, Field(gt=0, le=LONGEST_DAYS)]
UserName = Annotated[str, Field(min_length=1, max_length=100, pattern=NAME_PATTERN)]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected one line of printable characters")
    return text


Label = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
Scopes = Annotated[list[Scope], Field(min_length=1, max_length=20)]


class TokenCreate(BaseModel):
    """Token to make: its user, role, scopes and expiry. Without scopes it has all of its role."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"user": "alice", "role": "submitter", "expires_in_days": 90}]
        },
    )

    user: UserName
    role: Role
    scopes: Scopes | None = None
    label: Label | None = None
    expires_in_days: Days | None = None

    def wanted(self) -> Wanted:
        """Token as the service makes it."""
        return Wanted(self.role, self.scopes, self.label, _duration(self.expires_in_days))


class OwnTokenCreate(BaseModel):
    """Own token to make, within the one in use; omitted fields are as that one has them."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"label": "nightly run", "scopes": ["submit"], "expires_in_days": 30}]
        },
    )

    label: Label | None = None
    role: Role | None = None
    scopes: Scopes | None = None
    expires_in_days: Days | None = None

    def wanted(self, held_role: str) -> Wanted:
        """Token as the service makes it, for the holder of a token of a role."""
        role = self.role or held_role
        return Wanted(role, self.scopes, self.label, _duration(self.expires_in_days))


class TokenRotate(BaseModel):
    """Rotation of a token: the old one ends at once, or after `overlap_hours`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    overlap_hours: float = Field(default=0.0, ge=0, le=LONGEST_OVERLAP_HOURS)
    expires_in_days: Days | None = None

    def rotation(self) -> Rotation:
        """Rotation as the service does it."""
        return Rotation(timedelta(hours=self.overlap_hours), _duration(self.expires_in_days))


def _duration(days: float | None) -> timedelta | None:
    return timedelta(days=days) if days is not None else None


class TokenView(BaseModel):
    """A token without its secret. `last_used_at` is accurate to about a minute.

    It ends with the token it was `made_with`, and with the one it was `rotated_from`.
    """

    id: int
    user: str
    role: str
    scopes: list[str]
    label: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    rotated_from: int | None
    made_with: int | None


class TokenCreated(TokenView):
    """A token just made: the only time its secret is shown."""

    token: str


class TokensRevoked(BaseModel):
    """Tokens revoked together: the one named, those rotated from it or made with it."""

    revoked: list[int]


class TokenList(BaseModel):
    """Tokens, newest first."""

    tokens: list[TokenView]


class MeView(BaseModel):
    """User, role, scopes and expiry of this request's token.

    `role` is the token's, `highest_role` the highest that this user's tokens may have.
    """

    user: str
    organisation: str | None
    email: str | None
    highest_role: str
    token_id: int
    label: str | None
    role: str
    scopes: list[str]
    expires_at: datetime | None


def token_view(token: Token) -> TokenView:
    """View of a stored token."""
    return TokenView(
        id=token.id,
        user=token.user.name,
        role=token.role,
        scopes=token.scopes,
        label=token.label,
        created_at=token.created_at,
        expires_at=token.expires_at,
        revoked_at=token.revoked_at,
        last_used_at=token.last_used_at,
        rotated_from=token.rotated_from,
        made_with=token.made_with,
    )


def me_view(token: Token) -> MeView:
    """View of a token's holder for themselves."""
    user = token.user
    return MeView(
        user=user.name,
        organisation=user.organisation.name if user.organisation is not None else None,
        email=user.email,
        highest_role=user.role,
        token_id=token.id,
        label=token.label,
        role=token.role,
        scopes=token.scopes,
        expires_at=token.expires_at,
    )


# A single address; the mail server decides about the parts before and behind the @.
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
    """User to add; tokens are made separately."""

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
    """Changes of a user. Omitted fields stay; null removes the value."""

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
        """Fields that the request contains."""
        return {name: getattr(self, name) for name in sorted(self.model_fields_set)}


class UserView(BaseModel):
    """A user, for admins. `role` is the highest that their tokens may have.

    `tokens` counts those that are neither revoked nor expired; `last_used_at` covers all of theirs.
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
    """Users by name; `next_after` requests the next page."""

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
    """View of a stored user for admins."""
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
