"""Attempts: a worker leases one, each post renews its lease, and its report ends it."""

import secrets
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Literal

from fastapi import Depends, Header, Response
from sqlalchemy import func, select, update
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import TrainingPolicy
from finishline.rules.text import count_text
from finishline.rules.verification.messages import (
    FENCE_HEADER,
    PACKAGE_PREFIX,
    BatchAnswer,
    ClaimRequest,
    EvaluationBatch,
    Failure,
    Lease,
    PackageContent,
    ReplayReport,
    ReplayRun,
    TrainingGrant,
)
from finishline.rules.verification.replay import is_disturbed
from finishline.rules.verification.report_check import check_report
from finishline.rules.verification.verdict import Reason
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError, NotFoundError, no_such
from server.base.events import DispatchWakeup, wake_after_commit
from server.base.models import (
    Attempt,
    ReplayEventRow,
    Token,
    TrainingPackage,
    Verification,
    WorkerRow,
)
from server.base.request_context import moment_of_reading
from server.base.services import ServicesDep
from server.base.standing import purpose_of
from server.base.visibility import ORGANISER
from server.benchmarks.calibrations import benchmark_of
from server.benchmarks.definitions import read_benchmark_file
from server.people.accounts import hash_token
from server.people.callers import Caller, SecretDep, WorkerDep
from server.people.declared import Routes
from server.verifications.choose import FAILED
from server.verifications.jobs import job_of, queue_attempt, trains_packages, why_over_limit
from server.verifications.judge import end_with_report
from server.verifications.report_checks import (
    keep_openings,
    posted_events,
    tell_of_refusal,
    why_refused,
)
from server.verifications.states import end, move
from server.verifications.worker_views import ReportAnswer
from server.verifications.workers import (
    HeldError,
    pause_failing,
    refuse_held,
    refuse_unstorable,
    require_a_system,
    require_own_name,
    require_protocol,
    send_again_now,
)

router = Routes(tags=["workers"])
TOKEN_PREFIX = "fla_"  # noqa: S105  a prefix, so that leaked tokens can be searched for
FenceDep = Annotated[int, Header(alias=FENCE_HEADER)]
LARGEST_SEQUENCE = 2**31 - 1
LOG_TAIL_CHARACTERS = 4_000
REFUSED: Literal["report_refused"] = "report_refused"
DISTURBED = Failure(
    kind="infrastructure",
    code="host_busy",
    message="other programs had the processor",
    next_step="nothing to do: it is trained once more",
)
NONE_LEFT = "no attempt is left; request it again once the workers run"


@router.post("/attempts/{attempt_id}/claim")
def claim_attempt(
    attempt_id: str, body: ClaimRequest, services: ServicesDep, caller: WorkerDep
) -> Lease:
    """Lease an attempt that this worker was drawn for, with its job.

    409: it is taken or over, or this worker is held. 426: the worker is of another protocol.
    """
    try:
        with services.database.write() as session:
            return _lease(session, attempt_id, body, caller)
    except HeldError:
        with services.database.write() as session:
            send_again_now(session, attempt_id)
        raise


def _lease(session: Session, attempt_id: str, request: ClaimRequest, caller: Caller) -> Lease:
    """Give a queued attempt to the worker that was drawn for it, with its job.

    One UPDATE decides: a message delivered twice, or late, finds the attempt taken.
    """
    require_protocol(request.protocol)
    attempt = find_attempt(session, attempt_id)
    require_own_name(session, request.worker, caller)
    if attempt.state == "queued" and attempt.sent_to != request.worker:
        raise ConflictError(
            f"Attempt {attempt_id} was not sent to {request.worker}.",
            hint="Leave it: the server sends the id to the worker that it drew.",
        )
    refuse_held(session, request.worker)
    worker = session.get(WorkerRow, request.worker)
    _refuse_other_class(attempt, worker)
    secret = TOKEN_PREFIX + secrets.token_urlsafe(32)
    now = utc_now()
    lease = attempt.verification.lease_seconds
    move(
        session,
        attempt,
        "lease",
        Attempt.sent_to == request.worker,
        fence=attempt.fence + 1,
        token_sha256=hash_token(secret),
        worker=request.worker,
        claimed_by=caller.token_id,
        started_at=now,
        lease_expires_at=now + timedelta(seconds=lease),
        accelerators=None if worker is None else worker.system.get("accelerator_count"),
    )
    move(session, attempt.verification, "lease")
    mark_worker(session, request.worker, "busy")
    return Lease(attempt_id, attempt.fence, secret, lease, job=job_of(session, attempt))


