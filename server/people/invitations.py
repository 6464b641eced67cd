"""Links by which people join: made by organisers, used once or by a class."""

import hmac
import re
import secrets
from datetime import UTC, date, datetime, time, timedelta
from typing import Annotated, Literal

from fastapi import Path, Request
from pydantic import BaseModel, Field
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.people import Role
from finishline.api.schema import Name, Schema
from server.base.database import site_address, utc_now
from server.base.error_answers import DOMAIN_PATTERN
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    NotFoundError,
    no_such,
    problem,
)
from server.base.fleet import Fleet
from server.base.forms import NO_FLAG, Body, example
from server.base.models import Invitation, User
from server.people.accounts import (
    ORGANISERS,
    RANK,
    NewToken,
    add_token,
    hash_token,
    require_new_name,
)
from server.people.audit import audited, record_new
from server.people.callers import SOURCE, Caller, caller_of
from server.people.declared import Form, Routes
from server.people.tokens import may_give, record_new_token
from server.people.users import (
    DisplayName,
    Email,
    UserName,
    organisation_id,
    set_display_name,
)

router = Routes(tags=["users"])
InvitationId = Annotated[int, Path(ge=1, le=2**31 - 1)]
CONSOLE = "/console/invitations"

USUAL_DAYS, LONGEST_DAYS = 7, 366
UNKNOWN = (
    "The workers here have no memory cgroup, so they train no code of those who join until an "
    "organiser approves each of them. If you know who joins, revoke this link and make one for "
    "approved users (--approve)."
)
TOKEN_LIFETIME = timedelta(days=365)
CODE = re.compile(r"([1-9][0-9]{0,8})-([A-Za-z0-9_-]{32})")
ASK = "Ask whoever sent it to you for another one."


class InvitationCreate(Body):
    """A link by which one person joins, or a class.

    It ends with `last_day`, in 7 days if absent, or once `uses` people joined. With a `mail_domain`
    they need an address there. `name` is proposed to a single person. With `known` they are
    approved: workers without a memory cgroup train their code submissions too.
    """

    model_config = example(uses=200, last_day="2027-02-01", mail_domain="uni.example")

    role: Role = "submitter"
    uses: Annotated[int, Field(ge=1, le=1000), NO_FLAG] = 1
    last_day: date | None = None
    mail_domain: str | None = Field(default=None, max_length=253, pattern=DOMAIN_PATTERN)
    organisation: str | None = Field(default=None, min_length=1, max_length=100)
    name: UserName | None = None
    known: bool = False


class InvitationView(Schema):
    """A link by which people join, without its code.

    Tokens of people who join end with `made_with`, the token that made the link.
    """

    id: int
    role: str
    uses: int
    uses_allowed: int
    expires_at: datetime
    mail_domain: str | None
    organisation: Name | None
    name: str | None
    known: bool
    made_by: Name
    made_with: int
    created_at: datetime
    state: Literal["open", "used up", "expired", "revoked"]


class InvitationCreated(InvitationView):
    """A new link. Its address is shown only once.

    `remark` warns if code of people who join will wait for an organiser's approval.
    """

    link: str
    remark: str | None = None


class InvitationList(Schema):
    """Links by which people join, newest first."""

    invitations: list[InvitationView]


class Joining(BaseModel):
    """The names and the address of a person who joins."""

    name: UserName
    display_name: DisplayName | None = None
    email: Email | None = None


def _made_words(made: InvitationCreated, **_given: object) -> str:
    people = "1 person" if made.uses_allowed == 1 else f"{made.uses_allowed} people"
    remark = f" {made.remark}" if made.remark is not None else ""
    return f"Link {made.id} is made: {people} may join as {made.role}.{remark}"


@router.command(
    "/invitations", Form(CONSOLE, _made_words, once="link"), role="organiser", status=201
)
def create_invitation(
    session: Session, caller: Caller, request: Request, body: InvitationCreate
) -> InvitationCreated:
    """Make a link by which one person joins, or a class. Its address is shown only once."""
    if body.role not in may_give(caller) or RANK[body.role] > RANK[caller.role]:
        raise NotAllowedError(f"Your token makes no users of role {body.role}.")
    if body.name is not None and body.uses > 1:
        raise ContentError("A name is proposed to one person: leave it out, or allow one use.")
    organisation = organisation_id(session, body.organisation)
    if organisation not in (None, caller.organisation_id) and not caller.is_admin:
        raise NotAllowedError("Only an admin adds people to an organisation that is not theirs.")
    secret = secrets.token_urlsafe(24)
    made = Invitation(
        **body.model_dump(include={"role", "mail_domain", "name", "known"}),
        code_sha256=hash_token(secret),
        uses=0,
        uses_allowed=body.uses,
        expires_at=_end_of(body.last_day),
        organisation_id=organisation,
        made_by=caller.user_id,
        made_with=caller.token_id,
        created_at=utc_now(),
    )
    session.add(made)
    record_new(session, caller, "invitation.create", made)
    return InvitationCreated.of(
        made,
        made_by=made.maker,
        link=f"{site_address(request)}/join/{made.id}-{secret}",
        remark=_remark_on(session, made),
    )


