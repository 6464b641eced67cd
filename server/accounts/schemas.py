"""Tokens as they cross the API."""

from datetime import datetime, timedelta
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from server.accounts.giving import Rotation, Wanted
from server.accounts.roles import Role, Scope
from server.models import Token

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
    """Who gets a token, for what, and for how long. Without scopes it has all of its role."""

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
        """As it is made."""
        return Wanted(self.role, self.scopes, self.label, _duration(self.expires_in_days))


class OwnTokenCreate(BaseModel):
    """A token for oneself, within the one held: what is left out is as that one has it."""

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
        """As it is made by whoever holds a token of a role."""
        role = self.role or held_role
        return Wanted(role, self.scopes, self.label, _duration(self.expires_in_days))


class TokenRotate(BaseModel):
    """How a fresh token takes over: the old one ends at once, or after `overlap_hours`."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    overlap_hours: float = Field(default=0.0, ge=0, le=LONGEST_OVERLAP_HOURS)
    expires_in_days: Days | None = None

    def rotation(self) -> Rotation:
        """As it is done."""
        return Rotation(timedelta(hours=self.overlap_hours), _duration(self.expires_in_days))


def _duration(days: float | None) -> timedelta | None:
    return timedelta(days=days) if days is not None else None


class TokenView(BaseModel):
    """A token without its secret. `last_used_at` is right to about a minute.

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
    """The tokens that ended together: the one named, those rotated from it or made with it."""

    revoked: list[int]


class TokenList(BaseModel):
    """Tokens, newest first."""

    tokens: list[TokenView]


class MeView(BaseModel):
    """Who the token of this request belongs to, and what it may do until when.

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
    """A stored token as the API shows it."""
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
    """The holder of a token, as they see themselves."""
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
