"""End a job: judge its report by its purpose, and apply the consequences."""

from collections.abc import Callable
from dataclasses import asdict, replace

from pydantic import TypeAdapter
from sqlalchemy.orm import Session

from finishline.rules.scoring.energy import energy_to_target_joules
from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.cross_check import unreproduced
from finishline.rules.verification.job import Case
from finishline.rules.verification.latency import measured_figures
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import PURPOSES
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.board_versions import raise_board_version
from server.base.models import Verification
from server.base.standing import claim_of, claimed_runs, is_pending, is_published
from server.benchmarks.calibrations import benchmark_of
from server.benchmarks.queries import definition
from server.verifications.calibration_runs import keep_calibrated
from server.verifications.cross_checks import (
    NO_SECOND_WORKER,
    begin_cross_check,
    end_cross_check,
    open_because,
    own_again,
)
from server.verifications.duels import challenge_record
from server.verifications.evidence import follow_evidence
from server.verifications.fresh_runs import follow_measurement
from server.verifications.pools import keep_sealed_runs
from server.verifications.queries import claimed_curves
from server.verifications.queueing import trainings_of
from server.verifications.service import cancel_verification, end_with_verdict
from server.verifications.witnesses import end_witnessed
from server.verifications.worker_owners import is_organisers_worker


def end_latency(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    """Store the verdict, and show the measured latency beside the claim.

    No second worker measures it again, so only an organisers' worker decides.
    """
    if not is_organisers_worker(session, report.system.worker):
        verdict = open_because(verdict, NO_SECOND_WORKER)
    end_with_verdict(session, verification, verdict)
    if not is_pending(verification, verification.submission):
        show_measured(session, verification)


def show_measured(session: Session, verification: Verification) -> None:
    """Put a measured latency beside the claim on the board; other kinds change nothing.

    A latency that waits for a decision is shown once it is published, with its verdict.
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
    """Whether a latency may stand beside the claim: on the claim's hardware class only."""
    return claim.system.hardware_class == report.system.hardware_class


REPORT = TypeAdapter(ReplayReport)


def show_energy(verification: Verification) -> None:
    """Put the measured energy of the published replay on the board, or nothing without one.

    Only energy on the hardware class of the claim may stand beside its time. Call this where a
    verdict is published, which raises the board's version.
    """
    submission = verification.submission
    if verification.kind != "replay" or submission is None or verification.report is None:
        return
    if not is_published(verification):
        return
    report = REPORT.validate_python(verification.report)
    same_class = report.system.hardware_class == submission.system["hardware_class"]
    submission.energy_joules = _joules(report) if same_class else None


def _joules(report: ReplayReport) -> float | None:
    return energy_to_target_joules(
        [
            None if run.telemetry is None else run.telemetry.energy_joules
            for run in report.runs
            if run.status == "reached"
        ]
    )


def end_with_report(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Judge a job by its report and purpose. Raises RuleError unless the report fits the plan."""
    purpose = PURPOSES[verification.kind]
    purpose.check(report, benchmark_of(session, verification))
    verification.report = asdict(report)
    verdict = purpose.judge(_case(session, verification, report))
    follow = FOLLOW.get(verification.kind)
    if verdict is None or follow is None:
        end_with_verdict(session, verification, verdict)
    else:
        follow(session, verification, report, verdict)
    if verdict is None:
        keep_calibrated(session, verification, report)


def _case(session: Session, verification: Verification, report: ReplayReport) -> Case:
    """Gather a report with everything its purpose judges it by."""
    submission, checked = verification.submission, verification.checks_id
    case = Case(benchmark_of(session, verification), trainings_of(verification), report)
    if checked is not None:
        stored = session.get_one(Verification, checked).report
        case = replace(case, checked=TypeAdapter(ReplayReport).validate_python(stored))
    if submission is None:
        return case
    return replace(
        case,
        claim=claim_of(submission),
        runs=claimed_runs(submission),
        curves=claimed_curves(session, submission),
        latency_ms=submission.latency_ms,
        again=own_again(session, verification),
    )


def _end_replay(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    """Conclude a replay, after another owner's worker has trained a run again if one is drawn.

    A run that was witnessed on the submitter's own machine is not cross-checked.
    """
    if verification.witness_token_id is not None:
        end_witnessed(session, verification, verdict)
        return
    waits, why = begin_cross_check(
        session,
        verification,
        report,
        _suspects(session, verification, report),
        rejects=verdict.outcome == "rejected",
    )
    if not waits:
        conclude_replay(session, verification, report, why)


def _suspects(session: Session, verification: Verification, report: ReplayReport) -> list[int]:
    """Runs of own seeds that do not follow the claim."""
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

    With a reason to leave it open the verdict is inconclusive, whatever the replay shows.
    A cancelled replay gets no verdict; its sealed runs count.
    """
    submission = verification.submission
    believed = None if why is not None else report  # Else one worker's word is in everybody's pool.
    if verification.cancelled_at is not None:
        cancel_verification(session, verification, believed)
        return
    verdict = PURPOSES[verification.kind].judge(_case(session, verification, report))
    if submission is None or verdict is None:
        raise ValueError(f"verification {verification.id} is a replay without a submission")
    if report.precision is not None:
        submission.precision_measured = report.precision.lowest
    keep_sealed_runs(session, verification, believed)
    end_with_verdict(session, verification, open_because(verdict, why))
    follow_measurement(session, verification)
    challenge_record(session, verification)
    show_energy(verification)


def _end_cross_check(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    end_cross_check(session, verification, report, verdict, conclude=conclude_replay)


Follow = Callable[[Session, Verification, ReplayReport, Verdict], None]
# Purposes with effects after the verdict: on a status, a board or another verification.
FOLLOW: dict[str, Follow] = {
    "replay": _end_replay,
    "latency": end_latency,
    "cross_check": _end_cross_check,
}
