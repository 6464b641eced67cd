"""Writing down what happened, in the transaction in which it does.

What is announced is written when the transaction commits, and only if somebody listens: on a
server without webhooks a submission pays one SELECT. Nothing is told of what was published
elsewhere.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import exists, insert, or_, select
from sqlalchemy.orm import Session

from server.database import after_commit, before_commit, utc_now
from server.events import (
    CalibrationAdopted,
    StatusChanged,
    SubmissionAccepted,
    SubmissionWithdrawn,
    VerificationChanged,
    WorkerOut,
)
from server.models import (
    MailSubscription,
    NoticeEvent,
    Submission,
    Verification,
    Webhook,
    WorkerRow,
)
from server.notices.contents import (
    calibration_content,
    record_check_content,
    submission_content,
    verification_content,
    worker_content,
)
from server.notices.kinds import RECORD_CHECK, EventKind, is_submission_status
from server.notices.listeners import is_confirmed
from server.notices.waking import waking_of

ANNOUNCED = "announced"
MAY_TAKE_A_RECORD = ("replay", "duel")
SOMEBODY_LISTENS = select(
    or_(
        exists(select(Webhook.id).where(Webhook.disabled_at.is_(None))),
        exists(select(MailSubscription.id).where(is_confirmed())),
    )
)
Content = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """What an event is about: whose it is, of which benchmark, and what is told of it.

    Without a benchmark it is told to its user, and to organisers who are told of everything.
    """

    user_id: int | None
    benchmark_id: str | None
    content: Content


@dataclass(frozen=True)
class _Announced:
    """`describe` is asked when the transaction ends, and only if somebody listens."""

    kind: str
    describe: Callable[[], Subject]


def announce(session: Session, kind: str, describe: Callable[[], Subject]) -> None:
    """Tell of something that this transaction does; told if and only if that is kept."""
    announced: list[_Announced] = session.info.setdefault(ANNOUNCED, [])
    if not announced:
        before_commit(session, lambda: _write(session))
    announced.append(_Announced(kind, describe))


def tell_accepted(session: Session, event: SubmissionAccepted) -> None:
    """Announce a new submission."""
    _announce_submission(session, event.submission, "submission.accepted")


def tell_withdrawn(session: Session, event: SubmissionWithdrawn) -> None:
    """Announce a withdrawal."""
    _announce_submission(session, event.submission, "submission.withdrawn")


def tell_status(session: Session, event: StatusChanged) -> None:
    """Announce the status that a submission comes to; the one that it leaves is no news."""
    if event.status != event.before and is_submission_status(event.status):
        kind = f"submission.{event.status}"
        _announce_submission(session, event.submission, kind)  # type: ignore[arg-type]


def _announce_submission(session: Session, submission: Submission, kind: EventKind) -> None:
    """Announce a submission, unless it was published elsewhere."""
    if submission.published is not None:
        return

    def describe() -> Subject:
        content = submission_content(submission)
        return Subject(submission.user_id, watched_benchmark(submission), content)

    announce(session, kind, describe)


def watched_benchmark(submission: Submission) -> str | None:
    """The benchmark whose watchers are told; None while a submission is under embargo."""
    return None if submission.embargoed else submission.benchmark_id


def tell_verification(session: Session, event: VerificationChanged) -> None:
    """Announce a verification, and its attempt where the event is one's."""
    verification, attempt = event.verification, event.attempt
    # As they are at this moment: a lost attempt is followed by another in the same transaction.
    told = None if attempt is None else {"number": attempt.number, "worker": attempt.worker}

    def describe() -> Subject:
        submission = verification.submission
        content = verification_content(session, verification, attempt=told)
        if submission is not None:
            return Subject(submission.user_id, watched_benchmark(submission), content)
        return Subject(verification.requested_by, content["verification"]["benchmark"], content)

    published = event.moment == "decision_published"
    announce(
        session, "decision.published" if published else f"verification.{event.moment}", describe
    )
    if event.moment == "done" and verification.kind in MAY_TAKE_A_RECORD:
        _announce_record_check(session, verification)


def _announce_record_check(session: Session, verification: Verification) -> None:
    """Have it looked up whether the pool of a verification's submission took a record by it."""
    submission = verification.submission
    if submission is None or watched_benchmark(submission) is None:
        return

    def describe() -> Subject:
        content = record_check_content(submission, since=verification.created_at)
        return Subject(submission.user_id, submission.benchmark_id, content)

    announce(session, RECORD_CHECK, describe)


def tell_calibration(session: Session, event: CalibrationAdopted) -> None:
    """Announce the adoption of a calibration."""
    calibration = event.calibration
    announce(
        session,
        "calibration.adopted",
        lambda: Subject(
            calibration.requested_by, calibration.benchmark_id, calibration_content(calibration)
        ),
    )


def tell_worker(session: Session, event: WorkerOut) -> None:
    """Announce to organisers, and to its owner, that a worker is out."""

    def describe() -> Subject:
        worker = session.get(WorkerRow, event.name)
        owner = worker.user_id if worker is not None else None
        content = worker_content(event.name, worker, why=event.why, attempt_id=event.attempt_id)
        return Subject(owner, None, content)

    announce(session, f"worker.{event.moment}", describe)


def new_event(kind: str, subject: Subject) -> dict[str, Any]:
    """The row of an event, by its columns."""
    return {
        "id": f"msg_{secrets.token_hex(10)}",
        "kind": kind,
        "user_id": subject.user_id,
        "benchmark_id": subject.benchmark_id,
        "content": subject.content,
        "created_at": utc_now(),
    }


def _write(session: Session) -> None:
    """Add what was announced to the transaction, in order, if there is anybody to tell."""
    announced: list[_Announced] = session.info.pop(ANNOUNCED, [])
    session.flush()
    if not session.connection().scalar(SOMEBODY_LISTENS):
        return
    rows = [new_event(item.kind, item.describe()) for item in announced]
    session.execute(insert(NoticeEvent), rows)
    after_commit(session, waking_of(session).set)
