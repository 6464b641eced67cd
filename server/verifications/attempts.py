"""Lease attempts to workers, store their events, and retry after a failure."""

import secrets
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated

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
    TrainingGrant,
)
from finishline.rules.verification.verdict import Reason
from server.base.database import ServicesDep, find_row, utc_now
from server.base.errors import ConflictError, ContentError, NotFoundError
from server.base.http import moment_of_reading
from server.base.models import (
    Attempt,
    ReplayEventRow,
    Token,
    TrainingPackage,
    Verification,
    WorkerRow,
)
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import benchmark_of, read_benchmark_file
from server.people.accounts import hash_token
from server.people.callers import Caller, SecretDep, WorkerDep
from server.people.declared import Routes
from server.verifications.jobs import (
    end,
    job_of,
    move,
    queue_attempt,
    trains_packages,
    why_over_limit,
)
from server.verifications.queue import FAILED
from server.verifications.workers import (
    HeldError,
    pause_failing,
    refuse_held,
    refuse_unstorable,
    require_own_name,
    require_protocol,
    send_again_now,
)

router = Routes(tags=["workers"])
TOKEN_PREFIX = "fla_"  # noqa: S105  a prefix, so that leaked tokens can be searched for
FenceDep = Annotated[int, Header(alias=FENCE_HEADER)]
LARGEST_SEQUENCE = 2**31 - 1
NONE_LEFT = "request it again once the workers run"


@router.post("/attempts/{attempt_id}/claim")
def claim_attempt(
    attempt_id: str, body: ClaimRequest, services: ServicesDep, caller: WorkerDep
) -> Lease:
    """Lease an attempt to its drawn worker, and return its job.

    409: it is taken or over, or this worker is held. 426: the worker speaks another protocol.
    """
    try:
        with services.database.write() as session:
            return _lease(session, attempt_id, body, caller)
    except HeldError:
        with services.database.write() as session:
            send_again_now(session, attempt_id)
        raise


def _lease(session: Session, attempt_id: str, request: ClaimRequest, caller: Caller) -> Lease:
    """Decide by one UPDATE: a message delivered twice or late finds the attempt taken."""
    require_protocol(request.protocol)
    attempt = find_row(session, Attempt, attempt_id)
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
    if worker is None or attempt.verification.against_id is None:
        return
    if worker.hardware_class != attempt.hardware_class:
        raise HeldError(
            f"Worker {worker.name} is of {worker.hardware_class}. This head-to-head is of "
            f"{attempt.hardware_class}."
        )


@dataclass(frozen=True)
class Leased:
    """Credentials of a lease: the attempt, its secret and its fence."""

    attempt_id: str
    secret: str
    fence: int


async def _read_lease(attempt_id: str, secret: SecretDep, fence: FenceDep) -> Leased:
    return Leased(attempt_id, secret, fence)


LeasedDep = Annotated[Leased, Depends(_read_lease)]


@router.post("/attempts/{attempt_id}/evaluations")
def post_events(services: ServicesDep, leased: LeasedDep, body: EvaluationBatch) -> BatchAnswer:
    """Post events of a replay, with the lease's token and fence. An empty list is a heartbeat."""
    arrived_at = moment_of_reading()
    with services.database.write_beside() as session:
        return _record_events(session, leased, body, arrived_at=arrived_at)


def _record_events(
    session: Session, leased: Leased, batch: EvaluationBatch, *, arrived_at: datetime
) -> BatchAnswer:
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
    """Give equal events this post's earlier moment, if a later post overtook it."""
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
    """Return the attempt of a lease, running or ended. Raises ConflictError for an old lease."""
    attempt = find_row(session, Attempt, leased.attempt_id)
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
    if attempt.state in ("lost", "queued"):  # Another attempt replaced it.
        raise fenced(attempt)
    return attempt


def _refuse_ended(session: Session, attempt: Attempt) -> None:
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
    """Make the error for a worker that lost its attempt."""
    return ConflictError(
        f"Attempt {attempt.id} no longer belongs to this worker ({attempt.state}). Stop this "
        "replay."
    )


def mark_worker(session: Session, name: str, state: str) -> None:
    session.execute(update(WorkerRow).where(WorkerRow.name == name).values(state=state))


def as_followed(attempt: Attempt, failure: Failure) -> Failure:
    """Replace a failure's next step after the last attempt."""
    return replace(failure, next_step=NONE_LEFT) if is_spent(attempt, failure) else failure


def is_spent(attempt: Attempt, failure: Failure) -> bool:
    """Check whether the infrastructure failed the last possible attempt."""
    is_infrastructure = failure.kind == "infrastructure"
    return is_infrastructure and _count_failed(attempt) >= attempt.verification.max_attempts


def _count_failed(attempt: Attempt) -> int:
    others = (each for each in attempt.verification.attempts if each is not attempt)
    return 1 + sum(each.state in FAILED for each in others)


def retry_or_give_up(session: Session, attempt: Attempt, failure: Failure) -> None:
    """Queue another attempt after an infrastructure failure, or end the verification."""
    verification, is_last = attempt.verification, is_spent(attempt, failure)
    if failure.kind == "infrastructure" and attempt.worker is not None:
        pause_failing(session, attempt.worker)
    if failure.kind == "infrastructure" and not is_last:
        queue_attempt(session, verification, "retry")
        return
    words = f"after {count_text(_count_failed(attempt), 'attempt')}: {failure.message.rstrip('.')}"
    if failure.code == "report_refused":  # The attempt has the field and what was expected.
        words = words.partition(": field")[0]
    words += f". {failure.next_step[:1].upper()}{failure.next_step[1:]}"
    why = Reason("infrastructure" if is_last else "replay_failed", "leaves_open", words)
    end(session, verification, "fail", why=why)


@router.get("/attempts/{attempt_id}/training")
def get_training(services: ServicesDep, leased: LeasedDep) -> TrainingGrant:
    """Read the code submissions and limits of an attempt that trains in a sandbox.

    For the worker with its lease. 409 for other workers, and for an attempt without code.
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
