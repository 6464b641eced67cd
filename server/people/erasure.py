"""Erasure of a person: their names become former-17, and results stay (decision 0024)."""

import re
import secrets
from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import chain
from typing import Any

from sqlalchemy import delete, select, update
from sqlalchemy.orm import InstrumentedAttribute, Session, lazyload, load_only

from server.base.board_versions import raise_all_board_versions
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError
from server.base.models import (
    Attempt,
    AuditRecord,
    BenchmarkPhases,
    Calibration,
    Evidence,
    Invitation,
    Message,
    Organisation,
    PauseRow,
    Receiver,
    Submission,
    Token,
    User,
    Verification,
    WorkerRow,
)
from server.people.accounts import FORMER, hash_token
from server.people.audit import Subject, record, redact
from server.people.callers import Caller
from server.people.declared import Form, Routes
from server.people.users import CONSOLE, ONE, UserErasure, UserView, find_person, get_user

router = Routes(tags=["users"])

ASKED = "user.ask-erasure"
# Names, and prose about people's actions. Submissions keep their content.
COLUMNS: tuple[InstrumentedAttribute[Any], ...] = (
    Verification.reason,
    Verification.reasons,
    Verification.decision_reason,
    Attempt.failure,
    Submission.withdrawn_by,
    Submission.withdrawn_because,
    Submission.retirement,
    Submission.waivers,
    WorkerRow.held_by,
    WorkerRow.held_because,
    PauseRow.paused_by,
    PauseRow.paused_because,
    Calibration.reason,
    Calibration.adopted_because,
    BenchmarkPhases.reason,
    Message.content,
    Invitation.name,
)
# Fields with fixed words, which stay even if somebody is called "admin".
WORDS = frozenset({"role", "status", "state", "kind", "kinds", "division", "benchmark"})
Rename = Callable[[Any], Any]


@router.command(
    None,
    Form("/account/erasure", "The admins see that you ask to be erased.", page="/account"),
    role="submitter",
)
def ask_erasure(session: Session, caller: Caller) -> None:
    """Record a person's wish to be erased. An admin decides."""
    if caller.name not in erasures_asked(session):
        record(session, caller, ASKED, Subject("user", caller.name))


def erasures_asked(session: Session) -> dict[str, datetime]:
    """List who asked for their erasure and when they first did, the first first."""
    asked = select(AuditRecord.subject_id, AuditRecord.at).where(AuditRecord.action == ASKED)
    found: dict[str, datetime] = {}
    for name, at in session.execute(asked.order_by(AuditRecord.id)):
        if not FORMER.fullmatch(name):
            found.setdefault(name, at)
    return found


@router.command(
    "/users/{user_name}/erasure",
    Form(
        ONE + "/erase",
        "This account is {0.name} from now on.",
        page=ONE,
        to=CONSOLE + "/{0.name}",
        renamed={"name": "erased_name"},
    ),
    role="admin",
)
def erase_user(session: Session, caller: Caller, user_name: str, body: UserErasure) -> UserView:
    """Erase a person for ever: their name becomes former-17, their access ends. Results stay."""
    if body.name != user_name:
        raise ContentError(
            f"Nothing was erased. To erase {user_name!r}, type the name {user_name!r} again."
        )
    user = find_person(session, user_name)
    former = f"former-{user.id}"
    if user.id == caller.user_id:
        raise ConflictError("Only another admin can erase your account.")
    if user.name == former:
        raise ConflictError(f"{user_name} is erased already.")
    rename = _renaming(session, user, former)
    raise_all_board_versions(session)
    _end_access(session, user)
    user.name, user.email, user.display_name = former, None, None
    user.issuer = user.subject = None
    user.disabled_at = user.disabled_at or utc_now()
    for column in COLUMNS:
        written = select(column.class_).where(column.is_not(None))
        for row in session.scalars(written.options(load_only(column), lazyload("*"))):
            value = getattr(row, column.key)
            if (renamed := rename(value)) != value:
                setattr(row, column.key, renamed)
    for kept in session.scalars(select(Evidence)):
        kept.submission = _renamed(kept.submission, rename, {user_name: former})
    changed = redact(session, rename)
    after = {"records": {str(number): sha256 for number, sha256 in changed.items()}}
    record(session, caller, "user.erase", Subject("user", former), after=after)
    return get_user(session, caller, former)


def _renaming(session: Session, user: User, former: str) -> Rename:
    """Make a function that renames a person: by name, address, and names that readers saw.

    Names that others have by now stay, and so does "alice" in the name "alice b".
    """
    records = session.execute(
        select(AuditRecord.before, AuditRecord.after).where(
            AuditRecord.subject_kind == "user", AuditRecord.subject_id == user.name
        )
    )
    shown = {(values or {}).get("display_name") for record in records for values in record}
    of_others = session.execute(
        select(User.name, User.display_name).where(User.id != user.id)
    ).all()
    names = (shown | {user.display_name}) - {display_name for _, display_name in of_others}
    names = {user.name, *filter(None, names)}
    everybody = {*names, *session.scalars(select(Organisation.name)), *chain(*of_others)} - {None}
    longer = [one for one in everybody if any(name in one for name in names)]
    either = "|".join(map(re.escape, sorted(longer, key=len, reverse=True)))
    words = re.compile(rf"(?<![\w@.-])(?:{either})(?![\w@-]|\.\w)")
    email = user.email

    def rename(value: Any) -> Any:
        if isinstance(value, str):
            found = value.replace(email, former) if email else value
            return words.sub(lambda m: former if m[0] in names else m[0], found)
        if isinstance(value, dict):
            return {k: each if k in WORDS else rename(each) for k, each in value.items()}
        return [rename(each) for each in value] if isinstance(value, list) else value

    return rename


def _end_access(session: Session, user: User) -> None:
    user.end_sessions()
    receivers = select(Receiver.id).where(Receiver.user_id == user.id)
    session.execute(delete(Message).where(Message.receiver_id.in_(receivers)))
    session.execute(delete(Receiver).where(Receiver.user_id == user.id))
    now = utc_now()
    for token in session.scalars(select(Token).where(Token.user_id == user.id)):
        token.revoked_at, token.label = token.revoked_at or now, None
        token.token_sha256 = hash_token(secrets.token_urlsafe(32))
    links = update(Invitation).where(Invitation.made_by == user.id)
    session.execute(links.where(Invitation.revoked_at.is_(None)).values(revoked_at=now))


def _renamed(part: dict[str, Any], rename: Rename, account: Mapping[str, str]) -> dict[str, Any]:
    """Rename only the names of kept evidence, because proofs are signed when they are read."""
    holder = {"against": _renamed(part["against"], rename, account)} if "against" in part else {}
    submitter = account.get(part["submitter"], part["submitter"])
    waivers = rename(part.get("waivers", []))
    return part | holder | {"submitter": submitter, "waivers": waivers}
