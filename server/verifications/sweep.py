"""End attempts without a report: the worker was silent or slow, or none came."""

import logging
from collections.abc import Callable, Iterable
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from finishline.rules.verification.messages import Failure
from finishline.rules.verification.verdict import Reason
from server.base.database import Database, find_row, utc_now
from server.base.events import VerificationChanged, WorkerOut, emit
from server.base.fleet import LONGEST_ABSENCE, Fleet
from server.base.models import Attempt, ReplayEventRow, Verification
from server.base.visibility import ORGANISER
from server.verifications.attempts import as_followed, retry_or_give_up
from server.verifications.jobs import Event, StateError, end, move, repeated, why_over_limit
from server.verifications.judge import NO_SECOND_WORKER, has_other_owner
from server.verifications.queue import able_workers, read_waiting

LINES = 20
UNMADE = timedelta(minutes=10)
NOBODY_CAME = Reason(
    "infrastructure", "leaves_open", "no worker was able to train it within seven days"
)
log = logging.getLogger(__name__)


def expire_leases(database: Database, *, now: datetime | None = None) -> int:
    """Mark every attempt with an expired lease as lost, and queue a retry for each."""
    silent = (Attempt.state == "running") & (Attempt.lease_expires_at < (now or utc_now()))

    def lose(session: Session, attempt: Attempt) -> None:
        words = f"worker {attempt.worker} went silent and its lease ran out"
        _fail(session, attempt, "lose", repeated("worker_lost", words), silent)

    with database.read(ORGANISER) as session:
        found = session.scalars(select(Attempt.id).where(silent).order_by(Attempt.id)).all()
    return _end_each(database, found, lose)


def end_overdue(database: Database, *, now: datetime | None = None) -> int:
    """End every running attempt past its time limit or its run's."""
    moment = now or utc_now()

    def fail(session: Session, attempt: Attempt) -> None:
        too_long = why_over_limit(attempt, now=moment)
        if too_long is None:
            raise StateError(f"Attempt {attempt.id} has begun another run.")
        failure = Failure(
            kind="time_limit",
            code="run_time_limit",
            message=too_long,
            next_step="request it again for a faster worker, or one that does not hang",
        )
        _fail(session, attempt, "fail", failure)

    with database.read(ORGANISER) as session:
        running = select(Attempt).where(Attempt.state == "running").order_by(Attempt.id)
        attempts = session.scalars(running).unique()
        overdue = [each.id for each in attempts if why_over_limit(each, now=moment) is not None]
    return _end_each(database, overdue, fail)


def _fail(
    session: Session,
    attempt: Attempt,
    event: Event,
    failure: Failure,
    *conditions: ColumnElement[bool],
) -> None:
    failure, heard = as_followed(attempt, failure), last_heard(session, attempt)
    move(session, attempt, event, *conditions, failure=asdict(failure), log_tail=heard)
    ids = {"attempt_id": attempt.id, "verification_id": attempt.verification_id}
    if attempt.verification.submission_id is not None:
        ids["submission_id"] = attempt.verification.submission_id
    log.warning("%s", failure.message, extra=ids)
    if event == "lose":
        emit(session, VerificationChanged(attempt.verification, "lost", attempt))
        if attempt.worker is not None:
            why = failure.message
            emit(session, WorkerOut(attempt.worker, "lost", why=why, attempt_id=attempt.id))
    retry_or_give_up(session, attempt, failure)


def last_heard(session: Session, attempt: Attempt) -> str | None:
    """Format the last events of an attempt, a line each. None without events."""
    rows = session.execute(
        select(ReplayEventRow.event, ReplayEventRow.created_at)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence.desc())
        .limit(LINES)
    ).all()
    lines = [f"{row.created_at:%H:%M:%S} {_line(row.event)}" for row in reversed(rows)]
    # No database stores a NUL in a text.
    return "\n".join(lines).replace("\0", "\ufffd") or None


def _line(event: dict[str, Any]) -> str:
    run = f"run {event['run'] + 1}"
    at = "" if event.get("seconds") is None else f" after {event['seconds']:.3f} s"
    if event["kind"] == "evaluation":
        epoch = "" if event.get("epoch") is None else f", epoch {event['epoch']:g}"
        told = "unknown" if event.get("quality") is None else f"{event['quality']:g}"
        return f"{run}{epoch}: quality {told}{at}"
    words = {"run_started": "started", "phase": event.get("phase"), "run_finished": "ended"}
    status = f", {event['status'].replace('_', ' ')}" if event.get("status") else ""
    return f"{run}: {words.get(event['kind'], event['kind'])}{at}{status}"


def end_unmade_cross_checks(database: Database, *, now: datetime | None = None) -> int:
    """End reruns waiting without another owner's worker. Their verdicts are left open."""
    waiting = (
        select(Attempt)
        .join(Verification)
        .where(
            Attempt.state == "queued",
            Verification.checks_id.is_not(None),
            Attempt.asked_at < (now or utc_now()) - UNMADE,
        )
        .order_by(Attempt.id)
    )

    def is_unmade(session: Session, attempt: Attempt) -> bool:
        checked = session.get_one(Verification, attempt.verification.checks_id)
        seeds, hardware_class = attempt.verification.seeds, attempt.hardware_class or ""
        return not has_other_owner(session, checked, hardware_class, seeds=seeds)

    with database.read(ORGANISER) as session:
        attempts = session.scalars(waiting).unique().all()
        unmade = [attempt.id for attempt in attempts if is_unmade(session, attempt)]
    return _end_each(database, unmade, partial(_end_waiting, why=NO_SECOND_WORKER))


def end_waited(database: Database, *, now: datetime | None = None) -> int:
    """End each attempt that waited seven days for a worker able to train it."""
    moment = now or utc_now()
    with database.read(ORGANISER) as session:
        fleet = Fleet.read(session)
        waiting = read_waiting(session, Attempt.asked_at < moment - LONGEST_ABSENCE)
        unable = [row.id for row in waiting if not able_workers(session, fleet, row, fleet.recent)]
    return _end_each(database, unable, partial(_end_waiting, why=NOBODY_CAME))


def _end_waiting(session: Session, attempt: Attempt, why: Reason) -> None:
    move(session, attempt, "expire")
    end(session, attempt.verification, "expire", why=why)


def _end_each(
    database: Database, attempt_ids: Iterable[str], stop: Callable[[Session, Attempt], None]
) -> int:
    ended = 0
    for attempt_id in attempt_ids:
        try:
            with database.write() as session:
                stop(session, find_row(session, Attempt, attempt_id))
            ended += 1
        except StateError as moved:
            log.info("not ended: %s", moved)
    return ended
