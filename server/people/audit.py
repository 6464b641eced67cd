"""The audit log: each action of organisers, in a chain that shows what was changed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from pydantic import BaseModel, Field
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from finishline.rules.proof.hash_chain import FIRST_PREVIOUS, HASHED, Head, record_sha256
from server.base.database import moment_text, utc_now
from server.base.models import AuditRecord

Values = dict[str, Any]
# Any number that no other lock of this database has.
LOCK = 0x66696E6973686C


class Actor(Protocol):
    """Whoever changes something; a Caller is one."""

    @property
    def user_id(self) -> int | None:
        """The user, None for the server's own administration."""

    @property
    def name(self) -> str:
        """The name that is kept, whatever becomes of the user."""

    @property
    def source(self) -> str | None:
        """Where a change came from if not over the API or from the server's own machine."""


@dataclass(frozen=True)
class Administrator:
    """Whoever sits at the server's own machine."""

    name: str = "server.admin"
    user_id: None = None
    source: None = None


@dataclass(frozen=True)
class Subject:
    """What is changed: "token" 7, "verification" 3f0c2a9b1d4e5f6."""

    kind: str
    id: str


def record(
    session: Session,
    actor: Actor,
    action: str,
    subject: Subject,
    *,
    reason: str | None,
    before: Values | None,
    after: Values | None,
) -> AuditRecord:
    """Add to the log what this transaction does; it is kept if and only if that is.

    Call it last: on PostgreSQL it waits for every other transaction that has written to the log,
    and whoever waits here must hold nothing that those still want.
    """
    session.flush()
    _take_turns(session)
    head = read_head(session)
    row: Values = {
        "id": head.id + 1,
        "at": utc_now(),
        "actor_id": actor.user_id,
        "actor": actor.name,
        "action": action,
        "subject_kind": subject.kind,
        "subject_id": subject.id,
        "reason": reason,
        "before": _plain(before),
        "after": _plain(_with_source(after, actor)),
        "previous_sha256": head.sha256,
    }
    row["sha256"] = record_sha256(row | {"at": moment_text(row["at"])})
    written = AuditRecord(**row)
    session.add(written)
    session.flush()
    return written


def _take_turns(session: Session) -> None:
    """Until the end of the transaction nobody else adds a record. SQLite has one writer anyway."""
    if session.get_bind().dialect.name == "postgresql":
        session.execute(text("SELECT pg_advisory_xact_lock(:lock)"), {"lock": LOCK})


def read_head(session: Session) -> Head:
    """The last record; of an empty log a head with id 0."""
    last = session.execute(
        select(AuditRecord.id, AuditRecord.sha256).order_by(AuditRecord.id.desc()).limit(1)
    ).first()
    return Head(last.id, last.sha256) if last is not None else Head(0, FIRST_PREVIOUS)


def _with_source(after: Values | None, actor: Actor) -> Values | None:
    """What is after a change, and that it came from the console where it did."""
    return after if actor.source is None else (after or {}) | {"source": actor.source}


def _plain(values: Values | None) -> Values | None:
    """As it comes back from the database: moments are text there."""
    if values is None:
        return None
    plain: Values = orjson.loads(orjson.dumps(values))
    return plain


class AuditFilter(BaseModel):
    """Which records: of whom, of what kind, about what; None for all."""

    actor: str | None = Field(default=None, max_length=100)
    action: str | None = Field(default=None, max_length=50)
    subject: str | None = Field(default=None, max_length=200)


class AuditRecordView(BaseModel):
    """Who did what to what, and why. `at` is text, as the hash has it."""

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


class AuditList(BaseModel):
    """A page of the log, newest first; `next_before` asks for the next page."""

    records: list[AuditRecordView]
    next_before: int | None


class AuditHead(BaseModel):
    """The last record's id and hash. Whoever notes it can tell later if the log was changed."""

    id: int
    sha256: str


class AuditCheck(BaseModel):
    """Whether the log is whole: each hash derived again, each record held against the last."""

    records: int
    head: AuditHead
    whole: bool
    problems: list[str]


ROWS_AT_ONCE = 1000
EVERY_RECORD = AuditFilter()


def list_records(
    session: Session, *, before: int | None, limit: int, only: AuditFilter = EVERY_RECORD
) -> list[AuditRecord]:
    """Records with ids below `before`, newest first, those that are asked for."""
    query = select(AuditRecord).order_by(AuditRecord.id.desc()).limit(limit)
    if before is not None:
        query = query.where(AuditRecord.id < before)
    if only.actor is not None:
        query = query.where(AuditRecord.actor == only.actor)
    if only.action is not None:
        query = query.where(AuditRecord.action == only.action)
    if only.subject is not None:
        query = query.where(AuditRecord.subject_id == only.subject)
    return list(session.scalars(query))


def list_actions(session: Session) -> list[str]:
    """Every kind of change that the log tells of."""
    return list(session.scalars(select(AuditRecord.action).distinct().order_by(AuditRecord.action)))


def all_records(session: Session) -> Iterator[dict[str, Any]]:
    """The whole log, oldest first, as its hashes see it."""
    query = select(AuditRecord).order_by(AuditRecord.id)
    rows = session.scalars(query.execution_options(yield_per=ROWS_AT_ONCE))
    return (hashed_view(row) for row in rows)


def hashed_view(row: AuditRecord) -> dict[str, Any]:
    """A record with exactly the values that its hash was made over."""
    values = {name: getattr(row, name) for name in HASHED}
    return values | {"at": moment_text(row.at), "sha256": row.sha256}
