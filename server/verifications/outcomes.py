"""Verdict of a job by its report, and its effects on the claim, its pool and its board row."""

from dataclasses import replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.ranking import CHECK_OF_STATUS
from finishline.rules.run import evaluation_of
from finishline.rules.verification.job import Case
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import HEAD_TO_HEAD
from finishline.rules.verification.verdict import Reason, Verdict
from server.base.board_versions import raise_board_version
from server.base.database import utc_now
from server.base.events import DuplicateMarked, VerificationChanged
from server.base.models import Submission, Verification
from server.base.standing import (
    ENDED,
    PUBLISH,
    checks_claim,
    claim_of,
    claimed_runs,
    is_pending,
    is_published,
    measures,
    published_verification,
    purpose_of,
    report_of,
)
from server.benchmarks.calibrations import benchmark_of
from server.benchmarks.definitions import definition
from server.submissions.duplicates import replace_timeless
from server.submissions.lists import runs_with_curves
from server.verifications.figures import energy_to_target_joules, measured_figures
from server.verifications.head_to_heads import contest_of, continue_head_to_head
from server.verifications.jobs import trainings_of
from server.verifications.pools import follow_evidence, keep_measured_runs, verdict_that_holds
from server.verifications.states import Event, end
from server.verifications.workers import is_organisers_worker

DETERMINISM = {"repeat_equal": "shown", "repeat_differs": "struck"}
NO_SECOND_WORKER = Reason(
    "no_second_worker",
    "leaves_open",
    "one worker's word alone: no quiet worker of another owner was there to train a run again",
)


def open_because(verdict: Verdict, why: Reason | None) -> Verdict:
    """Leave a verdict open for a reason outside its replay; None returns the verdict unchanged."""
    if why is None:
        return verdict
    return replace(verdict, outcome="inconclusive", reasons=(*verdict.reasons, why))


def judge_report(
    session: Session, verification: Verification, report: ReplayReport
) -> Verdict | None:
    """Verdict of a report by its purpose; None if there is no claim to judge."""
    case = _case(session, verification, report, verification.submission)
    return purpose_of(verification).judge(case)


def _case(
    session: Session,
    verification: Verification,
    report: ReplayReport,
    submission: Submission | None,
) -> Case:
    """The claim of a submission, its own or a duplicate's, against a report."""
    checked = verification.checks_id
    case = Case(benchmark_of(session, verification), trainings_of(verification), report)
    if checked is not None:
        case = replace(case, checked=report_of(session.get_one(Verification, checked)))
    if submission is None:
        return case
    return replace(
        case,
        claim=claim_of(submission),
        runs=claimed_runs(submission),
        curves=[
            [evaluation_of(row) for row in run.curve]
            for run in runs_with_curves(session, submission.id)
        ],
        latency_ms=submission.latency_ms,
        contest=None if verification.against_id is None else contest_of(session, verification),
    )


def end_evidence(
    session: Session,
    verification: Verification,
    report: ReplayReport,
    verdict: Verdict,
    why: Reason | None,
    *,
    event: Event = "report",
) -> None:
    """Store the verdict about a claim, and its measured runs. `why` leaves the claim open."""
    submission = verification.submission
    if submission is None:
        raise ValueError(f"verification {verification.id} is evidence without a submission")
    if report.precision is not None:
        submission.precision_measured = report.precision.lowest
    if why is None:  # Else one worker's word is in everybody's pool.
        keep_measured_runs(session, verification, report)
    end(session, verification, event, open_because(verdict, why))
    show_energy(verification)
    show_determinism(submission, verdict)
    if not is_pending(verification, submission):
        show_latency(session, verification)


def end_comparison(
    session: Session, verification: Verification, report: ReplayReport, verdict: Verdict
) -> None:
    """Store the result of an ablation or a head-to-head, which an organisers' worker decides."""
    is_head_to_head = verification.against_id is not None
    if is_head_to_head and not is_organisers_worker(session, report.system.worker):
        verdict = open_because(verdict, NO_SECOND_WORKER)
    end(session, verification, "report", verdict)
    if is_head_to_head:
        continue_head_to_head(session, verification)


