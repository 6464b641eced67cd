"""Reading the audit log."""

from collections.abc import Iterator
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.proof.hash_chain import HASHED
from server.audit.schemas import AuditFilter
from server.database import moment_text
from server.models import AuditRecord

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
