"""Announce events: write them in the transaction that causes them, if anybody subscribes."""

import hashlib
import hmac
import secrets
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import quote

from sqlalchemy import exists, insert, or_, select
from sqlalchemy.orm import Session

from server.base.database import before_commit, moment_text, utc_now
from server.base.errors import NotFoundError
from server.base.events import (
    AuditDayEnded,
    CalibrationAdopted,
    NoticeWakeup,
    StatusChanged,
    SubmissionAccepted,
    SubmissionWithdrawn,
    VerificationChanged,
    WorkerOut,
    wake_after_commit,
)
from server.base.models import (
    BenchmarkDefinition,
    Calibration,
    MailSubscription,
    NoticeEvent,
    Submission,
    Verification,
    Webhook,
    WorkerRow,
)
from server.base.standing import purpose_of
from server.notices.subscribers import is_confirmed
from server.notices.views import KINDS, EventKind

ABOUT: dict[str, str] = {
    "submission.accepted": "A submission is stored and scored.",
    "submission.verifying": "Its first verification was requested.",
    "submission.verified": "It counts as verified.",
    "submission.rejected": "It counts as rejected.",
    "submission.inconclusive": "Its verification was inconclusive.",
    "submission.withdrawn": "It was withdrawn.",
    "verification.queued": "An attempt waits for a worker.",
    "verification.started": "A worker leased the attempt.",
    "verification.lost": "The worker went offline; another attempt follows while any are left.",
    "verification.done": "It ended with an outcome.",
    "verification.failed": "It ended without one.",
    "verification.cancelled": "It was cancelled.",
    "record.set": "A measured time took the record of its division.",
    "calibration.adopted": "A calibration is used for replays planned from now on.",
    "decision.published": "An organiser published the verdict of a rerun.",
    "worker.drifted": "A worker is off its baseline speed and gets no work.",
    "worker.lost": "A worker went offline during a training.",
    "worker.paused": (
        "The server paused a worker: too many failures, or reports that other workers contradict."
    ),
    "worker.refused": "A worker's report was refused: it contradicts the server's observations.",
    "audit.head": "The audit log's last record of a day, with the first one of a later day.",
}
# Not for subscription: a ping, the confirmation of an address, a webhook that was disabled.
TEST = "webhook.test"
CONFIRM = "mail.confirm"
SWITCHED_OFF = "webhook.disabled"
# Internal, never delivered: a submission that may have set a record.
RECORD_CHECK = "record.check"


def is_submission_status(status: str) -> bool:
    """Whether a submission's change to this status is an event."""
    return f"submission.{status}" in KINDS


API = "/api/v1"
# Names are a stranger's; a message stays small however long one is.
LONGEST_NAME = 200
Content = dict[str, Any]


def submission_content(submission: Submission) -> Content:
    """Content of a submission without its cost, which follows the price book."""
    return {
        "submission": {
            "id": submission.id,
            "benchmark": submission.benchmark_id,
            "division": submission.division,
            "kind": submission.kind,
            "model": submission.model[:LONGEST_NAME],
            "submitter": submission.submitter,
            "display_name": submission.display_name,
            "status": submission.status,
            "tta_seconds": submission.tta_seconds,
            "latency_ms": submission.latency_ms,
        },
        "links": links_of("submissions", submission.id),
    }


def record_check_content(submission: Submission, *, since: datetime) -> Content:
    """Content of a record check: the submission that may hold a record, and since when."""
    return {"submission": submission.id, "since": since.isoformat()}


def verification_content(
    session: Session, verification: Verification, *, attempt: dict[str, Any] | None
) -> Content:
    """Content of a verification, the attempt of the event, and its submission."""
    submission = verification.submission
    return {
        "verification": {
            "id": verification.id,
            "kind": verification.kind,
            "benchmark": _benchmark_of(session, verification),
            "state": verification.state,
            "outcome": verification.outcome,
        },
        "attempt": attempt,
        "submission": None if submission is None else submission_content(submission)["submission"],
        "links": links_of("verifications", verification.id),
    }


def calibration_content(calibration: Calibration) -> Content:
    """Content of a calibration, by its number."""
    return {
        "calibration": {
            "id": calibration.id,
            "benchmark": calibration.benchmark_id,
            "version": calibration.version,
            "state": calibration.state,
        },
        "links": links_of("calibrations", calibration.id),
    }


def worker_content(
    name: str, worker: WorkerRow | None, *, why: str, attempt_id: str | None
) -> Content:
    """Content of a worker, and the reason of the event."""
    return {
        "worker": {
            "name": name,
            "hardware_class": worker.hardware_class if worker is not None else None,
            "why": why,
            "attempt": attempt_id,
        },
        "links": {"api": f"{API}/workers", "page": f"/workers/{quote(name, safe='')}"},
    }


def links_of(kind: str, subject_id: str) -> dict[str, str]:
    """Links to a subject: for programs and for people."""
    return {"api": f"{API}/{kind}/{subject_id}", "page": f"/{kind}/{subject_id}"}


