"""End attempts without a report: the worker went silent, or took too long."""

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import ColumnElement, select
from sqlalchemy.orm import Session

from finishline.rules.verification.messages import Failure
from finishline.rules.verification.verdict import Reason
from server.base.database import Database, utc_now
from server.base.events import VerificationChanged, WorkerOut, emit
from server.base.models import Attempt, ReplayEventRow, Verification
from server.base.viewer import ORGANISER
from server.verifications.attempts import as_followed, retry_or_give_up
from server.verifications.cross_checks import has_other_owner
from server.verifications.free_workers import able_to_train, read_free_workers
from server.verifications.jobs import why_over_limit
from server.verifications.outcomes import NO_SECOND_WORKER
from server.verifications.queries import find_attempt
from server.verifications.states import StateError, end_open, move

LINES = 20


def last_heard(session: Session, attempt: Attempt) -> str | None:
    """Last events of an attempt, a line each; None without events."""
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


UNMADE = timedelta(minutes=10)
# An attempt waits as long, and a worker that was silent as long does not come back.
LONGEST_WAIT = timedelta(days=7)
NOBODY_CAME = Reason(
    "infrastructure", "leaves_open", "no worker was able to train it within seven days"
)
log = logging.getLogger(__name__)


def expire_leases(database: Database, *, now: datetime | None = None) -> int:
    """Mark every attempt with an expired lease as lost, and queue a retry for each."""
    silent = (Attempt.state == "running") & (Attempt.lease_expires_at < (now or utc_now()))

    def lose(session: Session, attempt: Attempt) -> None:
        lost_worker = Failure(
            kind="infrastructure",
            code="worker_lost",
            message=f"worker {attempt.worker} went silent and its lease ran out",
            next_step="nothing to do: another attempt is queued",
        )
        failure = as_followed(attempt, lost_worker)
        heard = last_heard(session, attempt)
        move(session, attempt, "lose", silent, failure=asdict(failure), log_tail=heard)
        log.warning("%s", failure.message, extra=_ids(attempt))
        _announce_lost(session, attempt, why=failure.message)
        retry_or_give_up(session, attempt, failure)

    return _end_each(database, _ids_of(database, silent), lose)


def _ids_of(database: Database, *conditions: ColumnElement[bool]) -> Sequence[str]:
    """Ids of attempts, each with its verification, in the order in which they are ended."""
    query = select(Attempt.id).join(Verification).where(*conditions).order_by(Attempt.id)
    with database.read_columns() as connection:
        return connection.scalars(query).all()


def _end_each(
    database: Database, attempt_ids: Iterable[str], end: Callable[[Session, Attempt], None]
) -> int:
    """End each attempt in a transaction of its own; returns how many were ended."""
    ended = 0
    for attempt_id in attempt_ids:
        try:
            with database.write() as session:
                end(session, find_attempt(session, attempt_id))
            ended += 1
        except StateError as moved:
            log.info("not ended: %s", moved)
    return ended


def _announce_lost(session: Session, attempt: Attempt, *, why: str) -> None:
    emit(session, VerificationChanged(attempt.verification, "lost", attempt))
    if attempt.worker is not None:
        emit(session, WorkerOut(attempt.worker, "lost", why=why, attempt_id=attempt.id))


def end_overdue(database: Database, *, now: datetime | None = None) -> int:
    """End every running attempt that is past its verification's time limit or its run's."""
    moment = now or utc_now()
    running = Attempt.state == "running"
    with database.read(ORGANISER) as session:
        under_way = session.scalars(select(Attempt).where(running).order_by(Attempt.id)).unique()
        overdue = [each.id for each in under_way if why_over_limit(each, now=moment) is not None]

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
        heard = last_heard(session, attempt)
        move(session, attempt, "fail", failure=asdict(failure), log_tail=heard)
        log.warning("ended: %s", too_long, extra=_ids(attempt))
        retry_or_give_up(session, attempt, failure)

    return _end_each(database, overdue, fail)


def end_unmade_cross_checks(database: Database, *, now: datetime | None = None) -> int:
    """End each waiting cross-check that no other owner's worker is there to make.

    The verdict that waits for it is then left open, instead of waiting for ever.
    """
    waiting = _ids_of(
        database,
        Attempt.state == "queued",
        Verification.checks_id.is_not(None),
        Attempt.asked_at < (now or utc_now()) - UNMADE,
    )
    with database.read(ORGANISER) as session:
        unmade = [
            attempt_id
            for attempt_id in waiting
            if not _has_other_owner(session, find_attempt(session, attempt_id))
        ]

    return _end_each(database, unmade, partial(_end_waiting, why=NO_SECOND_WORKER))


def _has_other_owner(session: Session, attempt: Attempt) -> bool:
    checked = session.get_one(Verification, attempt.verification.checks_id)
    seeds = attempt.verification.seeds
    return has_other_owner(session, checked, attempt.hardware_class or "", seeds=seeds)


def end_waited(database: Database, *, now: datetime | None = None) -> int:
    """End each attempt that waited for seven days in which no worker came that may train it."""
    moment = now or utc_now()
    waiting = _ids_of(database, Attempt.state == "queued", Attempt.asked_at < moment - LONGEST_WAIT)
    if not waiting:
        return 0
    with database.read(ORGANISER) as session:
        there = read_free_workers(
            session, alive_seconds=LONGEST_WAIT.total_seconds(), now=moment, stopped=True
        )
        names = {name for named in there.present.values() for name in named}
        unable = [
            attempt_id
            for attempt_id in waiting
            if not any(map(able_to_train(session, there, attempt_id), names))
        ]
    return _end_each(database, unable, partial(_end_waiting, why=NOBODY_CAME))


def _end_waiting(session: Session, attempt: Attempt, why: Reason) -> None:
    """End an attempt that waits in vain, and its verification without a verdict."""
    move(session, attempt, "expire")
    end_open(session, attempt.verification, "expire", why)


def _ids(attempt: Attempt) -> dict[str, str]:
    ids = {"attempt_id": attempt.id, "verification_id": attempt.verification_id}
    submission_id = attempt.verification.submission_id
    return ids if submission_id is None else ids | {"submission_id": submission_id}
