"""Queued and running attempts: a few columns, never a report or a curve."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from sqlalchemy import ColumnElement, Select, func, select, true
from sqlalchemy.orm import Session

from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    ReplayEventRow,
    Submission,
    Verification,
    WorkerRow,
)
from server.base.standing import OPEN
from server.verifications.fair_queue import Waiting


@dataclass(frozen=True, slots=True)
class Queued:
    """A queued attempt and the hardware class it waits for, None for any."""

    turn: Waiting
    wanted: str | None
    sent_to: str | None = None
    verification_id: str = ""


RECENT_ATTEMPTS = 200


@dataclass(frozen=True)
class AttemptWork:
    """An attempt, its verification, and the benchmark and submission that this is about."""

    attempt_id: str
    number: int
    state: str
    worker: str | None
    queued_at: datetime
    started_at: datetime | None
    ended_at: datetime | None
    failure: dict[str, Any] | None
    verification_id: str
    kind: str
    runs: int
    asked_at: datetime
    benchmark: str
    submission_id: str | None
    model: str | None
    by_organiser: bool


@dataclass(frozen=True, slots=True)
class WaitingMark:
    """Fingerprint of the queue: it changes when the queue does. Read from an index alone."""

    count: int
    latest: datetime | None
    sent: int


def waiting_mark(session: Session) -> WaitingMark:
    """Read the queue's current fingerprint."""
    counted = select(func.count(), func.max(Attempt.asked_at), func.count(Attempt.sent_to))
    count, latest, sent = session.execute(counted.where(Attempt.state == "queued")).one()
    return WaitingMark(count, latest, sent)


def waiting_attempts(session: Session) -> list[Queued]:
    """Every queued attempt, the oldest first; there may be thousands."""
    query = (
        select(
            Attempt.id,
            Attempt.verification_id,
            Attempt.hardware_class,
            Attempt.sent_to,
            Attempt.submitter_id,
            Attempt.by_organiser,
            Attempt.asked_at,
        )
        .where(Attempt.state == "queued")
        .order_by(Attempt.asked_at, Attempt.id)
    )
    return [
        Queued(
            Waiting(attempt_id, sharer, by_organiser, asked_at),
            wanted,
            sent_to,
            verification_id,
        )
        for (
            attempt_id, verification_id, wanted, sent_to, sharer, by_organiser, asked_at,
        ) in session.execute(query)
    ]  # fmt: skip


def attempts_by_id(session: Session, attempt_ids: Sequence[str]) -> dict[str, AttemptWork]:
    """Attempts by id, with every column that is shown."""
    rows = session.execute(_attempts().where(Attempt.id.in_(attempt_ids))).mappings()
    return {row["attempt_id"]: AttemptWork(**row) for row in rows}


def running_attempts(session: Session, *which: ColumnElement[bool]) -> list[AttemptWork]:
    """Every running attempt, or those that meet a condition."""
    query = _attempts().where(Attempt.state == "running", *which).order_by(Attempt.started_at)
    return [AttemptWork(**row) for row in session.execute(query).mappings()]


def attempts_of(session: Session, worker: str, *, limit: int) -> list[AttemptWork]:
    """The latest attempts of a worker, newest first."""
    query = _attempts().where(Attempt.worker == worker)
    latest = query.order_by(Attempt.started_at.desc()).limit(limit)
    return [AttemptWork(**row) for row in session.execute(latest).mappings()]


def existing_verifications(session: Session) -> set[str]:
    """Ids of the open verifications that the session's reader may see."""
    return set(session.scalars(select(Verification.id).where(Verification.state.in_(OPEN))))


def is_anything_embargoed(session: Session) -> bool:
    """Whether any submission is hidden from some reader. For a session that sees all."""
    embargoed = select(Submission.id).where(Submission.embargoed.is_(true())).limit(1)
    return session.scalar(embargoed) is not None


def runs_under_way(session: Session, attempt_ids: list[str]) -> dict[str, int]:
    """Current run (from 0) of each attempt, from the last event received."""
    latest = (
        select(ReplayEventRow.attempt_id, func.max(ReplayEventRow.sequence).label("sequence"))
        .where(ReplayEventRow.attempt_id.in_(attempt_ids))
        .group_by(ReplayEventRow.attempt_id)
        .subquery()
    )
    rows = session.scalars(
        select(ReplayEventRow).join(
            latest,
            (ReplayEventRow.attempt_id == latest.c.attempt_id)
            & (ReplayEventRow.sequence == latest.c.sequence),
        )
    )
    return {row.attempt_id: int(row.event["run"]) for row in rows}


def recent_seconds(session: Session) -> list[tuple[str, float]]:
    """Hardware class and seconds of the latest successful attempts."""
    query = (
        select(WorkerRow.hardware_class, Attempt.started_at, Attempt.ended_at)
        .join(WorkerRow, WorkerRow.name == Attempt.worker)
        .where(Attempt.state == "done", Attempt.ended_at.is_not(None))
        .order_by(Attempt.ended_at.desc())
        .limit(RECENT_ATTEMPTS)
    )
    return [
        (row.hardware_class, (row.ended_at - row.started_at).total_seconds())
        for row in session.execute(query)
        if row.started_at is not None
    ]


def _attempts() -> Select[Any]:
    return (
        select(
            Attempt.id.label("attempt_id"),
            Attempt.number,
            Attempt.state,
            Attempt.worker,
            Attempt.created_at.label("queued_at"),
            Attempt.started_at,
            Attempt.ended_at,
            Attempt.failure,
            Verification.id.label("verification_id"),
            Verification.kind,
            Verification.runs,
            Attempt.asked_at,
            Attempt.by_organiser,
            Verification.submission_id,
            BenchmarkDefinition.benchmark_id.label("benchmark"),
            Submission.model,
        )
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
    )
