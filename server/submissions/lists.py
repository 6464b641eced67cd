"""Find and list submissions and their runs, and list verifications for people."""

from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy import Date, Row, Select, case, func, or_, select
from sqlalchemy.orm import Session, joinedload

from finishline.rules.benchmarks.accelerators import NOT_STATED
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    BenchmarkDefinition,
    Pool,
    PublishedResult,
    Submission,
    TrainingPackage,
    User,
    Verification,
)
from server.base.paging import CURSOR_PATTERN, EPOCH, Page, read_cursor, read_page
from server.base.standing import Status
from web.names import accelerator_of_system

PAGE = 25
VerificationWord = Literal[
    "queued", "running", "checking", "verified", "rejected", "inconclusive", "failed", "cancelled"
]


Source = Literal["here", "archives"]


class ListQuery(BaseModel):
    """Filters of both lists, and the cursor of a page."""

    model_config = ConfigDict(extra="forbid")

    benchmark: str | None = Field(default=None, max_length=100)
    submitter: str | None = Field(default=None, max_length=200)
    accelerator: str | None = Field(default=None, max_length=100)
    evidence: Literal["measured", "published", "claimed"] | None = None
    since: date | None = None
    until: date | None = None
    cursor: str | None = Field(default=None, pattern=CURSOR_PATTERN)


class SubmissionQuery(ListQuery):
    """Filters of the list of submissions. `source` is people here, or published archives."""

    verdict: Status | None = None
    source: Source | None = None


class VerificationQuery(ListQuery):
    """Filters of the list of verifications."""

    verdict: VerificationWord | None = None


