"""A verification as it starts: its draw sealed, its first attempt queued."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.messages import ControlPoint
from finishline.rules.verification.replay_plan import Plan, seal
from server.bell import ring
from server.database import utc_now
from server.models import Attempt, Pool, Submission, Verification
from server.notices.announce import announce_verification
from server.verifications.limits import RUN_START_SECONDS

NOBODY_YET = ""


def new_id() -> str:
    """A short random id for a URL: 60 bits."""
    return secrets.token_hex(8)[:15]


def queue_verification(
    session: Session,
    benchmark: Benchmark,
    drawn: Plan,
    *,
    kind: str,
    requested_by: int,
    reason: str | None,
    submission: Submission | None = None,
    against: Submission | None = None,
    calibration_id: str | None = None,
    hyperparameters: Sequence[Mapping[str, float]] | None = None,
    control_points: Sequence[ControlPoint] = (),
    beside: Mapping[str, Any] | None = None,
    limit_seconds: float | None = None,
    checks: Verification | None = None,
    confirms: Pool | None = None,
    witness_token_id: int | None = None,
) -> Verification:
    """Seal what was drawn, and queue a first attempt at it.

    `beside` is what the seal holds beside the draw. Without `limit_seconds` every run may take as
    long as the benchmark allows, and the time to start. What `confirms` a pool has its fresh runs.
    Raises ValueError for a benchmark without replays.
    """
    policy = benchmark.replay
    if policy is None:
        raise ValueError(f"{benchmark.benchmark_id} has no reference model to replay")
    if limit_seconds is None:
        limit_seconds = len(drawn.seeds) * (policy.run_limit_seconds + RUN_START_SECONDS)
    submission_id = submission.id if submission is not None else None
    verification = Verification(
        id=new_id(),
        kind=kind,
        submission=submission,
        against=against,
        calibration_id=calibration_id,
        benchmark_sha256=benchmark.sha256,
        requested_by=requested_by,
        reason=reason,
        state="queued",
        seal=seal(benchmark, submission_id, drawn, beside=beside),
        nonce=drawn.nonce,
        seeds=list(drawn.seeds),
        own_runs=drawn.own_runs,
        hyperparameters=list(hyperparameters) if hyperparameters is not None else None,
        control_points=[asdict(point) for point in control_points],
        max_attempts=policy.max_attempts,
        lease_seconds=policy.lease_seconds,
        limit_seconds=limit_seconds,
        reasons=[],
        checks_id=checks.id if checks is not None else None,
        decision=None,  # Known, so that it is not asked for after the session.
        created_at=utc_now(),
        pool_id=None if confirms is None else confirms.id,
        fresh=confirms is not None,
        witness_token_id=witness_token_id,
    )
    session.add(verification)
    session.flush()
    queue_attempt(session, verification, number=1)
    return verification


def is_apart(verification: Verification) -> bool:
    """Whether not every worker of its class may take a verification."""
    return verification.kind == "cross_check" or verification.witness_token_id is not None


def queue_attempt(session: Session, verification: Verification, *, number: int) -> None:
    """Another try, to be sent by the dispatch loop after the commit.

    It waits since its verification was asked for, so that one which follows a failed one has that
    one's place. Who asked for it and is not the submitter is an organiser.
    """
    now = utc_now()
    submission = verification.submission
    asker = verification.requested_by
    attempt = Attempt(
        id=new_id(),
        verification=verification,
        number=number,
        state="queued",
        fence=0,
        sends=0,
        send_after=now,
        created_at=now,
        hardware_class=submission.system["hardware_class"] if submission is not None else None,
        submitter_id=submission.user_id if submission is not None else asker,
        by_organiser=submission is None or submission.user_id != asker,
        asked_at=verification.created_at,
        # The server looks for a worker of its own (server.queues.apart).
        sent_to=NOBODY_YET if is_apart(verification) else None,
    )
    session.add(attempt)
    verification.state = "queued"
    session.flush()
    announce_verification(session, verification, "verification.queued", attempt)
    ring(session)
