"""Lifecycle of an attempt: claimed once, leased by each post, ended by one report or expiry."""

import json
import secrets
from dataclasses import asdict, replace
from datetime import datetime, timedelta
from typing import Any, Literal

from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from finishline.rules.scoring.measurements import WorkerProbe
from finishline.rules.text import count_text
from finishline.rules.verification.messages import (
    BatchAnswer,
    ClaimGrant,
    ClaimRequest,
    EvaluationBatch,
    Failure,
    ReplayEvent,
    ReplayReport,
    ReplayRun,
    WorkerHello,
)
from finishline.rules.verification.report_check import check_report
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.database import to_json, utc_now
from server.base.errors import ConflictError, ContentError, NotAllowedError
from server.base.events import VerificationChanged, emit
from server.base.models import Attempt, ReplayEventRow, Token, Verification, WorkerRow
from server.base.standing import purpose_of
from server.base.wakeup import DispatchWakeup, wake_after_commit
from server.benchmarks.calibrations import benchmark_of
from server.people.accounts import hash_token
from server.people.dependencies import Caller
from server.verifications.calibration_runs import keep_calibrated
from server.verifications.cross_checks import (
    begin_cross_check,
    end_cross_check,
    give_up_cross_check,
)
from server.verifications.holds import pause_failing, refuse_held
from server.verifications.outcomes import (
    conclude_replay,
    end_measured,
    end_witnessed,
    judge_report,
    suspects,
)
from server.verifications.queries import find_attempt, lock_attempt
from server.verifications.queueing import queue_attempt, why_over_limit
from server.verifications.report_checks import (
    keep_openings,
    posted_events,
    tell_of_refusal,
    why_refused,
)
from server.verifications.service import (
    cancel_verification,
    end_with_verdict,
    end_without_verdict,
    follow_check,
)
from server.verifications.workers import require_own_name

TOKEN_PREFIX = "fla_"  # noqa: S105  a prefix, so that leaked tokens can be searched for
LARGEST_SEQUENCE = 2**31 - 1
LOG_TAIL_CHARACTERS = 4_000
REFUSED: Literal["report_refused"] = "report_refused"
NONE_LEFT = "no attempt is left; ask again once the workers are well"


def claim_attempt(
    session: Session, attempt_id: str, request: ClaimRequest, *, caller: Caller
) -> ClaimGrant:
    """Give a queued attempt to the worker that was drawn for it.

    Raises ConflictError if it is not queued (any more) or another worker was drawn, HeldError if
    the worker or its queue is held, NotAllowedError if the name is another user's.

    One UPDATE decides: a message delivered twice, or late, finds the attempt taken.
    """
    attempt = lock_attempt(session, attempt_id)
    require_own_name(session, request.worker, caller)
    if attempt.state == "queued" and attempt.sent_to != request.worker:
        raise ConflictError(
            f"Attempt {attempt_id} was not sent to {request.worker}: leave it. The server draws "
            "the worker, which then finds the attempt in its own queue."
        )
    _require_purpose(attempt.verification, caller)
    refuse_held(session, request.worker, request.hardware_class)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    now = utc_now()
    lease = attempt.verification.lease_seconds
    claimed = session.execute(
        update(Attempt)
        .where(
            Attempt.id == attempt_id,
            Attempt.state == "queued",
            Attempt.sent_to == request.worker,
        )
        .values(
            state="running",
            fence=Attempt.fence + 1,
            token_sha256=hash_token(secret),
            worker=request.worker,
            claimed_by=caller.token_id,
            started_at=now,
            lease_expires_at=now + timedelta(seconds=lease),
            accelerators=_accelerators_of(session, request.worker),
        )
        .returning(Attempt.fence)
    ).first()
    if claimed is None:
        raise ConflictError(f"Attempt {attempt_id} is {attempt.state}, not queued: leave it.")
    attempt.verification.state = "running"
    follow_check(session, attempt.verification)
    emit(session, VerificationChanged(attempt.verification, "started", attempt))
    _mark_worker(session, request.worker, "busy")
    return ClaimGrant(attempt_id=attempt_id, fence=claimed.fence, token=secret, lease_seconds=lease)


def _require_purpose(verification: Verification, caller: Caller) -> None:
    """Raise NotAllowedError unless a witness's token claims the verification it was made for, or
    another token claims one that is not witnessed."""
    is_witnessed = verification.witness_token_id is not None
    if caller.submission_id != (verification.submission_id if is_witnessed else None):
        raise NotAllowedError(
            "A witness's token serves the witnessed verification of its own submission, and no "
            "other token does."
        )


