"""What a finished report makes of its verification: one small function per kind."""

from collections.abc import Callable
from dataclasses import asdict

from sqlalchemy.orm import Session

from rules.messages import ReplayReport
from rules.verification import judge
from server.calibrations.progress import keep_runs
from server.calibrations.queries import benchmark_of
from server.duels.service import end_duel
from server.models import Verification
from server.verifications.copies import find_elsewhere
from server.verifications.energy import show_energy
from server.verifications.latency import judge_measured
from server.verifications.queries import claim_of, claimed_curves, claimed_runs
from server.verifications.service import end_with_verdict, end_without_judging

EndVerification = Callable[[Session, Verification, ReplayReport], None]


def judge_replay(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Hold the claim against its replay; the submission's status follows the verdict."""
    submission = verification.submission
    if submission is None:
        raise ValueError(f"verification {verification.id} is a replay without a submission")
    verdict = judge(
        benchmark_of(session, verification),
        claim_of(submission),
        claimed_runs(submission),
        report,
        runs_planned=len(verification.seeds),
        curves=claimed_curves(session, submission),
        elsewhere=find_elsewhere(session, submission),
    )
    verification.report = asdict(report)
    if report.precision is not None:
        submission.precision_measured = report.precision.lowest
    end_with_verdict(session, verification, verdict)
    show_energy(verification)


def keep_calibration(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Keep what the reference did: there is nobody to judge."""
    verification.report = asdict(report)
    keep_runs(session, verification, report)
    end_without_judging(session, verification)


# A kind is made complete by its line here.
OUTCOMES: dict[str, EndVerification] = {
    "replay": judge_replay,
    "calibration": keep_calibration,
    "duel": end_duel,
    "latency": judge_measured,
}