def _benchmark_of(session: Session, verification: Verification) -> str | None:
    if verification.submission is not None:
        return verification.submission.benchmark_id
    return session.scalar(
        select(BenchmarkDefinition.benchmark_id).where(
            BenchmarkDefinition.sha256 == verification.benchmark_sha256
        )
    )


ANNOUNCED = "announced"
SOMEBODY_LISTENS = select(
    or_(
        exists(select(Webhook.id).where(Webhook.disabled_at.is_(None))),
        exists(select(MailSubscription.id).where(is_confirmed())),
    )
)


@dataclass(frozen=True)
class Subject:
    """Subject of an event: its user, its benchmark, and the content of the notice.

    Without a benchmark only its user, and organisers subscribed to everything, are notified.
    """

    user_id: int | None
    benchmark_id: str | None
    content: Content


@dataclass(frozen=True)
class _Announced:
    """Event to write. `describe` is called at the end of the transaction, if anybody subscribes."""

    kind: str
    describe: Callable[[], Subject]


def announce(session: Session, kind: str, describe: Callable[[], Subject]) -> None:
    """Announce an event of this transaction; it is written if and only if that commits."""
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
    """Announce the new status of a submission, if it has changed."""
    if event.status != event.before and is_submission_status(event.status):
        kind = f"submission.{event.status}"
        _announce_submission(session, event.submission, kind)  # type: ignore[arg-type]


def _announce_submission(session: Session, submission: Submission, kind: EventKind) -> None:
    if submission.published is not None:
        return

    def describe() -> Subject:
        content = submission_content(submission)
        return Subject(submission.user_id, watched_benchmark(submission), content)

    announce(session, kind, describe)


def watched_benchmark(submission: Submission) -> str | None:
    """Benchmark whose watchers are notified; None while a submission is under embargo."""
    return None if submission.embargoed else submission.benchmark_id


def tell_verification(session: Session, event: VerificationChanged) -> None:
    """Announce a verification, with the attempt if the event is about one."""
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
    decides_first = purpose_of(verification).fills_pool or verification.against_id is not None
    if event.moment == "done" and decides_first:
        _announce_record_check(session, verification)


def _announce_record_check(session: Session, verification: Verification) -> None:
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
    """Announce to organisers, and to its owner, that a worker is paused or excluded."""

    def describe() -> Subject:
        worker = session.get(WorkerRow, event.name)
        owner = worker.user_id if worker is not None else None
        content = worker_content(event.name, worker, why=event.why, attempt_id=event.attempt_id)
        return Subject(owner, None, content)

    announce(session, f"worker.{event.moment}", describe)


def tell_audit_head(session: Session, event: AuditDayEnded) -> None:
    """Announce the head that the audit log had at the end of a day."""
    head = {"id": event.head_id, "sha256": event.sha256, "at": moment_text(event.at)}
    links = {"api": f"{API}/audit/head", "page": "/audit.atom"}
    announce(session, "audit.head", lambda: Subject(None, None, {"head": head, "links": links}))


def new_event(kind: str, subject: Subject) -> dict[str, Any]:
    """Columns of an event's row."""
    return {
        "id": f"msg_{secrets.token_hex(10)}",
        "kind": kind,
        "user_id": subject.user_id,
        "benchmark_id": subject.benchmark_id,
        "content": subject.content,
        "created_at": utc_now(),
    }


def _write(session: Session) -> None:
    announced: list[_Announced] = session.info.pop(ANNOUNCED, [])
    session.flush()
    if not session.connection().scalar(SOMEBODY_LISTENS):
        return
    rows = [new_event(item.kind, item.describe()) for item in announced]
    session.execute(insert(NoticeEvent), rows)
    wake_after_commit(session, NoticeWakeup)


Purpose = Literal["confirm", "unsubscribe"]


def link_token(subscription: MailSubscription, purpose: Purpose) -> str:
    """Token of a link: the subscription's id, and a signature with its secret."""
    return f"{subscription.id}.{_signature(subscription, purpose)}"


def find_by_link(session: Session, token: str, purpose: Purpose) -> MailSubscription:
    """Find the subscription of a link. Raises NotFoundError, also for an invalid signature."""
    subscription_id, _, signature = token.partition(".")
    found = session.get(MailSubscription, subscription_id)
    if (found is None or found.ended_at is not None) or not hmac.compare_digest(
        _signature(found, purpose).encode(), signature.encode()
    ):
        raise NotFoundError(
            "This link has expired or is incomplete. Copy the whole link, or subscribe again."
        )
    return found


def _signature(subscription: MailSubscription, purpose: Purpose) -> str:
    # The address is part of it: a link confirms the one it was sent to.
    content = f"{purpose}.{subscription.id}.{subscription.address}".encode()
    return hmac.new(subscription.secret.encode(), content, hashlib.sha256).hexdigest()[:40]