def record_events(
    session: Session,
    attempt_id: str,
    secret: str,
    batch: EvaluationBatch,
    *,
    fence: int,
    arrived_at: datetime,
) -> BatchAnswer:
    """Store a worker's events and renew its lease. Events that are stored already are skipped.

    An event has the moment at which it arrived, however long it waited to be written. Raises
    ConflictError if the attempt is not this worker's any more.
    """
    attempt = _owned(session, attempt_id, secret, fence)
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
    refuse_unstorable(batch)
    if any(not 0 <= item.sequence <= LARGEST_SEQUENCE for item in batch.events):
        raise ContentError(f"Events count from 0; expected a sequence of 0 to {LARGEST_SEQUENCE}.")
    fresh = {item.sequence: item for item in batch.events if item.sequence > known}
    session.add_all(
        ReplayEventRow(
            attempt_id=attempt_id, sequence=sequence, event=asdict(item), created_at=arrived_at
        )
        for sequence, item in fresh.items()
    )
    _follow(attempt, list(fresh.values()), now)
    if why_over_limit(attempt, now=now) is not None:
        return BatchAnswer(proceed=False, reason="time_limit")
    return BatchAnswer(proceed=True)


def finish_attempt(
    session: Session,
    attempt_id: str,
    secret: str,
    report: ReplayReport,
    *,
    fence: int,
    clock_slack_seconds: float,
) -> Attempt:
    """End an attempt with its report: result and terminal state in this transaction.

    Repeating the same report gets the same answer. A report that contradicts the events that the
    server received fails the attempt, with the code "report_refused". Raises ConflictError if the
    attempt is not this worker's any more, RuleError if the report is impossible or of another plan.
    """
    refuse_unstorable(report)
    lock_attempt(session, attempt_id)
    attempt = _owned(session, attempt_id, secret, fence)
    verification = attempt.verification
    if attempt.state in ("done", "failed"):
        return attempt
    _require_own_name_in(session, attempt, report)
    failure, refused = report.failure or _infrastructure_failure(report), None
    if failure is None:
        check_report(
            report,
            seeds=verification.seeds,
            stop_at="end" if verification.trainings[0].stop_at == "end" else "target",
        )
        posted = posted_events(session, attempt)
        refused = why_refused(session, attempt, report, posted, slack_seconds=clock_slack_seconds)
        failure = None if refused is None else _refusal(refused)
    if failure is not None:
        failure = as_followed(attempt, failure)
    ended = session.execute(
        update(Attempt)
        .where(Attempt.id == attempt_id, Attempt.state == "running")
        .values(
            state="failed" if failure else "done",
            ended_at=utc_now(),
            failure=asdict(failure) if failure else None,
            clock_slack_seconds=None if failure else clock_slack_seconds,
            log_tail=_log_tail(report) if failure else None,
        )
        .returning(Attempt.id)
    ).first()
    if ended is None:
        raise _fenced(attempt)
    if failure is not None:
        retry_or_give_up(session, attempt, failure)
    else:
        keep_openings(session, verification, report)
        end_with_report(session, verification, report)
    if attempt.worker is not None:  # Last: judging may take a while, and hellos wait for this row.
        _mark_worker(session, attempt.worker, "idle")
        wake_after_commit(session, DispatchWakeup)
    if refused is not None:
        tell_of_refusal(session, attempt, refused)
    return attempt


def require_believed(attempt: Attempt) -> None:
    """Raise ContentError if an attempt failed because the server refused its report."""
    failure = attempt.failure or {}
    if failure.get("code") == REFUSED:
        raise ContentError(f"{failure['message']}. The attempt has failed and is made again.")


def _refusal(why: str) -> Failure:
    return Failure(
        kind="infrastructure",
        code=REFUSED,
        message=f"the report was refused: {why}",
        next_step="nothing to do: another attempt is queued",
    )


def _require_own_name_in(session: Session, attempt: Attempt, report: ReplayReport) -> None:
    """Raise ContentError unless a report names the worker and hardware class of its claim.

    The name identifies the owner behind a verdict; the class decides if times are comparable.
    """
    hardware_class = session.scalar(
        select(WorkerRow.hardware_class).where(WorkerRow.name == attempt.worker)
    )
    told = (("worker", attempt.worker), ("hardware_class", hardware_class))
    for field, known in told:
        found = getattr(report.system, field)
        if known is not None and found != known:
            raise ContentError(
                f"system.{field}: {found[:200]!r}; expected {known!r}, as this worker said itself."
            )


def as_followed(attempt: Attempt, failure: Failure) -> Failure:
    """Failure of an attempt; its next step promises no further attempt after the last one."""
    return replace(failure, next_step=NONE_LEFT) if _is_spent(attempt, failure) else failure


def _is_spent(attempt: Attempt, failure: Failure) -> bool:
    """Whether infrastructure failures have used up the attempts of a verification."""
    return failure.kind == "infrastructure" and attempt.number >= attempt.verification.max_attempts


def retry_or_give_up(session: Session, attempt: Attempt, failure: Failure) -> None:
    """Queue the next attempt after an infrastructure failure, or end the verification.

    A cancelled verification gets no further attempt. `failure` is as the attempt shows it
    (`as_followed`).
    """
    verification, is_spent = attempt.verification, _is_spent(attempt, failure)
    if failure.kind == "infrastructure" and attempt.worker is not None:
        pause_failing(session, attempt.worker)
    if verification.cancelled_at is not None:
        cancel_verification(session, verification)
        return
    if failure.kind == "infrastructure" and not is_spent:
        queue_attempt(session, verification, number=attempt.number + 1)
        follow_check(session, verification)
        return
    attempts = f"after {count_text(attempt.number, 'attempt')}"
    end_without_verdict(
        session,
        verification,
        Reason(
            "infrastructure" if is_spent else "replay_failed",
            "leaves_open",
            f"{attempts}: {failure.message}; {failure.next_step}",
        ),
    )
    if verification.checks_id is not None:
        give_up_cross_check(session, verification)


