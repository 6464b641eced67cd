"""What a finished report makes of its verification: one small function per kind."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial

from sqlalchemy.orm import Session

from finishline.rules.verification.cross_check import unreproduced
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.verdict import Reason, Verdict
from server.calibrations.progress import keep_runs
from server.calibrations.queries import benchmark_of
from server.duels.automatic import challenge_record
from server.duels.service import end_duel
from server.models import Submission, Verification
from server.pools.fresh import follow_measurement
from server.pools.service import keep_sealed_runs
from server.verifications.cross_checks import (
    begin_cross_check,
    end_cross_check,
    open_because,
    own_again,
)
from server.verifications.energy import show_energy
from server.verifications.latency import judge_measured
from server.verifications.queries import claim_of, claimed_curves, claimed_runs
from server.verifications.service import (
    cancel_verification,
    end_with_verdict,
    end_without_judging,
)
from server.verifications.witnesses import end_witnessed

EndVerification = Callable[[Session, Verification, ReplayReport], None]


def judge_replay(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Hold the claim against its replay, once another owner's worker has trained a run again.

    What was witnessed on the submitter's own machine is not worth a check of another's.
    """
    verification.report = asdict(report)
    submission = verification.submission
    verdict = None if submission is None else _verdict(session, verification, submission, report)
    if verification.witness_token_id is not None and verdict is not None:
        end_witnessed(session, verification, verdict)
        return
    waits, why = begin_cross_check(
        session,
        verification,
        report,
        _suspects(session, verification, report),
        rejects=verdict is not None and verdict.outcome == "rejected",
    )
    if not waits:
        conclude_replay(session, verification, report, why)


def _suspects(session: Session, verification: Verification, report: ReplayReport) -> list[int]:
    """The runs of own seeds that do not follow the claim."""
    submission = verification.submission
    if submission is None or not verification.own_runs:
        return []
    return unreproduced(
        benchmark_of(session, verification),
        claimed_runs(submission),
        claimed_curves(session, submission),
        report.runs[: verification.own_runs],
    )


def conclude_replay(
    session: Session, verification: Verification, report: ReplayReport, why: Reason | None
) -> None:
    """Judge a claim by its replay; the submission's status follows the verdict.

    With a reason why it is left open the verdict is inconclusive, whatever the replay shows.
    One that was cancelled has no verdict; its sealed runs count.
    """
    submission = verification.submission
    believed = None if why is not None else report  # Else one worker's word is in everybody's pool.
    if verification.cancelled_at is not None:
        cancel_verification(session, verification, believed)
        return
    if submission is None:
        raise ValueError(f"verification {verification.id} is a replay without a submission")
    verdict = _verdict(session, verification, submission, report)
    if report.precision is not None:
        submission.precision_measured = report.precision.lowest
    keep_sealed_runs(session, verification, believed)
    end_with_verdict(session, verification, open_because(verdict, why))
    follow_measurement(session, verification)
    challenge_record(session, verification)
    show_energy(verification)


def _verdict(
    session: Session, verification: Verification, submission: Submission, report: ReplayReport
) -> Verdict:
    return judge(
        benchmark_of(session, verification),
        claim_of(submission),
        claimed_runs(submission),
        report,
        runs_planned=len(verification.seeds),
        own_runs=verification.own_runs,
        own_again=own_again(session, verification),
        curves=claimed_curves(session, submission),
    )


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
    "cross_check": partial(end_cross_check, conclude=conclude_replay),
}
