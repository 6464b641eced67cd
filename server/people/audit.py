"""The audit log: each action of organisers, in a hash chain that reveals later changes."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Any

import orjson
from fastapi import Query
from sqlalchemy import Connection, inspect, select, text, update
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.proof.hash_chain import (
    FIRST_PREVIOUS,
    HASHED,
    Head,
    check_chain,
    record_sha256,
)
from server.base.database import moment_text, utc_now
from server.base.events import AuditDayEnded, emit
from server.base.models import AuditRecord, Base, User
from server.people.callers import Caller
from server.people.declared import Routes

Values = dict[str, Any]
TRIGGER, SWITCHES = "audit_log_refuses", ("DISABLE", "ENABLE")
# The fields of a record that may name a person.
REDACTED = ("actor", "subject_id", "reason", "before", "after")


@dataclass(frozen=True)
class Administrator:
    """An administrator on the server's machine."""

    name: str = "server.admin"
    user_id: None = None
    source: None = None


Actor = Caller | Administrator


@dataclass(frozen=True)
class Subject:
    """Subject of a change: "token" 7, "verification" 3f0c2a9b1d4e5f6."""

    kind: str
    id: str


def record(
    session: Session,
    actor: Actor,
    action: str,
    about: Base | Subject,
    *,
    reason: str | None = None,
    before: Values | None = None,
    after: Values | None = None,
) -> AuditRecord:
    """Add a record of this transaction's change of a row, in the same transaction."""
    session.flush()
    head, subject = read_head(session), about if isinstance(about, Subject) else subject_of(about)
    if actor.source is not None:
        after = (after or {}) | {"source": actor.source}
    now = utc_now()
    row: Values = {
        "id": head.id + 1,
        "at": now,
        "actor_id": actor.user_id,
        "actor": actor.name,
        "action": action,
        "subject_kind": subject.kind,
        "subject_id": subject.id,
        "reason": reason,
        "before": None if before is None else orjson.loads(orjson.dumps(before)),
        "after": None if after is None else orjson.loads(orjson.dumps(after)),
        "previous_sha256": head.sha256,
    }
    row["sha256"] = record_sha256(row | {"at": moment_text(now)})
    written = AuditRecord(**row)
    session.add(written)
    session.flush()
    last = session.get(AuditRecord, head.id)
    if last is not None and last.at.date() < now.date():  # The first record of a day (UTC).
        emit(session, AuditDayEnded(head.id, head.sha256, last.at))
    return written


# The log is kept for ever, so it says only whether these columns are set.
PRIVATE = frozenset({"email", "issuer", "subject"})
NOT_LOGGED = frozenset(
    {"id", "created_at", "last_used_at", "token_sha256", "code_sha256", "session_number"}
)


@contextmanager
def audited(
    session: Session,
    actor: Actor,
    action: str,
    row: Base,
    *,
    reason: str | None = None,
    **more: Any,
) -> Iterator[None]:
    """Record the columns changed by the block, if any, with `more` in `after`."""
    session.flush()
    before = _columns(row)
    yield
    session.flush()
    after = _columns(row)
    names = [name for name, value in after.items() if value != before[name]]
    if names:
        kept, fresh = (_shown({name: each[name] for name in names}) for each in (before, after))
        record(session, actor, action, row, reason=reason, before=kept, after=fresh | more)


def record_new(
    session: Session,
    actor: Actor,
    action: str,
    row: Base,
    *,
    reason: str | None = None,
    **more: Any,
) -> None:
    """Record a new row with its set columns."""
    session.flush()
    record(session, actor, action, row, reason=reason, after=set_columns(row) | more)


def subject_of(row: Base) -> Subject:
    """Name the subject of a record about a row: users by name, others by key."""
    key = inspect(row).mapper.primary_key_from_instance(row)
    name = row.name if isinstance(row, User) else "/".join(map(str, key))
    return Subject(row.__tablename__.removesuffix("s"), name)


def set_columns(row: Base) -> Values:
    """Return the set columns of a row in the form of the log."""
    return _shown({name: value for name, value in _columns(row).items() if value is not None})


def _columns(row: Base) -> Values:
    names = (each.key for each in inspect(type(row)).column_attrs)
    return {name: getattr(row, name) for name in names if name not in NOT_LOGGED}


def _shown(values: Values) -> Values:
    return {
        f"has_{name}" if name in PRIVATE else name: value is not None if name in PRIVATE else value
        for name, value in values.items()
    }


def read_head(reader: Session | Connection) -> Head:
    """Read the last record. An empty log has a head with id 0."""
    last = reader.execute(
        select(AuditRecord.id, AuditRecord.sha256).order_by(AuditRecord.id.desc()).limit(1)
    ).first()
    return Head(last.id, last.sha256) if last is not None else Head(0, FIRST_PREVIOUS)