_OF_SUBMISSION: tuple[Any, ...] = (
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
_COLUMNS: tuple[Any, ...] = (
    Submission.id,
    Submission.id.label("submission_id"),
    Submission.kind,
    Submission.benchmark_id,
    Submission.benchmark_id.label("benchmark"),
    Submission.tta_seconds,
    Submission.latency_ms,
    Submission.withdrawn_at,
    Submission.embargoed,
    PublishedResult.published_on.label("submitted_on"),
    Pool.measured_seconds,
    Pool.measured_quality,
    *_OF_SUBMISSION,
)
_OF_VERIFICATION: tuple[Any, ...] = (
    Verification.id,
    Verification.kind,
    Verification.state,
    Verification.outcome,
    Verification.submission_id,
    Verification.runs,
    Verification.ended_at,
    BenchmarkDefinition.benchmark_id.label("benchmark"),
    *_OF_SUBMISSION,
)


def list_submissions(session: Session, wanted: SubmissionQuery) -> Page:
    """Read a page of submissions, newest first, with the columns of a list."""
    query = _narrowed(select(*_COLUMNS).outerjoin(Pool, Pool.id == Submission.pool_id), wanted)
    return _page(session, query, wanted, _date_of(wanted), Submission.id)


# The day of publication of an archive's row, long ago without one, or else of its receipt.
_PUBLISHED = func.coalesce(PublishedResult.published_on, EPOCH.date(), type_=Date)
_RECEIVED = func.date(Submission.submitted_at, type_=Date)
_DAY = case((Submission.evidence == "published", _PUBLISHED), else_=_RECEIVED)


def _date_of(wanted: SubmissionQuery) -> Any:
    """Return the column by which submissions are listed: newest publication, or newest receipt."""
    return _DAY if wanted.source == "archives" else Submission.submitted_at


def count_sources(session: Session, wanted: SubmissionQuery) -> dict[Source, int]:
    """Count submissions by source under the filters, except hardware, which each row must tell."""
    is_published = Submission.evidence == "published"
    of_both = wanted.model_copy(update={"source": None})
    columns: tuple[Any, ...] = (is_published, func.count())
    query = _narrowed(select(*columns), of_both)
    query = _chosen(query, of_both, _DAY).group_by(is_published)
    found = {bool(row[0]): row[1] for row in session.execute(query)}
    return {"here": found.get(False, 0), "archives": found.get(True, 0)}


def find_submissions(session: Session, words: str, *, limit: int, among: int) -> Sequence[Row[Any]]:
    """Find rows of the list by id, or by title or system of the latest `among`, newest first."""
    latest = select(Submission.id).order_by(Submission.submitted_at.desc()).limit(among)
    like = [
        func.lower(column).contains(words.lower(), autoescape=True)
        for column in (Submission.model, Submission.system["name"].as_string())
    ]
    columns: tuple[Any, ...] = (*_COLUMNS, Submission.submitted_at.label("moment"))
    query = select(*columns).outerjoin(Pool, Pool.id == Submission.pool_id)
    named = or_(Submission.id == words, Submission.id.in_(latest) & or_(*like))
    newest = Submission.submitted_at.desc()
    query = _narrowed(query, SubmissionQuery()).where(named).order_by(newest).limit(limit)
    return session.execute(query).all()


def whole_submissions(
    session: Session,
    wanted: SubmissionQuery,
    *,
    limit: int,
    package: str | None = None,
    user_id: int | None = None,
) -> tuple[list[Submission], str | None]:
    """Read a page of the same list with whole submissions, and the cursor of the next page."""
    query = _narrowed(select(Submission).options(joinedload(Submission.package)), wanted)
    if package is not None:
        begins_so = TrainingPackage.package_sha256.startswith(package)
        query = query.where(Submission.package.has(begins_so))
    if user_id is not None:
        query = query.where(Submission.user_id == user_id)
    page = _page(session, query, wanted, _date_of(wanted), Submission.id, limit=limit)
    return [row.Submission for row in page.rows], page.next_cursor


def _narrowed(query: Select[Any], wanted: SubmissionQuery) -> Select[Any]:
    query = query.join(User, User.id == Submission.user_id).outerjoin(
        PublishedResult, PublishedResult.submission_id == Submission.id
    )
    if wanted.benchmark is not None:
        query = query.where(Submission.benchmark_id == wanted.benchmark)
    if wanted.verdict is not None:
        query = query.where(Submission.status == wanted.verdict)
    if wanted.source is not None:
        is_published = Submission.evidence == "published"
        query = query.where(is_published if wanted.source == "archives" else ~is_published)
    return query


def list_verifications(session: Session, wanted: VerificationQuery) -> Page:
    """Read a page of verifications, newest first. Calibrations have no submission."""
    query = (
        select(*_OF_VERIFICATION)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .outerjoin(User, User.id == Submission.user_id)
        .outerjoin(PublishedResult, PublishedResult.submission_id == Submission.id)
    )
    if wanted.benchmark is not None:
        query = query.where(BenchmarkDefinition.benchmark_id == wanted.benchmark)
    if wanted.verdict in ("queued", "running", "checking", "failed", "cancelled"):
        query = query.where(Verification.state == wanted.verdict)
    elif wanted.verdict is not None:
        query = query.where(Verification.outcome == wanted.verdict)
    return _page(session, query, wanted, Verification.created_at, Verification.id)


def _chosen(query: Select[Any], wanted: ListQuery, moment: Any) -> Select[Any]:
    if wanted.submitter is not None:
        query = query.where(SUBMITTER.in_((wanted.submitter,)))
    if wanted.evidence is not None:
        query = query.where(Submission.evidence == wanted.evidence)
    if wanted.since is not None:
        query = query.where(moment >= _start_of(wanted.since, moment))
    if wanted.until is not None and wanted.until < date.max:
        query = query.where(moment < _start_of(wanted.until + timedelta(days=1), moment))
    return query


def _page(
    session: Session,
    query: Select[Any],
    wanted: ListQuery,
    moment: Any,
    key: Any,
    *,
    limit: int | None = None,
) -> Page:
    place: tuple[Any, ...] = (moment.label("moment"), key.label("key"))
    query = _chosen(query, wanted, moment).add_columns(*place)
    after: tuple[date, str] | None = None if wanted.cursor is None else read_cursor(wanted.cursor)
    if after is not None and isinstance(after[0], datetime) and isinstance(moment.type, Date):
        after = (after[0].date(), after[1])
    keep: Callable[[Row[Any]], bool] | None = None
    if wanted.accelerator is not None:
        model = wanted.accelerator.casefold()

        def keep(row: Row[Any]) -> bool:
            found = None if row.system is None else accelerator_of_system(row.system)
            return found is not None and (found.model or NOT_STATED).casefold() == model

    return read_page(
        session, query, moment=moment, key=key, after=after, limit=limit or PAGE, keep=keep
    )


def _start_of(day: date, moment: Any) -> date:
    return day if isinstance(moment.type, Date) else datetime.combine(day, time(), UTC)
