"""Check a report against the events that the server received, and against known curves."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, is_dataclass
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.canonical import sha256_of
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.run import Clock, evaluation_of
from finishline.rules.verification.control_points import (
    DISTINCT_QUALITIES,
    KnownCurve,
    calibrated_curves,
    check_curves,
)
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import ReplayReport, ReplayRun, Training
from finishline.rules.verification.report_check import (
    COMPARED,
    StreamedEvent,
    check_ledgers,
    check_second_halves,
    check_stream,
    ledger_of,
    refuse,
)
from finishline.rules.verification.utilisation import is_narrower
from server.base.events import WorkerOut, emit
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Calibration,
    CalibrationRunRow,
    JobTraining,
    ReplayEventRow,
    Verification,
)
from server.base.standing import REPORT
from server.benchmarks.calibrations import adopted_calibration, benchmark_of, finished_runs
from server.benchmarks.definitions import definition
from server.people.audit import Administrator, Subject, record
from server.submissions.lists import runs_with_curves
from server.verifications.jobs import trainings_of, trains_packages

# Those that the operands of a product show.
NARROW: tuple[PrecisionName, ...] = ("fp16", "bf16")


def check_qualities(run: ReplayRun, benchmark: Benchmark) -> None:
    """Raise RuleError, naming run and field, unless a run's qualities are possible.

    A run that reached the target has an evaluation at it.
    """
    for index, item in enumerate(run.evaluations):
        for name in ("quality", "second_half"):
            found: float | None = getattr(item, name)
            if found is not None and not benchmark.target.is_possible(found):
                expected = benchmark.target.possible_in_words
                refuse(run.index, f"evaluations[{index}].{name}", f"{found:g}", expected)
    if run.status == "reached" and evaluation_at_target(benchmark, run) is None:
        expected = benchmark.target.in_words
        refuse(run.index, "status", "reached without an evaluation", expected)


# No machine comes near, and no sum over runs is infinite.
MOST = 1e30
MOST_BY_ENDING = {"_share": 1.0, "_percent": 100.0}


def check_amounts(report: ReplayReport) -> None:
    """Raise RuleError, naming the field, for an amount that no worker can have measured.

    For example joules below 0, or a share above 1. A temperature may be below 0.
    """
    measured: dict[str, Any] = {"work": report.work, "processes": report.processes}
    for run in report.runs:
        measured[f"runs[{run.index}].cpu_seconds"] = run.cpu_seconds
        measured[f"runs[{run.index}].telemetry"] = run.telemetry
    for place, found in measured.items():
        amounts = {place: found}
        if is_dataclass(found):
            amounts = {f"{place}.{name}": value for name, value in vars(found).items()}
        for field, amount in amounts.items():
            if not isinstance(amount, int | float):
                continue
            least = -MOST if field.endswith("_celsius") else 0.0
            most = next((most for end, most in MOST_BY_ENDING.items() if field.endswith(end)), MOST)
            if not least <= amount <= most:
                expected = f"a number from {least:g} to {most:g}"
                raise RuleError(f"{amount:g}", field=field, expected=expected)


SPAN_TOLERANCE_SECONDS = 0.001
OFF_CLOCK_FACTOR = 2.0
OFF_CLOCK_SLACK_SECONDS = 0.25
# The runs that ended by themselves.
FINISHED = ("reached", "not_reached", "below_band")


def opening_of(run: ReplayRun) -> str | None:
    """A hash of a curve's start, equal for curves that agree, None for too short a curve."""
    opening: list[float] = []
    for item in run.evaluations:
        opening.append(float(item.quality))
        if len(set(opening)) == DISTINCT_QUALITIES:
            return sha256_of(opening)
    return None


@dataclass(frozen=True)
class OffClock:
    """Seconds of a run that its clock leaves out: of its preparation, and of each evaluation."""

    preparation: float = 0.0
    evaluation: float = 0.0


def check_spans(run: ReplayRun) -> None:
    """Raise RuleError unless the span of a run that ended by itself agrees with its ledger.

    It counts from the end of the preparation to the last thing that the training said.
    """
    if run.status not in FINISHED or run.parent_seconds is None:
        return
    place = f"runs[{run.index}]"
    ledger = ledger_of(run.ledger, place)
    wanted = ledger.total() - ledger.init - ledger.compile - ledger.warmup
    if abs(run.parent_seconds - wanted) > SPAN_TOLERANCE_SECONDS:
        raise RuleError(
            f"{run.parent_seconds:.3f} s",
            field=f"{place}.parent_seconds",
            expected=f"{wanted:.3f} s, as its ledger adds up after the preparation",
        )