def _remark_on(session: Session, made: Invitation) -> str | None:
    if made.known or made.role != "submitter":
        return None
    trains = {(worker.box or {}).get("entries", "off") for worker in Fleet.read(session).recent}
    return UNKNOWN if "known" in trains and "anyone" not in trains else None


def _end_of(last_day: date | None) -> datetime:
    """Return the end of a day in UTC. Raises ContentError if it is over or too far."""
    now = utc_now()
    if last_day is None:
        return now + timedelta(days=USUAL_DAYS)
    if not 0 <= (last_day - now.date()).days <= LONGEST_DAYS:
        raise ContentError(
            f"The last day {last_day} is over or too far: expected one from today to "
            f"{now.date() + timedelta(days=LONGEST_DAYS)}."
        )
    return datetime.combine(last_day + timedelta(days=1), time(), UTC)


@router.read("/invitations", role="organiser")
def list_invitations(session: Session, caller: Caller) -> InvitationList:
    """List your links by which people join, newest first. An admin sees all."""
    query = select(Invitation).order_by(Invitation.id.desc())
    if not caller.is_admin:
        query = query.where(Invitation.made_by == caller.user_id)
    return InvitationList(invitations=[invitation_view(one) for one in session.scalars(query)])


@router.command(
    "/invitations/{invitation_id}",
    Form(CONSOLE + "/{invitation_id}/revoke", "Link {0.id} is revoked.", page=CONSOLE),
    role="organiser",
    method="DELETE",
)
def revoke_invitation(
    session: Session, caller: Caller, invitation_id: InvitationId
) -> InvitationView:
    """Revoke a link by which people join. People who joined with it stay."""
    found = session.get(Invitation, invitation_id)
    if found is None or (found.made_by != caller.user_id and not caller.is_admin):
        raise no_such("invitation", invitation_id, of="You have no")
    if found.revoked_at is None:
        with audited(session, caller, "invitation.revoke", found):
            found.revoked_at = utc_now()
    return invitation_view(found)


def find_open(session: Session, code: str) -> Invitation:
    """Find the open link of a code. Raises NotFoundError, or ConflictError if it is over."""
    match = CODE.fullmatch(code)
    found = session.get(Invitation, int(match[1])) if match else None
    kept = found.code_sha256 if found is not None else hash_token("")
    given = hash_token(match[2] if match else code)
    if not hmac.compare_digest(kept, given) or found is None:
        raise NotFoundError(f"This link is not known here; part of it may be missing. {ASK}")
    state, maker = found.state, found.maker
    if state == "used up":
        used = "already" if found.uses_allowed == 1 else f"{found.uses} times, which is the most"
        raise ConflictError(f"This link was used {used}. {ASK}")
    if state == "expired":
        raise ConflictError(f"This link ended on {found.expires_at:%Y-%m-%d %H:%M} UTC. {ASK}")
    may_not = maker.role not in ORGANISERS or RANK[found.role] > RANK[maker.role]
    if state == "revoked" or maker.disabled_at is not None or may_not:
        raise ConflictError(f"This link was revoked. {ASK}")
    return found


def join(session: Session, code: str, wanted: Joining) -> NewToken:
    """Make a user with a first token, by a link."""
    found = find_open(session, code)
    domain = found.mail_domain
    if domain is not None and not (wanted.email or "").lower().endswith(f"@{domain}"):
        raise ContentError(
            f"This link is for people with an address at {domain}.",
            problems=[problem("email", "another domain, or none", f"an address at {domain}")],
        )
    try:
        require_new_name(session, wanted.name)
    except (ConflictError, ContentError) as error:
        error.problems = [problem("name", error.detail, "another name")]
        raise
    now = utc_now()
    user = User(
        name=wanted.name,
        role=found.role,
        email=wanted.email,
        organisation_id=found.organisation_id,
        created_at=now,
        known_at=now if found.known else None,
    )
    session.add(user)
    session.flush()
    set_display_name(session, user, wanted.display_name)
    made = add_token(
        session,
        user,
        role=found.role,
        expires_at=now + TOKEN_LIFETIME,
        label="first token",
        made_with=found.made_with,
    )
    joined = caller_of(made.token, source=SOURCE)
    with audited(session, joined, "invitation.use", found, user=user.name, role=user.role):
        found.uses += 1
    record_new_token(session, joined, made.token, new_user=True)
    return made


def invitation_view(found: Invitation) -> InvitationView:
    """Make the view of a link."""
    return InvitationView.of(found, made_by=found.maker)
