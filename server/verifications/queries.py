"""Read verifications: one with its attempts, lists, and the latest verdicts and runs in short."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import ColumnElement, Select, func, select
from sqlalchemy.orm import Session, aliased, selectinload, undefer

from finishline.api.verifications import ReasonView
from finishline.rules.run import Evaluation, evaluation_of
from server.base.errors import no_such
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    Attempt,
    BenchmarkDefinition,
    ReplayEventRow,
    Submission,
    User,
    Verification,
)
from server.base.standing import LISTED, OPEN, published_verification
from server.base.visibility import ranks
from server.submissions.lists import runs_with_curves
from web.names import hardware_words


def find_attempt(session: Session, attempt_id: str) -> Attempt:
    """Read an attempt by id. Raises NotFoundError."""
    attempt = session.get(Attempt, attempt_id)
    if attempt is None:
        raise no_such("attempt", attempt_id)
    return attempt


def list_verifications(session: Session, *, state: str | None, limit: int) -> list[Verification]:
    """Verifications, newest first."""
    query = (
        select(Verification).order_by(Verification.created_at.desc()).limit(limit).options(*LISTED)
    )
    if state is not None:
        query = query.where(Verification.state == state)
    return list(session.scalars(query))


def latest_of(session: Session, submission: Submission, *, most: int) -> Sequence[Verification]:
    """Latest verifications of a submission, newest first, and the published one if it is older."""
    latest = {verification.id for verification in submission.verifications[-most:]}
    published = published_verification(submission)
    wanted = latest if published is None else latest | {published.id}
    return session.scalars(
        select(Verification)
        .where(Verification.id.in_(wanted))
        .order_by(Verification.created_at.desc())
        .options(
            undefer(Verification.reasons),
            selectinload(Verification.attempts),
            selectinload(Verification.trainings),
        )
    ).all()


def events_after(
    session: Session, attempt: Attempt, sequence: int, *, limit: int
) -> list[ReplayEventRow]:
    """Events that a worker posted for an attempt after a sequence number, in order."""
    return list(
        session.scalars(
            select(ReplayEventRow)
            .where(ReplayEventRow.attempt_id == attempt.id, ReplayEventRow.sequence > sequence)
            .order_by(ReplayEventRow.sequence)
            .limit(limit)
        )
    )


def claimed_curves(session: Session, submission: Submission) -> list[list[Evaluation]]:
    """Evaluations of a stored submission's runs, in the order of `claimed_runs`."""
    return [
        [evaluation_of(row) for row in run.curve]
        for run in runs_with_curves(session, submission.id)
    ]


def is_of_latest_report() -> ColumnElement[bool]:
    """Whether a cross-check was drawn for the latest report of what it checks.

    A report that others contradict is refused, and its runs are made again.
    """
    attempt = aliased(Attempt)
    latest = select(func.max(attempt.created_at)).where(
        attempt.verification_id == Verification.checks_id
    )
    return Verification.created_at >= latest.scalar_subquery()


# Weight of the reasons that decide an outcome; other outcomes are left open by some reason.
DECIDING_WEIGHTS = {
    "verified": "supports",
    "rejected": "rejects",
    "challenger_faster": "supports",
}


class VerdictLine(BaseModel):
    """A verdict with the first of the reasons that decide it.

    `model`, `hardware` and `submitter` are the submission's, in a head-to-head the challenger's.
    """

    id: str
    kind: str
    benchmark: str
    submission_id: str
    model: str
    hardware: str
    submitter: str
    display_name: str | None = None
    trained_with: str | None = None
    outcome: str
    reason: ReasonView | None
    ended_at: datetime


class LiveLine(BaseModel):
    """A queued or running verification. `run` counts from 0, with the latest quality measured.

    `model`, `hardware` and `submitter` are None for a calibration, which has no submission.
    """

    id: str
    kind: str
    benchmark: str
    model: str | None
    hardware: str | None
    submitter: str | None
    display_name: str | None = None
    trained_with: str | None = None
    state: str
    runs_planned: int
    worker: str | None
    run: int | None
    epoch: float | None
    quality: float | None
    created_at: datetime


def latest_verdicts(
    session: Session, *, limit: int, benchmark_id: str | None = None
) -> list[VerdictLine]:
    """Latest verdicts about submissions, newest first; of one benchmark or of all."""
    query = (
        _lines(Verification.outcome, Verification.reasons, Verification.ended_at)
        .where(
            Verification.outcome.is_not(None),
            Verification.submission_id.is_not(None),
            ranks(),
        )
        .order_by(Verification.ended_at.desc(), Verification.id)
        .limit(limit)
    )
    if benchmark_id is not None:
        query = query.where(BenchmarkDefinition.benchmark_id == benchmark_id)
    return [_verdict(row) for row in session.execute(query)]


def live_verifications(session: Session, *, limit: int) -> tuple[list[LiveLine], int]:
    """Running and then queued verifications, in the order of their requests, and their number."""
    count = session.scalar(
        select(func.count()).select_from(Verification).where(Verification.state.in_(OPEN))
    )
    if not count:
        return [], 0
    rows = session.execute(
        _lines(
            Verification.state,
            Verification.runs.label("runs_planned"),
            Verification.created_at,
        )
        .where(Verification.state.in_(OPEN))
        .order_by(Verification.state.desc(), Verification.created_at, Verification.id)
        .limit(limit)
    ).all()
    attempts = {
        attempt.verification_id: attempt
        for attempt in session.execute(
            select(Attempt.verification_id, Attempt.worker, Attempt.last_evaluation).where(
                Attempt.verification_id.in_([row.id for row in rows]), Attempt.state == "running"
            )
        )
    }
    return [_live(row, attempts.get(row.id)) for row in rows], count


def _lines(*columns: Any) -> Select[Any]:
    return (
        select(
            Verification.id,
            Verification.kind,
            BenchmarkDefinition.benchmark_id.label("benchmark"),
            Verification.submission_id,
            Submission.model,
            Submission.system,
            Submission.trained_with,
            SUBMITTER,
            DISPLAY_NAME,
            *columns,
        )
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .outerjoin(User, User.id == Submission.user_id)
        .outerjoin(Submission.published)
    )


def _verdict(row: Any) -> VerdictLine:
    weight = DECIDING_WEIGHTS.get(row.outcome, "leaves_open")
    reasons = [ReasonView(**reason) for reason in row.reasons]
    deciding = [reason for reason in reasons if reason.weight == weight]
    first = next(iter([*deciding, *reasons]), None)
    return VerdictLine(**{**row._mapping, "reason": first, "hardware": hardware_words(row.system)})


def _live(row: Any, attempt: Any | None) -> LiveLine:
    last: Mapping[str, Any] = (attempt.last_evaluation if attempt is not None else None) or {}
    return LiveLine(
        **row._mapping,
        hardware=hardware_words(row.system) if row.system else None,
        worker=attempt.worker if attempt is not None else None,
        run=last.get("run"),
        epoch=last.get("epoch"),
        quality=last.get("quality"),
    )
