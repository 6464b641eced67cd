"""Request a verification, and end one: plan and seal first, verdict or failure last."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.verification.job import Purpose
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import DUEL, PURPOSES, REPLAY
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError, ServerError
from server.base.events import (
    OriginalReplaced,
    StatusChanged,
    SubmissionWithdrawn,
    VerificationChanged,
    VerificationWanted,
    emit,
)
from server.base.models import Calibration, CalibrationRunRow, Pool, Submission, Verification
from server.base.models.visibility import publish_source
from server.base.standing import (
    OPEN,
    checks_claim,
    find_verification,
    kind_that_checks,
    published_status,
    settle,
    verification_under_way,
)
from server.benchmarks.calibrations import chunks_of, find_calibration
from server.submissions.duplicates import replace_timeless
from server.verifications.jobs import is_uncalibrated, order_about, queue_job
from server.verifications.pools import follow_evidence
from server.verifications.proofs import keep_evidence


def request_verification(
    session: Session,
    submission: Submission,
    *,
    requested_by: int,
    reason: str | None,
    purpose: Purpose = REPLAY,
    wishes: Mapping[str, Any] | None = None,
) -> Verification:
    """Plan and seal a job about one submission, and queue its first attempt."""
    # Locked and read again: it may be scored under another definition at the same moment.
    refresh_to_check(session, submission)
    if submission.duplicate_of is not None:
        raise ConflictError(
            f"Submission {submission.id} is a duplicate of {submission.duplicate_of}. Request it "
            "for that one."
        )
    under_way = verification_under_way(session, submission.id, kind=purpose.name)
    if under_way is not None:
        raise ConflictError(
            f"Verification {under_way} of this submission ({purpose.name}) is under way; wait for "
            "it or cancel it."
        )
    order = order_about(
        session,
        submission,
        purpose=purpose,
        wishes=wishes or {},
        requested_by=requested_by,
        reason=reason,
    )
    request = order.request
    unable = purpose.why_not(request.benchmark, request.claims)
    trains_package = request.claims[0].package is not None
    if unable is not None and trains_package != purpose.in_box:
        raise ConflictError(f"Submission {submission.id} {purpose.unable}: {unable}.")
    if unable is not None:
        raise ContentError(f"Submission {submission.id} {purpose.unable}: {unable}.")
    verification = queue_job(session, order)
    mark_verifying(session, verification)
    return verification


def verify_by_policy(session: Session, event: VerificationWanted) -> None:
    """Request the verification that a benchmark's policy requires, and charge its submitter.

    A claim in a precision that nobody has calibrated yet waits for somebody to ask for it.
    """
    if is_uncalibrated(session, event.submission):
        return
    verification = request_verification(
        session,
        event.submission,
        requested_by=event.requested_by,
        reason="by policy",
        purpose=PURPOSES[kind_that_checks(event.submission)],
    )
    verification.gpu_seconds_reserved = event.reserved


def measure_original(session: Session, event: OriginalReplaced) -> None:
    """Let a submission that took the place of its original have its time, or measure it."""
    submission = event.submission
    follow_evidence(session, event.original)
    if _has_time(session, submission):
        set_status(session, submission, "verified")
        return
    kind = kind_that_checks(submission)
    charged = [each.gpu_seconds_reserved or 0.0 for each in event.original.verifications]
    try:
        verification = request_verification(
            session,
            submission,
            requested_by=submission.user_id,
            reason="in place of the original",
            purpose=PURPOSES[kind],
        )
        verification.gpu_seconds_reserved = max(charged, default=0.0) or None
    except ServerError:  # Nothing can train it any more: it stays as it is claimed.
        follow_evidence(session, submission)


def _has_time(session: Session, submission: Submission) -> bool:
    pool = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    return pool is not None and pool.measured_seconds is not None


def end_withdrawn(session: Session, event: SubmissionWithdrawn) -> None:
    """Cancel the verifications that a withdrawal ends.

    A replay that has started goes on: its sealed runs count.
    """
    for verification_id in event.verifications:
        verification = find_verification(session, verification_id)
        stops = verification.state == "queued" or verification.kind == DUEL.name
        if verification.state in OPEN and stops:
            cancel_verification(session, verification)


def refresh_to_check(session: Session, submission: Submission) -> None:
    """Lock and refresh a submission before it is verified."""
    session.refresh(submission, ["status", "benchmark_sha256", "withdrawn_at", "duplicate_of"])
    if submission.withdrawn_at is not None:
        raise ConflictError(f"Submission {submission.id} is withdrawn and cannot be verified.")


def _checked(verification: Verification) -> Submission | None:
    """Submission whose status follows a verification; None for one that checks no claim."""
    submission = verification.submission
    if submission is None or not checks_claim(verification, submission):
        return None
    return submission


def mark_verifying(session: Session, verification: Verification) -> None:
    """Mark a submission as being verified. An earlier verdict stands until there is another."""
    submission = _checked(verification)
    if submission is not None and submission.status == "claimed":
        set_status(session, submission, "verifying")


def cancel_verification(session: Session, verification: Verification) -> None:
    """End a verification without a verdict. The answer to its worker's next post says so."""
    if verification.state not in OPEN:
        raise ConflictError(
            f"Verification {verification.id} has ended ({verification.state}) and cannot be "
            "cancelled."
        )
    now = utc_now()
    for attempt in verification.attempts:
        if attempt.state in OPEN:
            attempt.state = "cancelled"
            attempt.ended_at = now
    verification.state = "cancelled"
    verification.ended_at = now
    emit(session, VerificationChanged(verification, "cancelled"))
    settle_without_verdict(session, verification)


