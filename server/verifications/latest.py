"""Latest verdicts and verifications under way, in short for the first page."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from pydantic import BaseModel
from sqlalchemy import Select, func, select
from sqlalchemy.orm import Session

from finishline.api.verifications import ReasonView
from server.base.database import utc_now
from server.base.models import (
    SUBMITTER,
    Attempt,
    BenchmarkDefinition,
    Submission,
    User,
    Verification,
)
from server.base.models.visibility import ranks, without_quality
from server.base.standing import OPEN

# Weight of the reasons that decide an outcome; other outcomes are left open by some reason.
DECIDING_WEIGHTS = {
    "verified": "supports",
    "rejected": "rejects",
    "challenger_faster": "supports",
    "holder_faster": "supports",
}


class VerdictLine(BaseModel):
    """A verdict with the first of the reasons that decide it.

    `model` and `submitter` are the submission's; in a duel they are the challenger's.
    """

    id: str
    kind: str
    benchmark: str
    submission_id: str
    model: str
    submitter: str
    outcome: str
    reason: ReasonView | None
    ended_at: datetime


class LiveLine(BaseModel):
    """A queued or running verification. `run` counts from 0, with the latest quality measured.

    `model` and `submitter` are None for a calibration, which has no submission.
    """

    id: str
    kind: str
    benchmark: str
    model: str | None
    submitter: str | None
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
            Verification.witness_token_id.is_(None),
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
            Verification.runs,
            Verification.own_runs,
            Verification.created_at,
            Submission.revealed_at,
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
            SUBMITTER,
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
    return VerdictLine(
        **_subject(row),
        outcome=row.outcome,
        reason=first,
        ended_at=row.ended_at,
    )


def _live(row: Any, attempt: Any | None) -> LiveLine:
    last: Mapping[str, Any] = (attempt.last_evaluation if attempt is not None else None) or {}
    is_hidden = row.revealed_at is not None and row.revealed_at > utc_now()
    if last and is_hidden:
        last = without_quality(dict(last), row.own_runs)
    subject = _subject(row)
    del subject["submission_id"]
    return LiveLine(
        **subject,
        state=row.state,
        runs_planned=row.runs,
        worker=attempt.worker if attempt is not None else None,
        run=last.get("run"),
        epoch=last.get("epoch"),
        quality=last.get("quality"),
        created_at=row.created_at,
    )


def _subject(row: Any) -> dict[str, Any]:
    names = ("id", "kind", "benchmark", "submission_id", "model", "submitter")
    return {name: getattr(row, name) for name in names}
