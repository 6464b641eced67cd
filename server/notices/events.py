"""Events and who gets them: messages are written in the transaction of the event's change."""

import logging
import secrets
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal, get_args
from urllib.parse import quote

from sqlalchemy import ColumnElement, Text, cast, func, or_, select
from sqlalchemy.orm import Session

from server.base.database import before_commit, moment_text, utc_now
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
    Message,
    Receiver,
    Submission,
    Token,
    User,
    Verification,
    WorkerRow,
)
from server.base.standing import purpose_of
from server.boards.records import RecordView
from server.people.accounts import ORGANISERS

log = logging.getLogger(__name__)

EventKind = Literal[
    "submission.accepted", "submission.verifying", "submission.verified", "submission.rejected",
    "submission.inconclusive", "submission.withdrawn", "verification.queued",
    "verification.started", "verification.lost", "verification.done", "verification.failed",
    "verification.cancelled", "record.set", "calibration.adopted", "decision.published",
    "worker.drifted", "worker.lost", "worker.paused", "worker.refused", "audit.head",
]  # fmt: skip
KINDS: tuple[EventKind, ...] = get_args(EventKind)
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
TEST, CONFIRM, SWITCHED_OFF = "webhook.test", "mail.confirm", "webhook.disabled"
# For the server itself: a submission that may have set a record. A burst has time to end.
RECORD_CHECK = "record.check"
RECORD_WAIT = timedelta(seconds=2)
AUDIT_HEAD = "audit.head"
OWN, BENCHMARK, ALL = "own", "benchmark", "all"
MAILS_PER_DAY = 50
ANNOUNCED = "announced"
API = "/api/v1"
# Names are a stranger's. A message stays small however long one is.
LONGEST_NAME = 200
Content = dict[str, Any]


@dataclass(frozen=True)
class Subject:
    """Subject of an event: its user, its benchmark, and the content of the message.

    Without a benchmark only its user, and organisers subscribed to everything, are notified.
    """

    user_id: int | None
    benchmark_id: str | None
    content: Content


Announced = tuple[str, Callable[[], Subject]]


def announce(session: Session, kind: str, describe: Callable[[], Subject]) -> None:
    """Announce an event of this transaction. Its messages are written if that commits.

    `describe` is called at the end of the transaction, if anybody subscribes.
    """
    announced: list[Announced] = session.info.setdefault(ANNOUNCED, [])
    if not announced:
        before_commit(session, lambda: _write(session))
    announced.append((kind, describe))


def _write(session: Session) -> None:
    announced: list[Announced] = session.info.pop(ANNOUNCED, [])
    session.flush()
    receivers = _find_receivers(session, {kind for kind, _ in announced})
    if not receivers:
        return
    sent_today: Counter[str] | None = None
    for kind, describe in announced:
        subject = describe()
        if kind == RECORD_CHECK:
            if any("record.set" in each.kinds for each in receivers):
                queue(session, kind, subject.content, [None])
            continue
        wanted = [each for each in receivers if _wants(each, kind, subject)]
        if any(each.channel == "mail" for each in wanted):
            sent_today = _mails_today(session) if sent_today is None else sent_today
            wanted = [each for each in wanted if _has_room(each, sent_today)]
        queue(session, kind, subject.content, wanted)


def _find_receivers(session: Session, kinds: Iterable[str]) -> list[Receiver]:
    """Receivers of any of the kinds, of users who are not disabled.

    One of all events gets them while its user is an organiser.
    """
    asked = ("record.set" if kind == RECORD_CHECK else kind for kind in kinds)
    is_organiser = select(Token.id).where(
        Token.user_id == User.id,
        Token.role.in_(ORGANISERS),
        User.role.in_(ORGANISERS),
        Token.revoked_at.is_(None),
        or_(Token.expires_at.is_(None), Token.expires_at > utc_now()),
    )
    found = (
        select(Receiver)
        .join(User, User.id == Receiver.user_id)
        .where(
            is_active(),
            User.disabled_at.is_(None),
            or_(*(cast(Receiver.kinds, Text).contains(f'"{kind}"') for kind in asked)),
            or_(Receiver.scope != ALL, is_organiser.exists()),
        )
    )
    return list(session.scalars(found))


def is_active() -> ColumnElement[bool]:
    """SQL condition: receivers that are confirmed and have not ended."""
    return Receiver.confirmed_at.is_not(None) & Receiver.disabled_at.is_(None)


def _wants(receiver: Receiver, kind: str, subject: Subject) -> bool:
    if kind not in receiver.kinds:
        return False
    if receiver.scope == ALL or kind == AUDIT_HEAD:  # Everybody may read the head.
        return True
    if receiver.scope == OWN:
        return receiver.user_id == subject.user_id
    return receiver.benchmark_id == subject.benchmark_id


def _mails_today(session: Session) -> Counter[str]:
    rows = session.execute(
        select(Receiver.address, func.count())
        .join(Message, Message.receiver_id == Receiver.id)
        .where(Receiver.channel == "mail", Message.created_at > utc_now() - timedelta(days=1))
        .group_by(Receiver.address)
    )
    return Counter(dict(rows.all()))


def _has_room(receiver: Receiver, sent_today: Counter[str]) -> bool:
    """Whether a mail address has not had its mails of today. Counts this one."""
    if receiver.channel != "mail":
        return True
    sent_today[receiver.address] += 1
    if sent_today[receiver.address] > MAILS_PER_DAY:
        log.warning("no mail to receiver %s: it has had its mails of today", receiver.id)
        return False
    return True