def _accelerators_of(session: Session, name: str) -> int | None:
    """Accelerators in a worker's last hello; None for a worker that never said hello."""
    system = session.scalar(select(WorkerRow.system).where(WorkerRow.name == name))
    count = (system or {}).get("accelerator_count")
    return count if isinstance(count, int) else None


def _owned(session: Session, attempt_id: str, secret: str, fence: int) -> Attempt:
    attempt = find_attempt(session, attempt_id)
    if attempt.token_sha256 is None or not secrets.compare_digest(
        attempt.token_sha256, hash_token(secret)
    ):
        raise _fenced(attempt)
    _refuse_ended(session, attempt)
    if attempt.fence != fence:
        raise ConflictError(
            f"Fence {fence} of attempt {attempt.id} is not the latest: stop the replay, its result "
            "is not wanted."
        )
    if attempt.state in ("lost", "queued"):  # A new attempt has its place.
        raise _fenced(attempt)
    return attempt


def _refuse_ended(session: Session, attempt: Attempt) -> None:
    """Raise ConflictError if the account that claimed is disabled, or its token was revoked.

    A rotated token goes on in its successor.
    """
    token = session.get(Token, attempt.claimed_by) if attempt.claimed_by is not None else None
    if token is None:
        return
    if token.user.disabled_at is not None:
        raise _unwanted(attempt, f"The account {token.user.name}", "disabled")
    while token.revoked_at is not None:
        fresh = session.scalar(select(Token).where(Token.rotated_from == token.id).limit(1))
        if fresh is None:
            raise _unwanted(attempt, f"The token of {token.user.name}", "revoked")
        token = fresh


def _unwanted(attempt: Attempt, whose: str, state: str) -> ConflictError:
    return ConflictError(
        f"{whose}, which claimed attempt {attempt.id}, is {state}: stop the replay, its result is "
        "not wanted."
    )


def _fenced(attempt: Attempt) -> ConflictError:
    return ConflictError(
        f"Attempt {attempt.id} is not this worker's any more ({attempt.state}): "
        "stop the replay, its result is not wanted."
    )


def _follow(attempt: Attempt, events: list[ReplayEvent], now: datetime) -> None:
    """Note the progress of an attempt: the start of its current run, and its latest evaluation."""
    for event in events:
        if event.kind == "run_started":
            attempt.run_started_at = now
        elif event.kind == "evaluation":
            attempt.last_evaluation = last_evaluation_of(event)


def last_evaluation_of(event: ReplayEvent) -> dict[str, Any]:
    """Fields of an evaluation that are stored with its attempt."""
    names = ("run", "epoch", "samples", "seconds", "quality")
    return {name: getattr(event, name) for name in names}


def _infrastructure_failure(report: ReplayReport) -> Failure | None:
    run = _infrastructure_run(report)
    return None if run is None else run.failure


def _infrastructure_run(report: ReplayReport) -> ReplayRun | None:
    """First run that failed for an infrastructure reason, not one of the claim."""
    for run in report.runs:
        if run.failure is not None and run.failure.kind == "infrastructure":
            return run
    return None


def _log_tail(report: ReplayReport) -> str | None:
    """End of the log of the run that ended the attempt. No database stores a NUL in a text."""
    failed = _infrastructure_run(report) or (report.runs[-1] if report.runs else None)
    if failed is None or not failed.log_tail:
        return None
    return failed.log_tail[-LOG_TAIL_CHARACTERS:].replace("\0", "\ufffd")


def refuse_unstorable(message: EvaluationBatch | ReplayReport | WorkerProbe | WorkerHello) -> None:
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


def end_with_report(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Judge a job by its report and purpose. Raises RuleError unless the report fits the plan."""
    purpose = purpose_of(verification)
    purpose.check(report, benchmark_of(session, verification))
    verification.report = asdict(report)
    verdict = judge_report(session, verification, report)
    if verdict is None:
        end_with_verdict(session, verification, None)
        keep_calibrated(session, verification, report)
    elif verification.witness_token_id is not None:
        end_witnessed(session, verification, verdict)
    elif verification.checks_id is not None:
        end_cross_check(session, verification, report, verdict)
    elif purpose.is_evidence:
        _await_cross_checks(session, verification, report, verdict)
    else:
        end_measured(session, verification, report, verdict)


def _await_cross_checks(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    """Conclude a replay, after another owner's worker has trained a run again if one is drawn."""
    waits, why = begin_cross_check(
        session,
        verification,
        report,
        suspects(session, verification, report),
        rejects=verdict.outcome == "rejected",
    )
    if not waits:
        conclude_replay(session, verification, report, why)
