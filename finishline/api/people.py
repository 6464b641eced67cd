"""Accounts, their tokens and quotas, users, organisations and invitations."""

from datetime import date, datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool

from finishline.api.schema import NO_FLAG, Body, Schema, example
from finishline.rules.roles import Role

LONGEST_DAYS = 3650
LONGEST_LINK_DAYS = 366
MOST_USES = 1000
# No name begins with a dot: "." and ".." are no step of an address.
NAME_PATTERN = r"^[\w@ -][\w.@ -]*$"
# The name of a person as they write it: with apostrophes and commas, without brackets.
DISPLAY_PATTERN = r"^[\w'’][\w.'’, -]*$"
DOMAIN_PATTERN = r"^[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)+$"
# A single address. The mail server decides about the parts before and behind the @.
EMAIL_PATTERN = r"^[^\s@<>]+@[^\s@<>]+\.[^\s@<>]+$"


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("expected one line of printable characters")
    return text


def _printable_ends(text: str) -> str:
    if not text.isprintable() or text != text.strip():
        raise ValueError("expected printable characters without blanks around them")
    return text


def _no_text(value: Any) -> Any:
    """Reject texts and booleans, which could be read as numbers."""
    if isinstance(value, (str, bool)):
        raise ValueError("expected a whole number, unlimited or default")
    return value


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
    knows who joins: workers whose box has no memory cgroup train their packages too.
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

    `remark` says that packages of those who join will wait for an organiser's approval.
    """

    link: str
    remark: str | None = None


class InvitationList(Schema):
    """Links by which people join, newest first."""

    invitations: list[InvitationView]


class MeView(Schema):
    """User, role and expiry of this request's token.

    `role` is the token's, `highest_role` the highest that this user's tokens may have.
    """

    user: str
    display_name: str | None = None
    organisation: str | None
    email: str | None
    highest_role: str
    token_id: int
    label: str | None
    role: str
    expires_at: datetime | None


class MeChange(Body):
    """Changes of one's own account: the name that readers see in place of the account's, or null.

    No other user, organisation or submitter of published results may have one like it.
    """

    model_config = example(display_name="Ada Lovelace")

    display_name: DisplayName | None


class UserFields(Body):
    """What an organiser says of a user. Readers see the `display_name` in place of the name."""

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

    Packages of a known user go to workers without a memory cgroup too.
    """

    name: str
    known_at: datetime | None


class UserKnownChange(Body):
    """Whether the caller knows a user."""

    model_config = example(known=True)

    known: StrictBool


class UserView(UserKnown):
    """A user, for admins. `role` is the highest that their tokens may have.

    Readers see the `display_name` in place of the name. Packages of a user who is known since
    `known_at` go to workers without a memory cgroup too. `tokens` counts those that are neither
    revoked nor expired. `last_used_at` covers all of theirs.
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


Measure = Literal["submissions_per_day", "gpu_seconds_per_month"]
# Limit of a stored integer. A day has fewer submissions, a month fewer seconds.
Count = Annotated[int, Field(ge=0, le=10**12), BeforeValidator(_no_text)]
Amount = Count | Literal["unlimited", "default"]
ABSENT: Any = None  # A field may be left out, while null is refused.


class UseView(Schema):
    """Use of one quota. `allowed` is null for no limit.

    Submissions count for 24 hours, accelerator seconds for 30 days. `reserved`, part of `used`, is
    the estimate for verifications under way. `room_at` is when there is room again.
    """

    measure: Measure
    allowed: int | None
    used: float
    reserved: float
    room_at: datetime | None


class QuotaView(Schema):
    """Quotas and use of a user."""

    user: str
    quotas: list[UseView]


class QuotaSet(Body):
    """Quotas to set. An absent one stays as it is. "default" is the value of the settings."""

    model_config = ConfigDict(
        json_schema_extra={
            "minProperties": 2,  # A quota and the reason.
            "examples": [{"submissions_per_day": 5, "gpu_seconds_per_month": "unlimited",
                          "reason": "a course of 30"}]
        },
    )  # fmt: skip

    submissions_per_day: Amount = Field(default=ABSENT)
    gpu_seconds_per_month: Amount = Field(default=ABSENT)
    reason: Annotated[str, Field(min_length=1, max_length=2000, pattern=r"\S")]


class Override(Schema):
    """Quotas that an organiser set for a user, by measure. Null is no limit."""

    user: str
    quotas: dict[Measure, int | None]


class QuotaList(Schema):
    """Default quotas of each user, and every override."""

    defaults: dict[Measure, int | None]
    overrides: list[Override]