def _refuse_other_class(attempt: Attempt, worker: WorkerRow | None) -> None:
    """Raise HeldError if a worker that was drawn for a head-to-head is of another class by now."""
    if worker is None or attempt.verification.against_id is None:
        return
    if worker.hardware_class != attempt.hardware_class:
        raise HeldError(
            f"Worker {worker.name} is of {worker.hardware_class}. This head-to-head is of "
            f"{attempt.hardware_class}."
        )


def find_attempt(session: Session, attempt_id: str) -> Attempt:
    """Read an attempt by id. Raises NotFoundError."""
    attempt = session.get(Attempt, attempt_id)
    if attempt is None:
        raise no_such("attempt", attempt_id)
    return attempt


@dataclass(frozen=True)
class Leased:
    """What a worker with a lease shows: the attempt, its secret, and the fence of its claim."""

    attempt_id: str
    secret: str
    fence: int


async def _read_lease(attempt_id: str, secret: SecretDep, fence: FenceDep) -> Leased:
    return Leased(attempt_id, secret, fence)


LeasedDep = Annotated[Leased, Depends(_read_lease)]


@router.post("/attempts/{attempt_id}/evaluations")
def post_events(services: ServicesDep, leased: LeasedDep, body: EvaluationBatch) -> BatchAnswer:
    """Post events of a replay, with the claim's token and fence; no events: a heartbeat."""
    arrived_at = moment_of_reading()
    with services.database.write_beside() as session:
        return _record_events(session, leased, body, arrived_at=arrived_at)


def _record_events(
    session: Session, leased: Leased, batch: EvaluationBatch, *, arrived_at: datetime
) -> BatchAnswer:
    """Store a worker's new events, each with its first arrival, and renew the lease."""
    attempt, attempt_id = owned_attempt(session, leased), leased.attempt_id
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
        raise fenced(attempt)
    last = session.scalar(
        select(func.max(ReplayEventRow.sequence)).where(ReplayEventRow.attempt_id == attempt_id)
    )
    known = -1 if last is None else last
    refuse_unstorable(batch)
    if any(not 0 <= item.sequence <= LARGEST_SEQUENCE for item in batch.events):
        raise ContentError(f"Events count from 0; expected a sequence of 0 to {LARGEST_SEQUENCE}.")
    fresh = {item.sequence: item for item in batch.events if item.sequence > known}
    _keep_first_moments(session, attempt_id, batch, known=known, arrived_at=arrived_at)
    session.add_all(
        ReplayEventRow(
            attempt_id=attempt_id, sequence=sequence, event=asdict(item), created_at=arrived_at
        )
        for sequence, item in fresh.items()
    )
    for event in fresh.values():
        if event.kind == "run_started":
            attempt.run_started_at = now
        elif event.kind == "evaluation":
            names = ("run", "epoch", "samples", "seconds", "quality")
            attempt.last_evaluation = {name: getattr(event, name) for name in names}
    if why_over_limit(attempt, now=now) is not None:
        return BatchAnswer(proceed=False, reason="time_limit")
    return BatchAnswer(proceed=True)


def _keep_first_moments(
    session: Session, attempt_id: str, batch: EvaluationBatch, *, known: int, arrived_at: datetime
) -> None:
    """Give this post's moment to events that a later post of the worker brought before it.

    An event must be equal to the stored one: only then was it known at that moment.
    """
    again = {item.sequence: asdict(item) for item in batch.events if item.sequence <= known}
    if not again:
        return
    later = select(ReplayEventRow).where(
        ReplayEventRow.attempt_id == attempt_id,
        ReplayEventRow.sequence.in_(again),
        ReplayEventRow.created_at > arrived_at,
    )
    for row in session.scalars(later):
        if row.event == again[row.sequence]:
            row.created_at = arrived_at


def owned_attempt(session: Session, leased: Leased) -> Attempt:
    attempt = find_attempt(session, leased.attempt_id)
    if attempt.token_sha256 is None or not secrets.compare_digest(
        attempt.token_sha256, hash_token(leased.secret)
    ):
        raise fenced(attempt)
    _refuse_ended(session, attempt)
    if attempt.fence != leased.fence:
        raise ConflictError(
            f"Fence {leased.fence} of attempt {attempt.id} is out of date: another worker has it.",
            hint="Stop this replay.",
        )
    if attempt.state in ("lost", "queued"):  # A new attempt has its place.
        raise fenced(attempt)
    return attempt


def _refuse_ended(session: Session, attempt: Attempt) -> None:
    """Raise ConflictError if the account that leased is disabled, or its token was revoked."""
    token = session.get(Token, attempt.claimed_by) if attempt.claimed_by is not None else None
    if token is None:
        return
    for whose, ended_at in (
        (f"The account {token.user.name} is disabled", token.user.disabled_at),
        (f"The token of {token.user.name} is revoked", token.revoked_at),
    ):
        if ended_at is not None:
            raise ConflictError(f"{whose}, which leased attempt {attempt.id}. Stop this replay.")


