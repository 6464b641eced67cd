"""An attempt's life: claimed once, kept alive by posts, ended by exactly one of report or lease."""

import json
import secrets
from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from rules.messages import (
    BatchAnswer,
    ClaimGrant,
    ClaimRequest,
    EvaluationBatch,
    Failure,
    ReplayReport,
)
from rules.report_check import check_report
from rules.verdict import Reason
from rules.verification import judge
from server.accounts.service import hash_token
from server.benchmarks.queries import definition
from server.database import to_json, utc_now
from server.errors import ConflictError, ContentError
from server.models import Attempt, ReplayEventRow, Verification, WorkerRow
from server.verifications.copies import find_elsewhere
from server.verifications.queries import (
    claim_of,
    claimed_curves,
    claimed_runs,
    find_attempt,
    lock_attempt,
)
from server.verifications.service import end_with_verdict, end_without_verdict, queue_attempt

TOKEN_PREFIX = "fla_"  # noqa: S105  a prefix, so that leaked tokens can be searched for
LARGEST_SEQUENCE = 2**31 - 1


def claim_attempt(session: Session, attempt_id: str, request: ClaimRequest) -> ClaimGrant:
    """Give a queued attempt to one worker. Raises ConflictError if it is not queued (any more).

    One UPDATE decides: a message delivered twice, or late, finds the attempt taken.
    """
    attempt = lock_attempt(session, attempt_id)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    now = utc_now()
    lease = attempt.verification.lease_seconds
    claimed = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "queued")
        .values(
            state="running",
            fence=Attempt.fence + 1,
            token_sha256=hash_token(secret),
            worker=request.worker,
            started_at=now,
            lease_expires_at=now + timedelta(seconds=lease),
        )
        .returning(Attempt.fence)
    ).first()
    if claimed is None:
        raise ConflictError(f"Attempt {attempt_id} is {attempt.state}, not queued: leave it.")
    attempt.verification.state = "running"
    _mark_worker(session, request.worker, "busy")
    return ClaimGrant(attempt_id=attempt_id, fence=claimed.fence, token=secret, lease_seconds=lease)


def record_events(
    session: Session, attempt_id: str, secret: str, batch: EvaluationBatch
) -> BatchAnswer:
    """Store what a worker posts and renew its lease. Events that are there already are skipped.

    Raises ConflictError if the attempt is not this worker's any more.
    """
    attempt = _owned(session, attempt_id, secret)
    if attempt.state == "cancelled":
        return BatchAnswer(proceed=False, reason="cancelled")
    now = utc_now()
    renewed = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "running")
        .values(lease_expires_at=now + timedelta(seconds=attempt.verification.lease_seconds))
        .returning(Attempt.id)
    ).first()
    if renewed is None:
        raise _fenced(attempt)
    last = session.scalar(
        select(func.max(ReplayEventRow.sequence)).where(ReplayEventRow.attempt_id == attempt_id)
    )
    known = -1 if last is None else last
    _refuse_unstorable(batch)
    if any(not 0 <= item.sequence <= LARGEST_SEQUENCE for item in batch.events):
        raise ContentError(f"Events count from 0; expected a sequence of 0 to {LARGEST_SEQUENCE}.")
    fresh = {item.sequence: item for item in batch.events if item.sequence > known}
    session.add_all(
        ReplayEventRow(attempt_id=attempt_id, sequence=sequence, event=asdict(item), created_at=now)
        for sequence, item in fresh.items()
    )
    if is_over_limit(attempt):
        return BatchAnswer(proceed=False, reason="time_limit")
    return BatchAnswer(proceed=True)


def finish_attempt(
    session: Session, attempt_id: str, secret: str, report: ReplayReport
) -> Verification:
    """End an attempt with its report: verdict, result and terminal state in this transaction.

    The same report again is answered the same. Raises ConflictError if the attempt is not this
    worker's any more, RuleError if the report is not one of this plan or impossible.
    """
    _refuse_unstorable(report)
    lock_attempt(session, attempt_id)
    attempt = _owned(session, attempt_id, secret)
    verification = attempt.verification
    if attempt.state in ("done", "failed"):
        return verification
    failure = report.failure or _infrastructure_failure(report)
    if failure is None:
        check_report(report, seeds=verification.seeds)
    ended = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "running")
        .values(
            state="failed" if failure else "done",
            ended_at=utc_now(),
            failure=asdict(failure) if failure else None,
        )
        .returning(Attempt.id)
    ).first()
    if ended is None:
        raise _fenced(attempt)
    if attempt.worker is not None:
        _mark_worker(session, attempt.worker, "idle")
    if failure is not None:
        retry_or_give_up(session, attempt, failure)
        return verification
    benchmark = definition(session, verification.submission.benchmark_sha256)
    claim = claim_of(verification.submission)
    verdict = judge(
        benchmark,
        claim,
        claimed_runs(verification.submission),
        report,
        runs_planned=len(verification.seeds),
        curves=claimed_curves(session, verification.submission),
        elsewhere=find_elsewhere(session, verification.submission),
    )
    verification.report = asdict(report)
    end_with_verdict(session, verification, verdict)
    return verification


def retry_or_give_up(session: Session, attempt: Attempt, failure: Failure) -> None:
    """Queue the next attempt after an infrastructure failure, or end the verification."""
    verification = attempt.verification
    if failure.kind == "infrastructure" and attempt.number < verification.max_attempts:
        queue_attempt(session, verification, number=attempt.number + 1)
        return
    attempts = f"after {attempt.number} attempt{'s' if attempt.number > 1 else ''}"
    end_without_verdict(
        session,
        verification,
        Reason(
            "infrastructure" if failure.kind == "infrastructure" else "replay_failed",
            "leaves_open",
            f"{attempts}: {failure.message}; {failure.next_step}",
        ),
    )


def _owned(session: Session, attempt_id: str, secret: str) -> Attempt:
    attempt = find_attempt(session, attempt_id)
    if attempt.token_sha256 is None or not secrets.compare_digest(
        attempt.token_sha256, hash_token(secret)
    ):
        raise _fenced(attempt)
    if attempt.state in ("lost", "queued"):  # A new attempt has its place.
        raise _fenced(attempt)
    return attempt


def _fenced(attempt: Attempt) -> ConflictError:
    return ConflictError(
        f"Attempt {attempt.id} is not this worker's any more ({attempt.state}): "
        "stop the replay, its result is not wanted."
    )


def is_over_limit(attempt: Attempt) -> bool:
    """Whether an attempt has run longer than its verification may take."""
    if attempt.started_at is None:
        return False
    return utc_now() > attempt.started_at + timedelta(seconds=attempt.verification.limit_seconds)


def _infrastructure_failure(report: ReplayReport) -> Failure | None:
    """The first run that failed for a reason that is not the claim's."""
    for run in report.runs:
        if run.failure is not None and run.failure.kind == "infrastructure":
            return run.failure
    return None


def _refuse_unstorable(message: EvaluationBatch | ReplayReport) -> None:
    """Raise ContentError on NaN, infinity or an integer JSON readers cannot hold.

    One such number in a stored report would make every later answer that shows it fail.
    """
    table = asdict(message)
    try:
        json.dumps(table, allow_nan=False)
        to_json(table)
    except (ValueError, TypeError) as error:
        raise ContentError(
            f"A number cannot be stored ({error}); expected finite numbers of at most 64 bits."
        ) from error


def _mark_worker(session: Session, name: str, state: str) -> None:
    session.execute(update(WorkerRow).where(WorkerRow.name == name).values(state=state))
