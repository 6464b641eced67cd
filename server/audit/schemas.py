"""The audit log as it crosses the API."""

from typing import Any

from pydantic import BaseModel, Field


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