ROWS_AT_ONCE = 1000


def all_records(session: Session) -> Iterator[dict[str, Any]]:
    """Yield the whole log, oldest first, in the form of its hashes."""
    query = select(AuditRecord).order_by(AuditRecord.id)
    rows = session.scalars(query.execution_options(yield_per=ROWS_AT_ONCE))
    return (hashed_view(row) for row in rows)


def hashed_view(row: AuditRecord) -> dict[str, Any]:
    """Return exactly the values in a record's hash, and the hash."""
    values = {name: getattr(row, name) for name in HASHED}
    return values | {"at": moment_text(row.at), "sha256": row.sha256}


def redact(session: Session, rename: Callable[[Any], Any]) -> dict[int, str]:
    """Rename in every record. Returns the new hashes of changed records.

    The record of an erasure keeps these hashes, so that the chain stays whole (check_chain). The
    trigger against changes is away only for this transaction's moment.
    """
    session.flush()
    changed, updates = {}, []
    query = select(AuditRecord).order_by(AuditRecord.id)
    for row in session.scalars(query.execution_options(yield_per=ROWS_AT_ONCE)):
        renamed = {name: rename(getattr(row, name)) for name in REDACTED}
        renamed = {name: new for name, new in renamed.items() if new != getattr(row, name)}
        if renamed:
            changed[row.id] = record_sha256(hashed_view(row) | renamed)
            updates.append(update(AuditRecord).where(AuditRecord.id == row.id).values(renamed))
    with _changeable(session):
        for statement in updates:
            session.execute(statement, execution_options={"synchronize_session": False})
    session.expire_all()
    return changed


@contextmanager
def _changeable(session: Session) -> Iterator[None]:
    """Drop the trigger against changes of records, and restore it."""
    if session.get_bind().dialect.name == "postgresql":
        drop, make = (f"ALTER TABLE audit_log {each} TRIGGER {TRIGGER}" for each in SWITCHES)
    else:
        name = f"{TRIGGER}_update"
        kept = text("SELECT sql FROM sqlite_master WHERE type = 'trigger' AND name = :name")
        drop, make = f"DROP TRIGGER {name}", session.scalars(kept, {"name": name}).one()
    session.execute(text(drop))
    yield
    session.execute(text(make))


class AuditRecordView(Schema):
    """A record: actor, action, subject and reason. `at` is text, as in the hash."""

    id: int
    at: str
    actor_id: int | None
    actor: str
    action: str
    subject_kind: str
    subject_id: str
    reason: str | None
    before: dict[str, Any] | None
    after: dict[str, Any] | None
    previous_sha256: str
    sha256: str


class AuditList(Schema):
    """A page of the log, newest first. `next_before` requests the next page."""

    records: list[AuditRecordView]
    next_before: int | None


class AuditCheck(Schema):
    """Result of a check of the log: each hash is derived again and compared with the chain.

    `redacted` counts records with the replaced name of an erased person.
    """

    records: int
    head: Head
    whole: bool
    redacted: int = 0
    problems: list[str]


router = Routes(tags=["audit"])


@router.read("/audit", role="organiser")
def list_audit(
    session: Session,
    before: Annotated[int | None, Query(ge=1, le=2**31 - 1)] = None,
    limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    actor: Annotated[str | None, Query(max_length=100)] = None,
    action: Annotated[str | None, Query(max_length=50)] = None,
    subject: Annotated[str | None, Query(max_length=200)] = None,
) -> AuditList:
    """List changes with actor and reason, newest first. Filters: name, action, subject."""
    query = select(AuditRecord).order_by(AuditRecord.id.desc()).limit(limit + 1)
    if before is not None:
        query = query.where(AuditRecord.id < before)
    columns = (AuditRecord.actor, AuditRecord.action, AuditRecord.subject_id)
    for column, value in zip(columns, (actor, action, subject), strict=True):
        if value is not None:
            query = query.where(column == value)
    found = list(session.scalars(query))
    views = [AuditRecordView(**hashed_view(row)) for row in found[:limit]]
    return AuditList(records=views, next_before=views[-1].id if len(found) > limit else None)


@router.read("/audit/head")
def get_audit_head(session: Session) -> Head:
    """Read the hash of the whole log. Note it: a log without it was changed since."""
    return read_head(session)


@router.read("/audit/check", role="organiser")
def check_audit(session: Session) -> AuditCheck:
    """Check the log by deriving every hash again."""
    chain = check_chain(all_records(session))
    return AuditCheck.of(
        chain,
        whole=not chain.problems,
        problems=[str(problem) for problem in chain.problems],
    )
