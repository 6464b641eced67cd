"""Events and who gets them: messages are written in the transaction of the event's change."""

import logging
import secrets
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import quote

from sqlalchemy import ColumnElement, Text, cast, func, or_, select
from sqlalchemy.orm import Session, object_session

from finishline.rules.verification.verdict import outcome_text
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
    Calibration,
    Message,
    Receiver,
    Submission,
    Token,
    User,
    Verification,
    WorkerRow,
)
from server.base.standing import purpose_of
from server.benchmarks.definitions import definition
from server.boards.records import measured_history
from server.people.accounts import ORGANISERS
from server.verifications.head_to_heads import read_first_places

log = logging.getLogger(__name__)

ABOUT = {
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
    "record.set": "A measured result took the record of its division.",
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
KINDS = tuple(ABOUT)
# Not for subscription: a ping, an address's confirmation, a disabled webhook.
TEST, CONFIRM, SWITCHED_OFF = "webhook.test", "mail.confirm", "webhook.disabled"
AUDIT_HEAD = "audit.head"
HAPPENED = {
    "verification.queued": "waits for a worker",
    "verification.started": "was leased by a worker",
    "verification.lost": "lost its worker",
    "verification.done": "has ended",
    "verification.failed": "ended without an outcome",
    "verification.cancelled": "was cancelled",
    "decision.published": "was published",
}
MAILS_PER_DAY = 50
ANNOUNCED = "announced"
API = "/api/v1"
# Strangers choose names. A message stays small however long a name is.
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


def announce(session: Session, event: object) -> None:
    """Announce an event. Before the commit its messages are written, as things are then."""
    kind = kind_of(event)
    if kind not in ABOUT:
        return
    if ANNOUNCED not in session.info:
        session.info[ANNOUNCED] = []
        before_commit(session, lambda: _write(session))
    session.info[ANNOUNCED].append((kind, event))


def kind_of(event: object) -> str:
    """Return the kind of an event. Kinds outside ABOUT stay unannounced."""
    match event:
        case SubmissionAccepted() if event.submission.published is None:
            return "submission.accepted"
        case SubmissionWithdrawn() if event.submission.published is None:
            return "submission.withdrawn"
        case StatusChanged() if event.submission.published is None:
            return f"submission.{event.status}" if event.status != event.before else ""
        case VerificationChanged(moment="decision_published"):
            return "decision.published"
        case VerificationChanged():
            return f"verification.{event.moment}"
        case CalibrationAdopted():
            return "calibration.adopted"
        case WorkerOut():
            return f"worker.{event.moment}"
        case AuditDayEnded():
            return AUDIT_HEAD
    return ""


def _write(session: Session) -> None:
    announced: list[tuple[str, Any]] = session.info.pop(ANNOUNCED)
    session.flush()
    # A record follows from other changes, so it comes last.
    announced += [("record.set", event) for _, event in announced if _may_set_record(event)]
    receivers = _find_receivers(session, {kind for kind, _ in announced})
    for kind, event in announced:
        able = [each for each in receivers if kind in each.kinds]
        subject = _describe(session, kind, event) if able else None
        if subject is not None:
            wanted = (each for each in able if _wants(each, kind, subject))
            asked = [each for each in wanted if _has_room(session, each)]
            queue(session, kind, subject.content, asked)


def _find_receivers(session: Session, kinds: Collection[str]) -> Sequence[Receiver]:
    """Find the receivers of any of the kinds. Scope "all" takes an organiser's live token."""
    is_organiser = select(Token.id).where(
        Token.user_id == User.id,
        Token.role.in_(ORGANISERS),
        User.role.in_(ORGANISERS),
        Token.revoked_at.is_(None),
        or_(Token.expires_at.is_(None), Token.expires_at > utc_now()),
    )
    return session.scalars(
        select(Receiver)
        .join(User, User.id == Receiver.user_id)
        .where(
            is_active(),
            User.disabled_at.is_(None),
            or_(*(cast(Receiver.kinds, Text).contains(f'"{kind}"') for kind in kinds)),
            or_(Receiver.scope != "all", is_organiser.exists()),
        )
    ).all()


def is_active() -> ColumnElement[bool]:
    """Return the condition of a confirmed receiver before its end."""
    return Receiver.confirmed_at.is_not(None) & Receiver.disabled_at.is_(None)


def _wants(receiver: Receiver, kind: str, subject: Subject) -> bool:
    if receiver.scope == "all" or kind == AUDIT_HEAD:  # Everybody may read the head.
        return True
    if receiver.scope == "own":
        return receiver.user_id == subject.user_id
    return receiver.benchmark_id == subject.benchmark_id


def _has_room(session: Session, receiver: Receiver) -> bool:
    if receiver.channel != "mail":
        return True
    today = (
        select(func.count(Message.id))
        .join(Message.receiver)
        .where(
            Receiver.channel == "mail",
            Receiver.address == receiver.address,
            Message.created_at > utc_now() - timedelta(days=1),
        )
    )
    if session.scalars(today).one() < MAILS_PER_DAY:
        return True
    log.warning("no mail to receiver %s: it has had its mails of today", receiver.id)
    return False


def queue(
    session: Session, kind: str, content: Content, receivers: Sequence[Receiver]
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
            due_at=now,
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


def _may_set_record(event: object) -> bool:
    """Return whether a finished verification may give its submission first place."""
    match event:
        case VerificationChanged(moment="done", verification=one) if one.submission is not None:
            decides = purpose_of(one).fills_pool or one.against_id is not None
            return decides and not one.submission.embargoed
    return False


def _describe(session: Session, kind: str, event: Any) -> Subject | None:
    match event:
        case VerificationChanged() if kind == "record.set":
            return _about_record(session, event.verification)
        case VerificationChanged():
            return _about_verification(session, kind, event)
        case CalibrationAdopted():
            return _about_calibration(event.calibration)
        case WorkerOut():
            return _about_worker(session, event)
        case AuditDayEnded():
            return _about_audit_head(event)
    word = kind.partition(".")[2]
    return _about_submission(event.submission, "{benchmark}: {model} is " + word)


def _about_submission(submission: Submission, sentence: str) -> Subject:
    """Describe a submission without its cost, which follows the price book.

    Under embargo the benchmark is left out, so that its watchers are not notified.
    """
    model = {"model": submission.model[:LONGEST_NAME]}
    own = _columns(submission, "division", "kind", "submitter", "display_name", "status") | model
    own |= _columns(submission, "tta_seconds", "latency_ms")
    own["ranks_by"] = _ranks_by(submission)
    content = {
        "sentence": sentence.format(**own),
        "submission": own,
        "links": links_of("submissions", submission.id),
    }
    benchmark_id = None if submission.embargoed else submission.benchmark_id
    return Subject(submission.user_id, benchmark_id, content)


def _ranks_by(row: Submission | Verification) -> str:
    session = object_session(row)
    return "time" if session is None else definition(session, row.benchmark_sha256).score.by


def _columns(row: Submission | Calibration, *names: str) -> Content:
    own = {"id": row.id, "benchmark": row.benchmark_id}
    return own | {name: getattr(row, name) for name in names}


def links_of(kind: str, subject_id: str) -> dict[str, str]:
    """Return links to a subject, for programs and for people."""
    return {"api": f"{API}/{kind}/{subject_id}", "page": f"/{kind}/{subject_id}"}


def _about_verification(session: Session, kind: str, event: VerificationChanged) -> Subject:
    verification, attempt = event.verification, event.attempt
    submission = verification.submission
    if submission is not None:
        benchmark: str | None = submission.benchmark_id
        subject = _about_submission(submission, "")
    else:
        same = BenchmarkDefinition.sha256 == verification.benchmark_sha256
        benchmark = session.scalar(select(BenchmarkDefinition.benchmark_id).where(same))
        subject = Subject(verification.requested_by, benchmark, {"submission": None})
    by_quality = _ranks_by(verification) == "quality"
    outcome = outcome_text(verification.outcome or "", by_quality=by_quality)
    named = f"{benchmark}: {verification.kind} {verification.id}"
    content = {
        "sentence": f"{named} {HAPPENED[kind]}{outcome and f': {outcome}'}",
        "verification": {
            "id": verification.id,
            "kind": verification.kind,
            "benchmark": benchmark,
            "state": verification.state,
            "outcome": verification.outcome,
        },
        "attempt": attempt and {"number": attempt.number, "worker": attempt.worker},
        "links": links_of("verifications", verification.id),
    }
    return replace(subject, content=subject.content | content)


def _about_record(session: Session, verification: Verification) -> Subject | None:
    submission, since = verification.submission, verification.created_at.isoformat()
    assert submission is not None  # noqa: S101  It may set a record.
    benchmark = definition(session, submission.benchmark_sha256)
    records = [
        record
        for place in read_first_places(session, benchmark).values()
        for record in measured_history(place).records
        if record.submission_id == submission.id
    ]
    if not records or records[0].date < since:
        return None
    figures = {"tta_seconds", "beaten", "margin_percent", "quality", "margin", "p_value"}
    subject = _about_submission(submission, "{model} holds the record of {benchmark} ({division})")
    subject.content["record"] = records[0].model_dump(include=figures)
    return subject


def _about_calibration(calibration: Calibration) -> Subject:
    own = _columns(calibration, "version", "state")
    content = {
        "sentence": "{benchmark}: calibration {version} is adopted".format(**own),
        "calibration": own,
        "links": links_of("calibrations", calibration.id),
    }
    return Subject(calibration.requested_by, calibration.benchmark_id, content)


def _about_worker(session: Session, event: WorkerOut) -> Subject:
    worker = session.get(WorkerRow, event.name)
    content = {
        "sentence": f"Worker {event.name} gets no work: {event.why}",
        "worker": {
            "name": event.name,
            "hardware_class": worker and worker.hardware_class,
            "why": event.why,
            "attempt": event.attempt_id,
        },
        "links": {"api": f"{API}/workers", "page": f"/workers/{quote(event.name, safe='')}"},
    }
    return Subject(None if worker is None else worker.user_id, None, content)


def _about_audit_head(event: AuditDayEnded) -> Subject:
    at, head = moment_text(event.at), f"record {event.head_id}, {event.sha256}"
    content = {
        "sentence": f"Audit log at the end of {at[:10]}: {head}",
        "head": {"id": event.head_id, "sha256": event.sha256, "at": at},
        "links": {"api": f"{API}/audit/head", "page": "/audit.atom"},
    }
    return Subject(None, None, content)
