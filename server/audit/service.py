"""Writing the audit log: in the transaction of the change it tells of, one writer at a time."""

from dataclasses import dataclass
from typing import Any, Protocol

import orjson
from sqlalchemy import select, text
from sqlalchemy.orm import Session

from finishline.rules.proof.hash_chain import FIRST_PREVIOUS, Head, record_sha256
from server.database import moment_text, utc_now
from server.models import AuditRecord

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