def off_clock(run: ReplayRun, clock: Clock) -> OffClock:
    """The seconds of a run that are not on its clock."""
    ledger = ledger_of(run.ledger, f"runs[{run.index}]")
    prepared = ledger.init + ledger.compile + ledger.warmup
    each = ledger.eval / len(run.evaluations) if run.evaluations else 0.0
    return OffClock(
        preparation=0.0 if clock.name == "dawnbench" else prepared,
        evaluation=0.0 if clock.name == "mlperf" else each,
    )


def check_off_clock(report: ReplayReport, clock: Clock, calibrated: Sequence[OffClock]) -> None:
    """Raise RuleError if a run spends over twice the longest calibrated time off its clock.

    `calibrated` is of the same hardware class. Without any nothing is compared.
    """
    for run in report.runs if calibrated else ():
        found = off_clock(run, clock)
        for name in ("preparation", "evaluation"):
            longest = max(getattr(one, name) for one in calibrated)
            most = OFF_CLOCK_FACTOR * longest + OFF_CLOCK_SLACK_SECONDS
            if getattr(found, name) > most:
                seen = f"{getattr(found, name):.3f} s off the clock"
                wanted = f"at most {most:.3f} s of {name}, twice the calibrated"
                refuse(run.index, "ledger", seen, wanted)


def check_trained_in(report: ReplayReport, trainings: Iterable[Training]) -> None:
    """Raise RuleError if the audited training touched nothing as narrow as its type of 16 bits.

    A worker of an earlier release trains in the reference's own precision, whatever it is told.
    """
    audited = next((each for each in trainings if "profile" in each.measure), None)
    wanted = None if audited is None else audited.precision
    lowest = None if report.precision is None else report.precision.lowest
    if wanted in NARROW and lowest is not None and is_narrower(wanted, lowest):
        raise RuleError(
            f"the training touched nothing narrower than {lowest}",
            field="precision",
            expected=f"{wanted}; update the worker",
        )


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
    benchmark, submission = benchmark_of(session, verification), verification.submission
    division = benchmark.divisions[0] if submission is None else submission.division
    try:
        for run in report.runs:
            check_ledgers(run, benchmark.clock, division=division)
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
        after={
            "attempt": attempt.id,
            "verification": attempt.verification_id,
            "consequence": "the attempt failed and another is made",
        },
    )


def keep_openings(verification: Verification, report: ReplayReport) -> None:
    """Store the beginning of each run's curve, to detect copies."""
    openings = {run.index: opening_of(run) for run in report.runs}
    for training in verification.trainings:
        training.opening = openings.get(training.index)


def posted_events(session: Session, attempt: Attempt) -> list[StreamedEvent]:
    """Events that a worker posted for an attempt, in order, with seconds since its lease.

    No check needs the ends of runs.
    """
    rows = session.scalars(
        select(ReplayEventRow)
        .where(ReplayEventRow.attempt_id == attempt.id)
        .order_by(ReplayEventRow.sequence)
    )
    leased_at = attempt.started_at
    assert leased_at is not None  # noqa: S101  only a lease lets events in
    names = ("run", "kind", "phase", *COMPARED)
    return [
        StreamedEvent(
            at_seconds=(row.created_at - leased_at).total_seconds(),
            **{name: row.event[name] for name in names},
        )
        for row in rows
        if row.event["kind"] != "run_finished"
    ]


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
    for submission_id in (verification.submission_id, verification.against_id):
        claimed = () if submission_id is None else runs_with_curves(session, submission_id)
        for run in claimed:
            qualities = tuple(evaluation_of(row).quality for row in run.curve)
            known.append(KnownCurve(f"the claim's {run.file}", run.seed, qualities))
    return known + _replayed_curves(session, verification, benchmark, report)


def _adopted(session: Session, verification: Verification) -> list[Calibration]:
    found = (
        adopted_calibration(session, verification.benchmark_sha256, precision)
        for precision in {training.precision for training in verification.trainings}
    )
    return [each for each in found if each is not None]


def _replayed_curves(
    session: Session, verification: Verification, benchmark: Benchmark, report: ReplayReport
) -> list[KnownCurve]:
    openings = {opening_of(run) for run in report.runs}
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
