"""Find and list submissions, and read the times of their runs, for all packages."""

import re
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, Connection, Row, bindparam, or_, select
from sqlalchemy.orm import Session, joinedload, undefer

from server.base.errors import ContentError, NotFoundError, no_such
from server.base.models import BenchmarkDefinition, RunRow, Submission, TrainingPackage
from server.base.paging import CURSOR_PATTERN

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MICROSECOND = timedelta(microseconds=1)

_SUBMISSIONS = Submission.__table__.c
_ID_UNDER_KEY = select(_SUBMISSIONS.id).where(
    _SUBMISSIONS.user_id == bindparam("user_id"), _SUBMISSIONS.idempotency_key == bindparam("key")
)


def find_submission(session: Session, submission_id: str) -> Submission:
    """Find a submission by id. Raises NotFoundError."""
    submission = session.get(Submission, submission_id)
    if submission is None:
        raise no_such("submission", submission_id)
    return submission


def find_run(session: Session, submission_id: str, index: int) -> RunRow:
    """Find a run of a submission. Raises NotFoundError."""
    run = session.scalar(
        select(RunRow).where(RunRow.submission_id == submission_id, RunRow.index == index)
    )
    if run is None:
        find_submission(session, submission_id)
        raise NotFoundError(
            f"Submission {submission_id!r} has no run {index}; `finishline show {submission_id}` "
            "lists its runs, from 0."
        )
    return run


def runs_with_curves(session: Session, submission_id: str) -> Sequence[RunRow]:
    """Read the runs of a submission in order, with their curves. Raises NotFoundError."""
    find_submission(session, submission_id)
    return session.scalars(
        select(RunRow)
        .where(RunRow.submission_id == submission_id)
        .order_by(RunRow.index)
        .options(undefer(RunRow.curve))
        .execution_options(populate_existing=True)
    ).all()


def id_under_key(connection: Connection, user_id: int, key: str) -> str | None:
    """Id of the submission a user made with an idempotency key, if any.

    Usually there is none, and reading the id is cheaper than reading a whole submission.
    """
    found: str | None = connection.scalar(_ID_UNDER_KEY, {"user_id": user_id, "key": key})
    return found


def benchmark_versions(session: Session, sha256s: set[str]) -> dict[str, str]:
    """Version of each definition."""
    rows = session.execute(
        select(BenchmarkDefinition.sha256, BenchmarkDefinition.version).where(
            BenchmarkDefinition.sha256.in_(sha256s)
        )
    )
    return dict(rows.all())


def submissions_page(
    session: Session,
    *,
    benchmark_id: str | None = None,
    user_id: int | None = None,
    package: str | None = None,
    limit: int,
    cursor: str | None,
) -> tuple[list[Submission], str | None]:
    """A page of submissions, newest first, and the cursor of the next page."""
    query = (
        select(Submission)
        .order_by(Submission.submitted_at.desc(), Submission.id.desc())
        .options(joinedload(Submission.package))
    )
    if benchmark_id is not None:
        query = query.where(Submission.benchmark_id == benchmark_id)
    if user_id is not None:
        query = query.where(Submission.user_id == user_id)
    if package is not None:
        begins_so = TrainingPackage.package_sha256.startswith(package)
        query = query.where(Submission.package.has(begins_so))
    if cursor is not None:
        moment, last_id = read_cursor(cursor)
        query = query.where(
            or_(
                Submission.submitted_at < moment,
                (Submission.submitted_at == moment) & (Submission.id < last_id),
            )
        )
    found = list(session.scalars(query.limit(limit + 1)))
    page = found[:limit]
    more = len(found) > limit
    return page, write_cursor(page[-1]) if more else None


def write_cursor(submission: Submission | Row[Any]) -> str:
    """Encode the position of a submission: its time in microseconds, and its id."""
    return f"{(submission.submitted_at - EPOCH) // MICROSECOND}.{submission.id}"


def read_cursor(cursor: str) -> tuple[datetime, str]:
    """Decode a cursor to a time and an id. Raises ContentError for an invalid one."""
    if re.fullmatch(CURSOR_PATTERN, cursor, re.ASCII) is None:
        raise ContentError("Invalid cursor. Pass the next_cursor of the previous page.")
    microseconds, _, last_id = cursor.partition(".")
    return EPOCH + int(microseconds) * MICROSECOND, last_id


def run_times(session: Session, *which: ColumnElement[bool]) -> dict[str, list[float]]:
    """Seconds of the runs that reached the target, as measured, by submission."""
    statement = (
        select(RunRow.submission_id, RunRow.tta_seconds)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(*which)
        .order_by(RunRow.submission_id, RunRow.index)
    )
    times: defaultdict[str, list[float]] = defaultdict(list)
    for submission_id, seconds in session.execute(statement):
        if seconds is not None:
            times[submission_id].append(seconds)
    return times
