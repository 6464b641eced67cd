"""Lists of submissions and of verifications for people: filters, and rows without long columns."""

from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.accelerators import NOT_STATED
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    BenchmarkDefinition,
    Pool,
    PublishedResult,
    Submission,
    User,
    Verification,
)
from server.base.paging import CURSOR_PATTERN, Page, read_page
from server.submissions.service import read_cursor
from web.names import accelerator_of_system

PAGE = 50
Verdict = Literal["claimed", "verifying", "verified", "rejected", "inconclusive"]
VerificationWord = Literal[
    "queued", "running", "checking", "verified", "rejected", "inconclusive", "failed", "cancelled"
]


class ListQuery(BaseModel):
    """Filters of both lists, and the place that a page begins after."""

    model_config = ConfigDict(extra="forbid")

    benchmark: str | None = Field(default=None, max_length=100)
    submitter: str | None = Field(default=None, max_length=200)
    accelerator: str | None = Field(default=None, max_length=100)
    evidence: Literal["measured", "published", "claimed"] | None = None
    since: date | None = None
    until: date | None = None
    cursor: str | None = Field(default=None, pattern=CURSOR_PATTERN)


class SubmissionQuery(ListQuery):
    """Filters of the list of submissions."""

    verdict: Verdict | None = None


class VerificationQuery(ListQuery):
    """Filters of the list of verifications."""

    verdict: VerificationWord | None = None


OF_SUBMISSION: tuple[Any, ...] = (
    Submission.division,
    Submission.model,
    Submission.system,
    Submission.trained_with,
    Submission.evidence,
    Submission.check_word.label("check"),
    Submission.status,
    SUBMITTER,
    DISPLAY_NAME,
)

OF_LIST: tuple[Any, ...] = (
    Submission.id,
    Submission.id.label("submission_id"),
    Submission.kind,
    Submission.benchmark_id.label("benchmark"),
    Submission.tta_seconds,
    Submission.latency_ms,
    Submission.withdrawn_at,
    Submission.embargoed,
    PublishedResult.published_on.label("submitted_on"),
    Pool.measured_seconds,
    Submission.submitted_at.label("moment"),
    Submission.id.label("key"),
    *OF_SUBMISSION,
)
OF_VERIFICATION: tuple[Any, ...] = (
    Verification.id,
    Verification.kind,
    Verification.state,
    Verification.outcome,
    Verification.submission_id,
    Verification.runs,
    Verification.ended_at,
    BenchmarkDefinition.benchmark_id.label("benchmark"),
    Verification.created_at.label("moment"),
    Verification.id.label("key"),
    *OF_SUBMISSION,
)


def list_submissions(session: Session, wanted: SubmissionQuery) -> Page:
    """A page of submissions, newest first."""
    query = (
        select(*OF_LIST)
        .join(User, User.id == Submission.user_id)
        .outerjoin(Submission.published)
        .outerjoin(Pool, Pool.id == Submission.pool_id)
    )
    if wanted.benchmark is not None:
        query = query.where(Submission.benchmark_id == wanted.benchmark)
    if wanted.verdict is not None:
        query = query.where(Submission.status == wanted.verdict)
    return _page(session, _narrowed(query, wanted, Submission.submitted_at), wanted, Submission)


def list_verifications(session: Session, wanted: VerificationQuery) -> Page:
    """A page of verifications, newest first; calibrations have no submission."""
    query = (
        select(*OF_VERIFICATION)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .outerjoin(User, User.id == Submission.user_id)
        .outerjoin(Submission.published)
    )
    if wanted.benchmark is not None:
        query = query.where(BenchmarkDefinition.benchmark_id == wanted.benchmark)
    if wanted.verdict in ("queued", "running", "checking", "failed", "cancelled"):
        query = query.where(Verification.state == wanted.verdict)
    elif wanted.verdict is not None:
        query = query.where(Verification.outcome == wanted.verdict)
    return _page(session, _narrowed(query, wanted, Verification.created_at), wanted, Verification)


def _narrowed(query: Select[Any], wanted: ListQuery, moment: Any) -> Select[Any]:
    if wanted.submitter is not None:
        query = query.where(SUBMITTER.in_((wanted.submitter,)))
    if wanted.evidence is not None:
        query = query.where(Submission.evidence == wanted.evidence)
    if wanted.since is not None:
        query = query.where(moment >= _midnight(wanted.since))
    if wanted.until is not None and wanted.until < date.max:
        query = query.where(moment < _midnight(wanted.until + timedelta(days=1)))
    return query


def _page(session: Session, query: Select[Any], wanted: ListQuery, model: Any) -> Page:
    moment = Submission.submitted_at if model is Submission else Verification.created_at
    after = None if wanted.cursor is None else read_cursor(wanted.cursor)
    keep = None if wanted.accelerator is None else _has(wanted.accelerator)
    return read_page(
        session, query, moment=moment, key=model.id, after=after, limit=PAGE, keep=keep
    )


def _has(accelerator: str) -> Callable[[Row[Any]], bool]:
    wanted = accelerator.casefold()

    def keeps(row: Row[Any]) -> bool:
        if row.system is None:
            return False
        return (accelerator_of_system(row.system).model or NOT_STATED).casefold() == wanted

    return keeps


def _midnight(day: date) -> datetime:
    return datetime.combine(day, time(), UTC)