def fenced(attempt: Attempt) -> ConflictError:
    return ConflictError(
        f"Attempt {attempt.id} no longer belongs to this worker ({attempt.state}). Stop this "
        "replay."
    )


def mark_worker(session: Session, name: str, state: str) -> None:
    session.execute(update(WorkerRow).where(WorkerRow.name == name).values(state=state))


@router.post("/attempts/{attempt_id}/report")
def post_report(services: ServicesDep, leased: LeasedDep, body: ReplayReport) -> ReportAnswer:
    """Report the end of a replay. Sending the same report again changes nothing.

    422 for a report that contradicts the events before it: the attempt has failed then, and a
    retry is queued.
    """
    slack_seconds = services.settings.clock_slack_seconds
    with services.database.write() as session:
        attempt = _finish(session, leased, body, clock_slack_seconds=slack_seconds)
        verification = attempt.verification
        answer = ReportAnswer.of(verification, verification_id=verification.id)
    failure = attempt.failure or {}
    if failure.get("code") == REFUSED:
        raise ContentError(f"{failure['message']}. The attempt has failed and is retried.")
    return answer


def _finish(
    session: Session, leased: Leased, report: ReplayReport, *, clock_slack_seconds: float
) -> Attempt:
    """End an attempt with its report: result and terminal state in this transaction.

    The same report again gets the same answer. One that contradicts the stored events fails the
    attempt, and so does the first one of a verification that other programs disturbed.
    """
    refuse_unstorable(report)
    require_a_system(report.system)
    attempt = owned_attempt(session, leased)
    verification = attempt.verification
    if attempt.state in ("done", "failed"):
        return attempt
    _require_own_name_in(session, attempt, report)
    died, refused = _infrastructure_run(report), None
    failure = report.failure or (None if died is None else died.failure)
    if failure is None:
        check_report(
            report,
            seeds=verification.seeds,
            stop_at="end" if verification.trainings[0].stop_at == "end" else "target",
            two_clocks=not trains_packages(verification),
        )
        posted = posted_events(session, attempt)
        refused = why_refused(session, attempt, report, posted, slack_seconds=clock_slack_seconds)
        if refused is not None:
            failure = Failure(
                kind="infrastructure",
                code=REFUSED,
                message=f"the report was refused: {refused}",
                next_step="nothing to do: another attempt is queued",
            )
        elif _is_trained_again(attempt, report):
            failure = DISTURBED
    if failure is not None:
        failure = as_followed(attempt, failure)
    is_right = failure is None or failure is DISTURBED
    move(
        session,
        attempt,
        "fail" if failure else "report",
        failure=asdict(failure) if failure else None,
        clock_slack_seconds=clock_slack_seconds if is_right else None,
        log_tail=_log_tail(report) if failure else None,
    )
    if failure is not None:
        retry_or_give_up(session, attempt, failure)
    else:
        keep_openings(verification, report)
        end_with_report(session, verification, report)
    if attempt.worker is not None:  # Last: a sign-on waits for this row.
        mark_worker(session, attempt.worker, "idle")
        wake_after_commit(session, DispatchWakeup)
    if refused is not None:
        tell_of_refusal(session, attempt, refused)
    return attempt


def _is_trained_again(attempt: Attempt, report: ReplayReport) -> bool:
    """Whether other programs disturbed what measures a time, for the first time, and may again."""
    others = (each.failure for each in attempt.verification.attempts if each is not attempt)
    return (
        purpose_of(attempt.verification).fills_pool
        and is_disturbed(report)
        and not any(failure and failure["code"] == DISTURBED.code for failure in others)
        and not _is_spent(attempt, DISTURBED)
    )


def _require_own_name_in(session: Session, attempt: Attempt, report: ReplayReport) -> None:
    """The name identifies the owner behind a verdict. The class decides if times are comparable."""
    hardware_class = session.scalar(
        select(WorkerRow.hardware_class).where(WorkerRow.name == attempt.worker)
    )
    told = (("worker", attempt.worker), ("hardware_class", hardware_class))
    for field, known in told:
        found = getattr(report.system, field)
        if known is not None and found != known:
            raise ContentError(
                f"system.{field}: {found[:200]!r}; expected {known!r}, as this worker reported "
                "in its hello."
            )


def as_followed(attempt: Attempt, failure: Failure) -> Failure:
    """Failure of an attempt; its next step promises no further attempt after the last one."""
    return replace(failure, next_step=NONE_LEFT) if _is_spent(attempt, failure) else failure


