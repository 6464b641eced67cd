"""Check a report against the events that the server received, and against known curves."""

from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.run import evaluation_of
from finishline.rules.verification.control_points import (
    KnownCurve,
    calibrated_curves,
    check_curves,
    opening_of,
)
from finishline.rules.verification.messages import ReplayReport, ReplayRun
from finishline.rules.verification.report_check import (
    OffClock,
    StreamedEvent,
    check_amounts,
    check_ledgers,
    check_off_clock,
    check_qualities,
    check_second_halves,
    check_spans,
    check_stream,
    check_trained_in,
    off_clock,
    streamed_event,
)
from server.base.board_versions import lock_boards
from server.base.database import locks_rows
from server.base.events import WorkerOut, emit
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Calibration,
    CalibrationRunRow,
    JobTraining,
    ReplayEventRow,
    Submission,
    Verification,
)
from server.base.standing import REPORT, lock_verification
from server.benchmarks.calibrations import (
    adopted_calibration,
    benchmark_of,
    finished_runs,
)
from server.benchmarks.queries import definition
from server.people.audit import Administrator, Subject, record
from server.submissions.service import runs_with_curves
from server.verifications.jobs import trainings_of, trains_packages
from server.verifications.queries import boards_of_workers


def why_refused(
    session: Session,
    attempt: Attempt,
    report: ReplayReport,
    stream: Sequence[StreamedEvent],
    *,
    slack_seconds: float,
) -> str | None:
    """Reason to refuse a report, naming run and field; None for a credible one."""
    verification = attempt.verification
    benchmark = benchmark_of(session, verification)
    try:
        for run in report.runs:
            check_ledgers(run, benchmark.clock, division=_division(verification, benchmark))
            check_spans(run)
        check_stream(report, stream, benchmark.clock, slack_seconds=slack_seconds)
        check_amounts(report)
        for run in report.runs:
            check_qualities(run, benchmark)
        if trains_packages(verification):
            for run in report.runs:
                check_second_halves(run, benchmark)
            return None  # Equal curves and a long preparation say something of references alone.
        check_trained_in(report, trainings_of(verification))
        take_turn(session, verification)
        check_curves(report, _known_curves(session, verification, benchmark, report))
        calibrated = _calibrated_off_clock(
            session, verification, benchmark, report.system.hardware_class
        )
        check_off_clock(report, benchmark.clock, calibrated)
    except RuleError as error:
        return str(error)
    return None


def tell_of_refusal(session: Session, attempt: Attempt, why: str) -> None:
    """Notify organisers that a report was refused. Written to the audit log."""
    if attempt.worker is None:
        return
    emit(session, WorkerOut(attempt.worker, "refused", why=why, attempt_id=attempt.id))
    record(
        session,
        Administrator("report check"),
        "report.refuse",
        Subject("worker", attempt.worker),
        reason=why,
        before=None,
        after={
            "attempt": attempt.id,
            "verification": attempt.verification_id,
            "consequence": "the attempt failed and another is made",
        },
    )


def keep_openings(verification: Verification, report: ReplayReport) -> None:
    """Store the beginning of each run's curve, to detect copies."""
    openings = {run.index: _opening(run) for run in report.runs}
    for training in verification.trainings:
        training.opening = openings.get(training.index)


def _opening(run: ReplayRun) -> str | None:
    return opening_of([item.quality for item in run.evaluations])


def posted_events(session: Session, attempt: Attempt) -> list[StreamedEvent]:
    """Events that a worker posted for an attempt, in order, with seconds since its claim."""
    rows = session.scalars(
        select(ReplayEventRow)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence)
    )
    claimed_at = attempt.started_at
    assert claimed_at is not None  # noqa: S101  only a claim lets events in
    found = (
        streamed_event(row.event, at_seconds=(row.created_at - claimed_at).total_seconds())
        for row in rows
    )
    return [event for event in found if event is not None]


def _division(verification: Verification, benchmark: Benchmark) -> str:
    submission = verification.submission
    return benchmark.divisions[0] if submission is None else submission.division


