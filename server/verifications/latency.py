"""A latency that was measured: left open without a second worker, and shown on the board."""

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.latency import measured_figures
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.verdict import Verdict
from server.benchmarks.queries import definition
from server.board_versions import raise_board_version
from server.models import Verification
from server.pools.evidence import follow_evidence
from server.verifications.cross_checks import NO_SECOND_WORKER, open_because
from server.verifications.publishing import is_pending
from server.verifications.queries import claim_of
from server.verifications.service import end_with_verdict
from server.workers.owners import is_organisers_worker


def end_latency(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    """Store the verdict, and show the measured latency beside the claim.

    No second worker measures it again, so an organisers' worker alone decides.
    """
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
