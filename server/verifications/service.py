"""Asking for a verification, and ending one: plan and seal first, verdict or failure last."""

import secrets
from dataclasses import asdict

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.benchmark import Benchmark
from rules.claim import Claim
from rules.replay_plan import band_for, plan, seal, why_not_replayable
from rules.verdict import Reason, Verdict
from server.benchmarks.queries import definition
from server.database import utc_now
from server.errors import ConflictError, ContentError
from server.leaderboard.service import raise_board_version
from server.models import Attempt, Submission, Verification
from server.proofs.evidence import keep_evidence
from server.verifications.publishing import published_status, settle
from server.verifications.queries import OPEN, claim_of

RUN_START_SECONDS = 60.0  # What a run may take beside its own limit: starting, loading, stopping.


def new_id() -> str:
    """A short random id for a URL: 60 bits."""
    return secrets.token_hex(8)[:15]


def request_verification(
    session: Session, submission: Submission, *, requested_by: int, reason: str | None
) -> Verification:
    """Draw and seal a plan, and queue its first attempt.

    Raises ContentError if the reference cannot replay the claim, ConflictError if a verification
    of this submission is under way.
    """
    session.execute(select(Submission.id).where(Submission.id == submission.id).with_for_update())
    under_way = session.scalar(
        select(Verification.id).where(
            Verification.submission_id == submission.id, Verification.state.in_(OPEN)
        )
    )
    if under_way is not None:
        raise ConflictError(
            f"Verification {under_way} of this submission is under way; wait for it or cancel it."
        )
    benchmark = definition(session, submission.benchmark_sha256)
    claim = claim_of(submission)
    unable = why_not_replayable(benchmark, claim)
    if unable is not None or benchmark.replay is None:
        raise ContentError(f"Submission {submission.id} cannot be verified: {unable}.")
    drawn = plan(benchmark, claim, entropy=secrets.token_bytes(32))
    policy = benchmark.replay
    verification = Verification(
        id=new_id(),
        submission=submission,
        requested_by=requested_by,
        reason=reason,
        state="queued",
        seal=seal(benchmark, submission.id, drawn),
        nonce=drawn.nonce,
        seeds=list(drawn.seeds),
        control_points=[
            asdict(point) for point in band_for(benchmark, claim, runs=len(drawn.seeds))
        ],
        max_attempts=policy.max_attempts,
        lease_seconds=policy.lease_seconds,
        limit_seconds=len(drawn.seeds) * (policy.run_limit_seconds + RUN_START_SECONDS),
        reasons=[],
        created_at=utc_now(),
    )
    session.add(verification)
    session.flush()
    queue_attempt(session, verification, number=1)
    if submission.status not in ("verified", "rejected"):
        # An earlier verdict stands, on the board too, until there is another.
        set_status(session, submission, "verifying")
    return verification


def verify_by_policy(
    session: Session, submission: Submission, benchmark: Benchmark, claim: Claim
) -> None:
    """Ask for a verification of a fresh submission where its benchmark wants one of each."""
    if benchmark.replay is None or not benchmark.replay.automatic:
        return
    if why_not_replayable(benchmark, claim) is None:
        request_verification(
            session, submission, requested_by=submission.user_id, reason="by policy"
        )


def queue_attempt(session: Session, verification: Verification, *, number: int) -> None:
    """Another try, to be sent by the dispatch loop after the commit."""
    now = utc_now()
    session.add(
        Attempt(
            id=new_id(),
            verification=verification,
            number=number,
            state="queued",
            fence=0,
            sends=0,
            send_after=now,
            created_at=now,
        )
    )
    verification.state = "queued"
    session.flush()


def cancel_verification(session: Session, verification: Verification) -> None:
    """End a verification without a verdict. A worker learns of it with its next post."""
    if verification.state not in OPEN:
        raise ConflictError(
            f"Verification {verification.id} has ended ({verification.state}); nothing to cancel."
        )
    now = utc_now()
    for attempt in verification.attempts:
        if attempt.state in OPEN:
            attempt.state = "cancelled"
            attempt.ended_at = now
    verification.state = "cancelled"
    verification.ended_at = now
    keep_evidence(session, verification)
    set_status(session, verification.submission, last_outcome(verification))


def end_with_verdict(session: Session, verification: Verification, verdict: Verdict) -> None:
    """Store a verdict. The first is the submission's status; a later one waits for a decision."""
    verification.state = "done"
    verification.outcome = verdict.outcome
    verification.reasons = [asdict(reason) for reason in verdict.reasons]
    verification.ended_at = utc_now()
    keep_evidence(session, verification)
    set_status(session, verification.submission, settle(verification))


def end_without_verdict(session: Session, verification: Verification, reason: Reason) -> None:
    """Give up on a verification for a reason that says nothing about the claim."""
    verification.state = "failed"
    verification.outcome = "inconclusive"
    verification.reasons = [asdict(reason)]
    verification.ended_at = utc_now()
    keep_evidence(session, verification)
    set_status(session, verification.submission, last_outcome(verification))


def last_outcome(verification: Verification) -> str:
    """The status a submission falls back to: its published verdict, or claimed."""
    return published_status(verification.submission)


def set_status(session: Session, submission: Submission, status: str) -> None:
    """Change a submission's status, and with it the board."""
    submission.status = status
    raise_board_version(session, submission.benchmark_id)
