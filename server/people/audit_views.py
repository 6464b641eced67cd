"""Response models of the audit log."""

from typing import Any

from finishline.api.schema import Schema
from finishline.rules.proof.hash_chain import Head


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
