"""Endpoints of the audit log: read and checked by organisers, its head by everybody."""

from typing import Annotated, Any

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.proof.hash_chain import Head, check_chain
from server.people import audit
from server.people.audit import AuditFilter
from server.people.declared import Routes


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
    """A page of the log, newest first; `next_before` requests the next page."""

    records: list[AuditRecordView]
    next_before: int | None


class AuditCheck(Schema):
    """Result of a check of the log: each hash is derived again and compared with the chain.

    `redacted` counts records in which the name of an erased person was replaced.
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
    """List changes with actor and reason, newest first; by name, action and id of the subject."""
    only = AuditFilter(actor=actor, action=action, subject=subject)
    found = audit.list_records(session, before=before, limit=limit + 1, only=only)
    views = [AuditRecordView(**audit.hashed_view(row)) for row in found[:limit]]
    return AuditList(records=views, next_before=views[-1].id if len(found) > limit else None)


@router.read("/audit/head")
def get_audit_head(session: Session) -> Head:
    """Read the hash of the whole log. Note it: a log without it was changed since."""
    return audit.read_head(session)


@router.read("/audit/check", role="organiser")
def check_audit(session: Session) -> AuditCheck:
    """Check the log by deriving every hash again."""
    chain = check_chain(audit.all_records(session))
    return AuditCheck.of(
        chain,
        whole=not chain.problems,
        problems=[str(problem) for problem in chain.problems],
    )