def _is_spent(attempt: Attempt, failure: Failure) -> bool:
    is_infrastructure = failure.kind == "infrastructure"
    return is_infrastructure and _failed(attempt) >= attempt.verification.max_attempts


def _failed(attempt: Attempt) -> int:
    """Number of failed and lost attempts, this one included."""
    others = (each for each in attempt.verification.attempts if each is not attempt)
    return 1 + sum(each.state in FAILED for each in others)


def retry_or_give_up(session: Session, attempt: Attempt, failure: Failure) -> None:
    """Queue the next attempt after an infrastructure failure, or end the verification.

    Its owner's workers are paused if too many of their attempts failed.
    """
    verification, is_spent = attempt.verification, _is_spent(attempt, failure)
    if failure.kind == "infrastructure" and attempt.worker is not None:
        pause_failing(session, attempt.worker)
    if failure.kind == "infrastructure" and not is_spent:
        queue_attempt(session, verification, "retry")
        return
    attempts = f"after {count_text(_failed(attempt), 'attempt')}"
    next_step = failure.next_step[:1].lower() + failure.next_step[1:]
    why = Reason(
        "infrastructure" if is_spent else "replay_failed",
        "leaves_open",
        f"{attempts}: {failure.message.rstrip('.')}; {next_step}",
    )
    end(session, verification, "fail", why=why)


def _infrastructure_run(report: ReplayReport) -> ReplayRun | None:
    died = (run for run in report.runs if run.failure and run.failure.kind == "infrastructure")
    return next(died, None)


def _log_tail(report: ReplayReport) -> str | None:
    """End of the log of the run that ended the attempt. No database stores a NUL in a text."""
    failed = _infrastructure_run(report) or (report.runs[-1] if report.runs else None)
    if failed is None or not failed.log_tail:
        return None
    return failed.log_tail[-LOG_TAIL_CHARACTERS:].replace("\0", "\ufffd")


@router.get("/attempts/{attempt_id}/training")
def get_training(services: ServicesDep, leased: LeasedDep) -> TrainingGrant:
    """Read the code submissions and limits of an attempt that trains in a sandbox.

    For the worker with its lease. 409 for any other, and for an attempt without code submissions.
    """
    with services.database.read(ORGANISER) as session:
        verification = _running(session, leased).verification
        policy = _policy(verification, benchmark_of(session, verification))
        trained = (row.package for row in verification.trainings)  # The reference has no package.
        names = dict.fromkeys(each for each in trained if each.startswith(PACKAGE_PREFIX))
        return TrainingGrant(
            packages={name: _content(session, verification, name) for name in names},
            task_files=dict(policy.files),
            run_seconds=policy.run_limit_seconds,
            prepare_seconds=policy.prepare_seconds,
            max_evaluations=policy.max_evaluations,
            memory_mib=policy.memory_mib,
            threads=policy.threads,
        )


@router.get("/attempts/{attempt_id}/task/{name:path}", response_class=Response)
def get_task_file(name: str, services: ServicesDep, leased: LeasedDep) -> Response:
    """Read a file of the benchmark's task, for the worker with the attempt's lease."""
    with services.database.read(ORGANISER) as session:
        verification = _running(session, leased).verification
        benchmark = benchmark_of(session, verification)
        sha256 = _policy(verification, benchmark).files.get(name)
        if sha256 is None:
            raise NotFoundError(f"Benchmark {benchmark.benchmark_id} has no file {name[:100]!r}.")
        content = read_benchmark_file(services, benchmark, name, sha256)
    return Response(content, media_type="application/octet-stream")


def _running(session: Session, leased: Leased) -> Attempt:
    attempt = owned_attempt(session, leased)
    if attempt.state != "running":
        raise fenced(attempt)
    return attempt


def _policy(verification: Verification, benchmark: Benchmark) -> TrainingPolicy:
    if benchmark.trainings is None or not trains_packages(verification):
        raise ConflictError(f"Verification {verification.id} trains no code submission.")
    return benchmark.trainings


def _content(session: Session, verification: Verification, name: str) -> PackageContent:
    sides = (verification.submission_id, verification.against_id)
    statement = select(TrainingPackage).where(
        TrainingPackage.package_sha256 == name.removeprefix(PACKAGE_PREFIX)
    )
    found = session.scalars(statement).all()
    own = [each for each in found if each.submission_id in sides]
    package = next(iter(own or found), None)
    if package is None:
        raise NotFoundError(f"There is no code submission {name}.")
    return PackageContent(
        files={each: str(text) for each, text in package.files.items()},
        module=str(package.manifest["module"]),
        environment=package.environment,
        environment_sha256=package.environment_sha256,
        factors=dict.fromkeys(package.manifest.get("factors") or {}, True),
    )