def end_with_verdict(session: Session, verification: Verification, verdict: Verdict | None) -> None:
    """Store a verdict, or end a job that has none, such as a calibration.

    The first verdict about a claim is its submission's status; a later one waits.
    """
    verification.state = "done"
    if verdict is not None:
        verification.outcome = verdict.outcome
        verification.reasons = [asdict(reason) for reason in verdict.reasons]
    verification.ended_at = utc_now()
    emit(session, VerificationChanged(verification, "done"))
    keep_evidence(session, verification)
    submission = _checked(verification)
    if submission is not None:
        set_status(session, submission, settle(submission, verification))
        publish_source(submission)
        replace_timeless(session, submission)


def end_without_verdict(session: Session, verification: Verification, reason: Reason) -> None:
    """End a verification for a reason that says nothing about the claim."""
    verification.state = "failed"
    if verification.submission is not None:
        verification.outcome = "inconclusive"
    verification.reasons = [asdict(reason)]
    verification.ended_at = utc_now()
    emit(session, VerificationChanged(verification, "failed"))
    settle_without_verdict(session, verification)


def settle_without_verdict(session: Session, verification: Verification) -> None:
    """Restore the submission's earlier status; a calibration's state is updated."""
    settle_calibration(session, verification)
    keep_evidence(session, verification)
    submission = _checked(verification)
    if submission is not None:
        status = published_status(submission)
        if status == "claimed" and _has_time(session, submission):  # By runs that it took over.
            status = "verified"
        set_status(session, submission, status)
        replace_timeless(session, submission)


def set_status(session: Session, submission: Submission, status: str) -> None:
    """Change a submission's status and evidence."""
    emit(session, StatusChanged(submission, status, before=submission.status))
    submission.status = status
    follow_evidence(session, submission)


def follow_check(session: Session, verification: Verification) -> None:
    """Show on the board whether the replay of a claim waits or has begun."""
    submission = _checked(verification)
    if submission is not None:
        follow_evidence(session, submission)


def keep_calibrated(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store the runs of a finished chunk and update the state of its calibration."""
    keep_runs(session, verification, report)
    settle_calibration(session, verification)


def keep_runs(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store every run of a chunk. Runs that diverged or ran out of time count as well."""
    for run, training in zip(report.runs, verification.trainings, strict=True):
        session.add(
            CalibrationRunRow(
                calibration_id=verification.calibration_id,
                batch_size=int(training.settings["batch_size"]),
                seed=run.seed,
                verification_id=verification.id,
                status=run.status,
                quality=[evaluation.quality for evaluation in run.evaluations],
                seconds=[evaluation.seconds for evaluation in run.evaluations],
                system=asdict(report.system),
            )
        )


def settle_calibration(session: Session, verification: Verification) -> None:
    """End the calibration of a chunk that has ended, if it was the last one under way."""
    if verification.kind != "calibration" or verification.calibration_id is None:
        return
    session.flush()
    calibration = find_calibration(session, verification.calibration_id)
    if any(chunk.state in OPEN for chunk in chunks_of(session, calibration.id)):
        return
    calibration.state = "done" if has_every_run(session, calibration) else "incomplete"
    calibration.ended_at = utc_now()


def has_every_run(session: Session, calibration: Calibration) -> bool:
    """Whether each batch size has as many finished runs as were requested."""
    rows = session.execute(
        select(CalibrationRunRow.batch_size, func.count())
        .where(CalibrationRunRow.calibration_id == calibration.id)
        .group_by(CalibrationRunRow.batch_size)
    )
    counts = dict(rows.all())
    return all(counts.get(size, 0) >= calibration.runs for size in calibration.batch_sizes)
