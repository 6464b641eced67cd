"""Asking for the latency of a submission's model to be measured, and what comes of it."""

import secrets
from dataclasses import asdict

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.latency import (
    check_latency,
    judge_latency,
    measured_figures,
    plan_latency,
    why_not_measurable,
)
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.replay_plan import run_limit_seconds
from server.benchmarks.queries import definition
from server.board_versions import raise_board_version
from server.errors import ConflictError, ContentError
from server.models import Submission, Verification
from server.pools.evidence import follow_evidence
from server.verifications.cross_checks import NO_SECOND_WORKER, open_because
from server.verifications.limits import RUN_START_SECONDS
from server.verifications.publishing import is_pending
from server.verifications.queries import claim_of, verification_under_way
from server.verifications.queueing import queue_verification
from server.verifications.service import (
    end_with_verdict,
    mark_verifying,
    refresh_to_check,
)
from server.workers.owners import is_organisers_worker


def request_latency(
    session: Session, submission: Submission, *, requested_by: int, reason: str | None
) -> Verification:
    """Draw and seal the training whose model is to be timed, and queue its first attempt.

    Raises ContentError if no latency can be measured for the submission, ConflictError if one is
    being measured.
    """
    refresh_to_check(session, submission)
    under_way = verification_under_way(session, submission.id, kind="latency")
    if under_way is not None:
        raise ConflictError(
            f"Verification {under_way} of this submission's latency is under way; wait for it or "
            "cancel it."
        )
    benchmark = definition(session, submission.benchmark_sha256)
    claim = claim_of(submission)
    unable = why_not_measurable(benchmark, claim)
    if unable is not None or benchmark.replay is None or benchmark.latency is None:
        raise ContentError(f"The latency of {submission.id} cannot be measured: {unable}.")
    drawn = plan_latency(benchmark, claim, entropy=secrets.token_bytes(32))
    verification = queue_verification(
        session,
        benchmark,
        drawn,
        kind="latency",
        submission=submission,
        requested_by=requested_by,
        reason=reason,
        beside={"kind": "latency"},
        limit_seconds=run_limit_seconds(benchmark, "latency") + RUN_START_SECONDS,
    )
    mark_verifying(session, verification)
    return verification


def judge_measured(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Hold the claimed latency against the measured one, which the board shows beside it.

    No second worker measures it again, so an organisers' worker alone decides. Raises RuleError
    if the report is not as it was ordered.
    """
    submission = verification.submission
    if submission is None:
        raise ValueError(f"verification {verification.id} is a latency without a submission")
    benchmark = definition(session, verification.benchmark_sha256)
    check_latency(report, benchmark)
    verification.report = asdict(report)
    verdict = judge_latency(benchmark, claim_of(submission), submission.latency_ms, report)
    if not is_organisers_worker(session, report.system.worker):
        verdict = open_because(verdict, NO_SECOND_WORKER)
    end_with_verdict(session, verification, verdict)
    if not is_pending(verification, verification.submission):
        show_measured(session, verification)


def show_measured(session: Session, verification: Verification) -> None:
    """Put a measured latency beside the claim on the board; what is no latency changes nothing.

    One that waits for a decision is shown once it is published, with its verdict.
    """
    submission = verification.submission
    if verification.kind != "latency" or submission is None or verification.report is None:
        return
    report = TypeAdapter(ReplayReport).validate_python(verification.report)
    if not is_organisers_worker(session, report.system.worker):
        return
    figures = measured_figures(definition(session, verification.benchmark_sha256), report)
    if figures is not None and _is_of_its_system(claim_of(submission), report):
        submission.measured_latency_ms = figures.p50_ms
        follow_evidence(session, submission)
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


def _is_of_its_system(claim: Claim, report: ReplayReport) -> bool:
    """Whether what was measured may stand beside the claim: on its hardware class only."""
    return claim.system.hardware_class == report.system.hardware_class