def take_turn(session: Session, verification: Verification) -> None:
    """Let the reports of a board come one by one: of two with one curve the later is refused.

    What is checked is locked before the board, and with the board those of each worker that the
    report may take out: decision 0030.
    """
    if verification.submission is None:
        return
    boards = {verification.submission.benchmark_id}
    checked = None
    if verification.checks_id is not None:
        checked = lock_verification(session, verification.checks_id)
    if checked is not None and locks_rows(session):
        boards |= boards_of_workers(session, _contradicted(session, verification, checked))
    lock_boards(session, boards)


def _contradicted(session: Session, check: Verification, checked: Verification) -> set[str]:
    """Workers that the report of a cross-check may take out: none for the first of a run."""
    others = select(Verification.id).where(
        Verification.checks_id == checked.id, Verification.outcome == "rejected"
    )
    rejected = session.scalars(others).all()
    if not rejected:
        return set()
    trained = Attempt.verification_id.in_([checked.id, *rejected])
    return set(session.scalars(select(Attempt.worker).where(trained, Attempt.worker.is_not(None))))


def _known_curves(
    session: Session, verification: Verification, benchmark: Benchmark, report: ReplayReport
) -> list[KnownCurve]:
    """Known curves: calibrated ones, those of its claims, and replays that begin alike."""
    known = calibrated_curves(definition(session, verification.benchmark_sha256))
    for adopted in _adopted(session, verification):
        known += [
            KnownCurve(f"the calibrated run with seed {row.seed}", row.seed, tuple(row.quality))
            for row in finished_runs(session, adopted.id)
        ]
    for submission in (verification.submission, verification.against):
        known += _claimed_curves(session, submission)
    return known + _replayed_curves(session, verification, benchmark, report)


def _adopted(session: Session, verification: Verification) -> list[Calibration]:
    found = (
        adopted_calibration(session, verification.benchmark_sha256, precision)
        for precision in {training.precision for training in verification.trainings}
    )
    return [each for each in found if each is not None]


def _claimed_curves(session: Session, submission: Submission | None) -> list[KnownCurve]:
    if submission is None:
        return []
    return [
        KnownCurve(
            f"the claim's {run.file}",
            run.seed,
            tuple(evaluation_of(row).quality for row in run.curve),
        )
        for run in runs_with_curves(session, submission.id)
    ]


def _replayed_curves(
    session: Session, verification: Verification, benchmark: Benchmark, report: ReplayReport
) -> list[KnownCurve]:
    openings = {_opening(run) for run in report.runs}
    rows = session.execute(
        select(JobTraining.verification_id, JobTraining.index)
        .join(Verification, Verification.id == JobTraining.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .where(
            JobTraining.opening.in_(openings - {None}),
            BenchmarkDefinition.benchmark_id == benchmark.benchmark_id,
            JobTraining.verification_id != verification.id,
        )
    ).all()
    found: list[KnownCurve] = []
    for verification_id, index in rows:
        other = _report_of(session, verification_id)
        run = None if other is None else other.runs[index]
        if run is not None:
            qualities = tuple(item.quality for item in run.evaluations)
            origin = f"run {index} of verification {verification_id}"
            found.append(KnownCurve(origin, run.seed, qualities))
    return found


def _report_of(session: Session, verification_id: str) -> ReplayReport | None:
    stored = session.scalar(select(Verification.report).where(Verification.id == verification_id))
    return None if stored is None else REPORT.validate_python(stored)


def _calibrated_off_clock(
    session: Session, verification: Verification, benchmark: Benchmark, hardware_class: str
) -> Sequence[OffClock]:
    """Off-clock seconds of calibrated runs of a class; empty without an adopted calibration.

    A benchmark's own file holds no ledgers.
    """
    adopted = [each.id for each in _adopted(session, verification)]
    chunks = session.scalars(
        select(CalibrationRunRow.verification_id)
        .where(CalibrationRunRow.calibration_id.in_(adopted))
        .distinct()
    )
    reports = [_report_of(session, chunk) for chunk in chunks]
    return [
        off_clock(run, benchmark.clock)
        for report in reports
        if report is not None and report.system.hardware_class == hardware_class
        for run in report.runs
        if run.status in ("reached", "not_reached")
    ]
