"""Derive the evidence and the check of a submission from its verdict and its pool."""

from typing import cast

from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking.evidence import (
    FEWEST_SEALED_RUNS,
    check_of,
    evidence_of,
    is_timed,
    may_be_measured,
)
from finishline.rules.submissions.claim import Claim, Kind
from finishline.rules.verification.replay_plan import has_default_settings, is_calibrated
from server.base.board_versions import raise_board_version
from server.base.models import Pool, Submission, User, Verification
from server.base.standing import checks_claim, claim_of, published_verification
from server.benchmarks.calibrations import benchmark_of


def follow_evidence(session: Session, submission: Submission) -> None:
    """Update a submission's evidence and check from its status and its pool, and its board row."""
    published = published_verification(submission)
    uncalibrated = published is not None and _is_between_calibrated(session, submission, published)
    evidence = submission.evidence = evidence_of(
        archive=submission.published is not None,
        measured=not uncalibrated and _is_measured(session, submission, published),
    )
    witness = _witness(submission)
    submission.check_word = check_of(
        evidence,
        submission.status,
        running=_is_running(submission),
        uncalibrated=uncalibrated,
        witnessed=witness is not None,
    )
    is_shown = submission.check_word == "witnessed" and witness is not None
    submission.witnessed_by = session.get_one(User, witness).name if is_shown else None
    raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


def _is_measured(session: Session, submission: Submission, published: Verification | None) -> bool:
    if submission.kind == "inference":
        return submission.status == "verified" and submission.measured_latency_ms is not None
    pool = None if submission.pool_id is None else session.get(Pool, submission.pool_id)
    if pool is None or published is None:
        return False
    is_known = pool.measured_seconds is not None and pool.runs >= FEWEST_SEALED_RUNS
    return is_known and may_be_measured(
        status=submission.status,
        kind=cast(Kind, submission.kind),
        trained_with=submission.trained_with,
        same_class=pool.hardware_class == submission.system["hardware_class"],
        timed=is_timed(published.reasons),
    )


def _is_running(submission: Submission) -> bool:
    return any(
        item.state == "running" and checks_claim(item, submission)
        for item in submission.verifications
    )


def _witness(submission: Submission) -> int | None:
    """Organiser who witnessed that the epochs agree on the submitter's machine, or None."""
    found = [
        item.requested_by
        for item in submission.verifications
        if item.witness_token_id is not None and item.outcome == "verified"
    ]
    return found[-1] if found else None


def _is_between_calibrated(
    session: Session, submission: Submission, published: Verification
) -> bool:
    """Whether a closed claim's batch size lies between calibrated ones: a draw of its own."""
    if submission.division != "closed" or submission.kind != "train":
        return False
    benchmark = benchmark_of(session, published)
    return bool(benchmark.reference_runs) and is_uncalibrated(benchmark, claim_of(submission))


def is_uncalibrated(benchmark: Benchmark, claim: Claim) -> bool:
    """Whether a claim has the reference's settings at a batch size without calibration."""
    return has_default_settings(benchmark, claim) and not is_calibrated(benchmark, claim)
