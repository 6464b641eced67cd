"""Bodies and views of tokens, invitations, users and organisations."""

from datetime import date, datetime
from typing import Annotated, Literal

from pydantic import AfterValidator, ConfigDict, Field, StrictBool

from finishline.api.people import MeView, Role
from finishline.api.schema import Schema
from server.base.database import utc_now
from server.base.error_answers import DISPLAY_PATTERN, DOMAIN_PATTERN, EMAIL_PATTERN, NAME_PATTERN
from server.base.forms import NO_FLAG, Body, example
from server.base.models import Token
from server.people.accounts import is_expired

LONGEST_DAYS = 3650
LONGEST_LINK_DAYS = 366
MOST_USES = 1000


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected one line of printable characters")
    return text


def _printable_ends(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected printable characters without blanks around them")
    return text


Days = Annotated[float, Field(gt=0, le=LONGEST_DAYS)]
UserName = Annotated[str, Field(min_length=1, max_length=100, pattern=NAME_PATTERN)]
DisplayName = Annotated[str, Field(min_length=1, max_length=100, pattern=DISPLAY_PATTERN)]
Label = Annotated[str, Field(min_length=1, max_length=100), AfterValidator(_printable)]
Email = Annotated[
    str, Field(max_length=254, pattern=EMAIL_PATTERN), AfterValidator(_printable_ends)
]
OrganisationName = Annotated[
    str, Field(min_length=1, max_length=100), AfterValidator(_printable_ends)
]


class TokenCreate(Body):
    """Token to make: its user, role and expiry."""

    model_config = example(user="alice", role="submitter", expires_in_days=90)

    user: UserName
    role: Role
    label: Label | None = None
    expires_in_days: Days | None = None


class OwnTokenCreate(Body):
    """Own token to make, within the one in use. Omitted fields are as that one has them."""

    model_config = example(label="nightly run", role="submitter", expires_in_days=30)

    label: Label | None = None
    role: Role | None = None
    expires_in_days: Days | None = None


class TokenView(Schema):
    """A token without its secret. `last_used_at` is accurate to about a minute.

    It ends with the token it was `made_with`.
    """

    id: int
    user: str
    role: str
    label: str | None
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    last_used_at: datetime | None
    made_with: int | None
    state: Literal["valid", "revoked", "expired"]


class TokenCreated(TokenView):
    """A token just made: the only time its secret is shown."""

    token: str


class TokensRevoked(Schema):
    """Tokens revoked together: the one named, and those made with it."""

    revoked: list[int]


class TokenList(Schema):
    """Tokens, newest first."""

    tokens: list[TokenView]


class InvitationCreate(Body):
    """Link to make by which one person joins, or a class.

    It ends with `last_day`, in 7 days if absent, or once `uses` people joined. With a `mail_domain`
    they name an address there. `name` is proposed to a single person. With `known` the organiser
    knows who joins: workers whose sandbox has no memory cgroup train their code submissions too.
    """

    model_config = example(uses=200, last_day="2027-02-01", mail_domain="uni.example")

    role: Role = "submitter"
    uses: Annotated[int, Field(ge=1, le=MOST_USES), NO_FLAG] = 1
    last_day: date | None = None
    mail_domain: str | None = Field(default=None, max_length=253, pattern=DOMAIN_PATTERN)
    organisation: str | None = Field(default=None, min_length=1, max_length=100)
    name: UserName | None = None
    known: bool = False


class InvitationView(Schema):
    """A link by which people join, without its code.

    Who joins with it has a token that ends with the one the link was `made_with`.
    """

    id: int
    role: str
    uses: int
    uses_allowed: int
    expires_at: datetime
    mail_domain: str | None
    organisation: str | None
    name: str | None
    known: bool
    made_by: str
    made_with: int
    created_at: datetime
    state: Literal["open", "used up", "expired", "revoked"]


class InvitationCreated(InvitationView):
    """A link just made: the only time its address is shown.

    `remark` says that code submissions of those who join will wait for an organiser's approval.
    """

    link: str
    remark: str | None = None


class InvitationList(Schema):
    """Links by which people join, newest first."""

    invitations: list[InvitationView]


class MeChange(Body):
    """Changes of one's own account: the name that readers see in place of the account's, or null.

    No other user, organisation or submitter of published results may have one like it.
    """

    model_config = example(display_name="Ada Lovelace")

    display_name: DisplayName | None


class UserFields(Body):
    """Fields that an organiser sets. Readers see the `display_name` in place of the name."""

    display_name: DisplayName | None = None
    role: Role = "submitter"
    organisation: OrganisationName | None = None
    email: Email | None = None


class UserCreate(UserFields):
    """User to add. Tokens are made separately."""

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
    """Erasure of a user, and why. `name` repeats the one in the address: nothing brings it back."""

    model_config = example(name="alice")

    name: str = Field(max_length=100)


class UserKnown(Schema):
    """A user, and since when an organiser knows them.

    Code submissions of a known user go to workers without a memory cgroup too.
    """

    name: str
    known_at: datetime | None


class UserKnownChange(Body):
    """Whether the caller knows a user."""

    model_config = example(known=True)

    known: StrictBool


class UserView(UserKnown):
    """A user, for admins. `role` is the highest that their tokens may have.

    Readers see the `display_name` in place of the name. Code submissions of a user who is known
    since `known_at` go to workers without a memory cgroup too. `tokens` counts those that are
    neither revoked nor expired. `last_used_at` covers all of theirs.
    """

    id: int
    display_name: str | None = None
    role: str
    organisation: str | None
    email: str | None
    created_at: datetime
    disabled_at: datetime | None
    tokens: int
    last_used_at: datetime | None


class UserList(Schema):
    """Users by name. `next_after` requests the next page."""

    users: list[UserView]
    next_after: str | None


class OrganisationCreate(Body):
    """An organisation that users may belong to."""

    model_config = example(name="Example Labs")

    name: OrganisationName


class OrganisationView(Schema):
    """An organisation and how many users it has."""

    id: int
    name: str
    created_at: datetime
    users: int


class OrganisationList(Schema):
    """Every organisation by name."""

    organisations: list[OrganisationView]


def token_view(token: Token) -> TokenView:
    """View of a stored token."""
    state = "expired" if is_expired(token, utc_now()) else "valid"
    if token.revoked_at is not None:
        state = "revoked"
    return TokenView.of(token, user=token.user.name, state=state)


def me_view(token: Token) -> MeView:
    """View of a token's holder for themselves."""
    user = token.user
    return MeView.of(
        token,
        user=user.name,
        display_name=user.display_name,
        organisation=user.organisation.name if user.organisation is not None else None,
        email=user.email,
        highest_role=user.role,
        token_id=token.id,
    )