def settle_submission(session: Session, event: VerificationChanged) -> None:
    """Derive the row of the submission that a verification checks.

    Its first verdict is published at once. A later one waits for a decision.
    """
    verification, submission = event.verification, event.verification.submission
    if submission is None or not checks_claim(verification, submission):
        if submission is not None and verification.kind == HEAD_TO_HEAD.name:
            raise_board_version(session, submission.benchmark_id)  # Rows say how it goes.
        return
    if event.moment == "done":
        if published_verification(submission) is None:
            verification.decision, verification.decision_reason = PUBLISH, "first verdict"
            verification.decided_at = utc_now()
        package = submission.trained_package
        if package is not None and package.published_at is None:
            package.published_at = utc_now()
    elif event.moment == "queued" and published_verification(submission) is not None:
        return  # It stands meanwhile.
    follow_evidence(session, submission)
    if event.moment in (*ENDED, "decision_published"):
        if is_published(verification):
            check_duplicates(session, verification)
        replace_timeless(session, submission)


def check_duplicate(session: Session, event: DuplicateMarked) -> None:
    """Take a duplicate's own time from it, and compare its claim with its original's runs."""
    submission = event.submission
    follow_evidence(session, submission)
    original = session.get(Submission, submission.duplicate_of)
    published = None if original is None else verdict_that_holds(session, original)
    if submission.package is None and published is not None:
        check_claim(session, submission, published)


def check_duplicates(session: Session, verification: Verification) -> None:
    """Compare the claims of the duplicates of a submission with its latest runs."""
    query = select(Submission).where(Submission.duplicate_of == verification.submission_id)
    for each in session.scalars(query).unique():
        if each.package is None:
            check_claim(session, each, verification)


def check_claim(session: Session, submission: Submission, verification: Verification) -> None:
    """Say how far the epochs of a claim fit a replay of its configuration."""
    report = report_of(verification)
    if report is None:
        return
    case = _case(session, verification, report, submission)
    verdict = purpose_of(verification).judge(case)
    if verdict is not None:
        submission.check_word = CHECK_OF_STATUS[verdict.outcome]
        raise_board_version(session, submission.benchmark_id, submission_id=submission.id)


def show_determinism(submission: Submission, verdict: Verdict) -> None:
    """Show or strike the word `deterministic` of a package; a struck one stays struck."""
    package = submission.package
    for reason in verdict.reasons:
        word = DETERMINISM.get(reason.code)
        if package is not None and word is not None and package.determinism != "struck":
            package.determinism = word


def show_latency(session: Session, verification: Verification) -> None:
    """Put a measured latency beside the claim on the board; other jobs change nothing.

    It is shown with its published verdict, and only of an organisers' worker of the claim's class.
    """
    if not measures(trainings_of(verification), "latency"):
        return
    submission, report = verification.submission, report_of(verification)
    if submission is None or report is None:
        return
    if not is_organisers_worker(session, report.system.worker):
        return
    figures = measured_figures(definition(session, verification.benchmark_sha256), report)
    if figures is not None and _is_of_its_system(submission, report):
        submission.measured_latency_ms = figures.p50_ms
        follow_evidence(session, submission)


def _is_of_its_system(submission: Submission, report: ReplayReport) -> bool:
    return bool(submission.system["hardware_class"] == report.system.hardware_class)


def show_energy(verification: Verification) -> None:
    """Put the measured energy of the published replay on the board, or nothing without one.

    Call this where a verdict is published, which raises the board's version.
    """
    submission, report = verification.submission, report_of(verification)
    if submission is None or report is None or not purpose_of(verification).fills_pool:
        return
    if is_published(verification):
        measured = [run.telemetry for run in report.runs if run.status == "reached"]
        joules = [None if each is None else each.energy_joules for each in measured]
        shown = _is_of_its_system(submission, report)
        submission.energy_joules = energy_to_target_joules(joules) if shown else None