def queue(
    session: Session, kind: str, content: Content, receivers: Sequence[Receiver | None]
) -> list[Message]:
    """Write an event's message to each receiver, due now. All have the same message id."""
    now, message_id = utc_now(), f"msg_{secrets.token_hex(10)}"
    messages = [
        Message(
            message_id=message_id,
            receiver=receiver,
            kind=kind,
            content=content,
            state="waiting",
            due_at=now + RECORD_WAIT if kind == RECORD_CHECK else now,
            failures=0,
            tries=[],
            created_at=now,
        )
        for receiver in receivers
    ]
    session.add_all(messages)
    session.flush()
    if messages:
        wake_after_commit(session, NoticeWakeup)
    return messages


def tell_submission(
    session: Session, event: SubmissionAccepted | SubmissionWithdrawn | StatusChanged
) -> None:
    """Announce a new submission, its withdrawal, or the status that it changed to."""
    submission, word = event.submission, "accepted"
    if isinstance(event, SubmissionWithdrawn):
        word = "withdrawn"
    elif isinstance(event, StatusChanged):
        word = event.status if event.status != event.before else ""
    kind = f"submission.{word}"
    if kind in KINDS and submission.published is None:
        announce(session, kind, lambda: subject_of(submission))


def subject_of(submission: Submission) -> Subject:
    """A submission as the subject of an event, without its cost, which follows the price book."""
    own = {
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
    }
    content = {"submission": own, "links": links_of("submissions", submission.id)}
    return Subject(submission.user_id, watched_benchmark(submission), content)


def watched_benchmark(submission: Submission) -> str | None:
    """Benchmark whose watchers are notified. None while a submission is under embargo."""
    return None if submission.embargoed else submission.benchmark_id


def links_of(kind: str, subject_id: str) -> dict[str, str]:
    """Links to a subject: for programs and for people."""
    return {"api": f"{API}/{kind}/{subject_id}", "page": f"/{kind}/{subject_id}"}


def tell_verification(session: Session, event: VerificationChanged) -> None:
    """Announce a verification, with the attempt if the event is about one."""
    verification, attempt = event.verification, event.attempt
    # As they are at this moment: a lost attempt is followed by another in the same transaction.
    told = None if attempt is None else {"number": attempt.number, "worker": attempt.worker}
    published = event.moment == "decision_published"
    kind = "decision.published" if published else f"verification.{event.moment}"
    announce(session, kind, lambda: _verification_subject(session, verification, told))
    submission = verification.submission
    decides_first = purpose_of(verification).fills_pool or verification.against_id is not None
    if event.moment == "done" and decides_first and submission is not None:
        benchmark, since = watched_benchmark(submission), verification.created_at.isoformat()
        if benchmark is not None:
            check = {"submission": submission.id, "benchmark": benchmark, "since": since}
            announce(session, RECORD_CHECK, lambda: Subject(None, None, check))


def _verification_subject(
    session: Session, verification: Verification, attempt: Content | None
) -> Subject:
    """A verification as the subject of an event: that of its submission, if it has one."""
    submission = verification.submission
    about = None if submission is None else subject_of(submission)
    same = BenchmarkDefinition.sha256 == verification.benchmark_sha256
    found = select(BenchmarkDefinition.benchmark_id).where(same)
    benchmark = session.scalar(found) if submission is None else submission.benchmark_id
    content = {
        "verification": {
            "id": verification.id,
            "kind": verification.kind,
            "benchmark": benchmark,
            "state": verification.state,
            "outcome": verification.outcome,
        },
        "attempt": attempt,
        "submission": None if about is None else about.content["submission"],
        "links": links_of("verifications", verification.id),
    }
    if about is None:
        return Subject(verification.requested_by, benchmark, content)
    return Subject(about.user_id, about.benchmark_id, content)


def announce_record(
    session: Session, submission: Submission, record: RecordView, *, since: str
) -> None:
    """Announce the record of a submission, unless it was set before a moment."""
    if record.date < since:
        return
    subject = subject_of(submission)
    subject.content["record"] = {
        "tta_seconds": record.tta_seconds,
        "beaten": record.beaten,
        "margin_percent": record.margin_percent,
        "quality": record.quality,
        "margin": record.margin,
        "p_value": record.p_value,
    }
    announce(session, "record.set", lambda: subject)


def tell_calibration(session: Session, event: CalibrationAdopted) -> None:
    """Announce the adoption of a calibration."""
    calibration = event.calibration

    def describe() -> Subject:
        own = {
            "id": calibration.id,
            "benchmark": calibration.benchmark_id,
            "version": calibration.version,
            "state": calibration.state,
        }
        content = {"calibration": own, "links": links_of("calibrations", calibration.id)}
        return Subject(calibration.requested_by, calibration.benchmark_id, content)

    announce(session, "calibration.adopted", describe)


def tell_worker(session: Session, event: WorkerOut) -> None:
    """Announce to organisers, and to its owner, that a worker is paused or excluded."""

    def describe() -> Subject:
        worker = session.get(WorkerRow, event.name)
        own = {
            "name": event.name,
            "hardware_class": None if worker is None else worker.hardware_class,
            "why": event.why,
            "attempt": event.attempt_id,
        }
        links = {"api": f"{API}/workers", "page": f"/workers/{quote(event.name, safe='')}"}
        owner = None if worker is None else worker.user_id
        return Subject(owner, None, {"worker": own, "links": links})

    announce(session, f"worker.{event.moment}", describe)


def tell_audit_head(session: Session, event: AuditDayEnded) -> None:
    """Announce the head that the audit log had at the end of a day."""
    head = {"id": event.head_id, "sha256": event.sha256, "at": moment_text(event.at)}
    links = {"api": f"{API}/audit/head", "page": "/audit.atom"}
    announce(session, AUDIT_HEAD, lambda: Subject(None, None, {"head": head, "links": links}))
