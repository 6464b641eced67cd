"""Check a report against the posted events and known curves, judge it, and store its end.

Checking and judging take most of the time. They read before the transaction that writes. It repeats
them only if a fact behind them has changed meanwhile.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, is_dataclass
from typing import Any, Literal

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
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
from finishline.rules.verification.messages import Failure, ReplayReport, ReplayRun, Training
from finishline.rules.verification.replay import is_disturbed
from finishline.rules.verification.report_check import (
    COMPARED,
    StreamedEvent,
    check_ledgers,
    check_report,
    check_second_halves,
    check_stream,
    ledger_of,
    refuse,
)
from finishline.rules.verification.utilisation import is_narrower
from finishline.rules.verification.verdict import Verdict
from server.base.database import Services, ServicesDep, state_of
from server.base.errors import ContentError
from server.base.events import DispatchWakeup, WorkerOut, emit, wake_after_commit
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    Calibration,
    CalibrationRunRow,
    JobTraining,
    ReplayEventRow,
    Verification,
    WorkerRow,
)
from server.base.standing import REPORT, purpose_of
from server.base.visibility import ORGANISER
from server.benchmarks.definitions import (
    adopted_calibration,
    benchmark_of,
    definition,
    finished_runs,
)
from server.people.audit import Administrator, Subject, record
from server.people.declared import Routes
from server.submissions.rows import runs_with_curves
from server.verifications.attempts import (
    LeasedDep,
    as_followed,
    is_spent,
    mark_worker,
    owned_attempt,
    retry_or_give_up,
)
from server.verifications.head_to_heads import contest_of
from server.verifications.jobs import move, repeated, trainings_of, trains_packages
from server.verifications.judge import end_with_report, is_overtaken, verdict_of
from server.verifications.workers import refuse_unstorable, require_a_system

# Types that the operands of a product show.
NARROW: tuple[PrecisionName, ...] = ("fp16", "bf16")


def check_qualities(run: ReplayRun, benchmark: Benchmark) -> None:
    """Raise RuleError, naming run and field, unless its qualities are possible and fit its end."""
    for index, item in enumerate(run.evaluations):
        for name in ("quality", "second_half"):
            found: float | None = getattr(item, name)
            if found is not None and not benchmark.target.is_possible(found):
                expected = benchmark.target.possible_in_words
                refuse(run.index, f"evaluations[{index}].{name}", f"{found:g}", expected)
    reached = evaluation_at_target(benchmark, run)
    if run.status == "reached" and reached is None:
        expected = benchmark.target.in_words
        refuse(run.index, "status", "reached without an evaluation", expected)
    if benchmark.score.by == "quality" and reached and run.tta_seconds != reached.seconds:
        expected = f"{reached.seconds:g}, the last evaluation within the budget"
        refuse(run.index, "tta_seconds", f"{run.tta_seconds:g}", expected)


# Far above any machine, while sums over runs stay finite.
MOST = 1e30
MOST_BY_ENDING = {"_share": 1.0, "_percent": 100.0}


def check_amounts(report: ReplayReport) -> None:
    """Raise RuleError, naming the field, for an impossible amount, for example a share above 1."""
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
# Runs that ended by themselves.
FINISHED = ("reached", "not_reached", "below_band")


def opening_of(run: ReplayRun) -> str | None:
    """Hash the start of a curve, to find curves that agree. None for too short a curve."""
    opening: list[float] = []
    for item in run.evaluations:
        opening.append(float(item.quality))
        if len(set(opening)) == DISTINCT_QUALITIES:
            return sha256_of(opening)
    return None


@dataclass(frozen=True)
class OffClock:
    """Seconds of a run off its clock: of its preparation, and of each evaluation."""

    preparation: float = 0.0
    evaluation: float = 0.0


def check_spans(run: ReplayRun) -> None:
    """Raise RuleError unless the seconds after the preparation agree with the run's ledger."""
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
    """Return the seconds of a run off its clock."""
    ledger = ledger_of(run.ledger, f"runs[{run.index}]")
    prepared = ledger.init + ledger.compile + ledger.warmup
    each = ledger.eval / len(run.evaluations) if run.evaluations else 0.0
    return OffClock(
        preparation=0.0 if clock.name == "dawnbench" else prepared,
        evaluation=0.0 if clock.name == "mlperf" else each,
    )


def check_off_clock(report: ReplayReport, clock: Clock, calibrated: Sequence[OffClock]) -> None:
    """Raise RuleError if a run spends over twice its class's `calibrated` time off its clock."""
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
    """Raise RuleError for a training wider than ordered: old workers ignore the precision."""
    audited = next((each for each in trainings if "profile" in each.measure), None)
    wanted = None if audited is None else audited.precision
    lowest = None if report.precision is None else report.precision.lowest
    if wanted in NARROW and lowest is not None and is_narrower(wanted, lowest):
        raise RuleError(
            f"the training touched nothing narrower than {lowest}",
            field="precision",
            expected=f"{wanted}; update the worker",
        )


def why_refused(session: Session, attempt: Attempt, report: ReplayReport) -> str | None:
    """Say why a report is refused, naming run and field. None for a credible report."""
    verification = attempt.verification
    slack = state_of(session, Services).settings.clock_slack_seconds
    benchmark, submission = benchmark_of(session, verification), verification.submission
    division = benchmark.divisions[0] if submission is None else submission.division
    try:
        for run in report.runs:
            check_ledgers(run, benchmark.clock, division=division)
            check_spans(run)
        check_stream(report, posted_events(session, attempt), benchmark.clock, slack_seconds=slack)
        check_amounts(report)
        for run in report.runs:
            check_qualities(run, benchmark)
        if trains_packages(verification):
            for run in report.runs:
                check_second_halves(run, benchmark)
            return None  # Equal curves and a long preparation are suspicious only of references.
        check_trained_in(report, trainings_of(verification))
        check_curves(report, _known_curves(session, verification, report))
        calibrated = _calibrated_off_clock(
            session, verification, benchmark, report.system.hardware_class
        )
        check_off_clock(report, benchmark.clock, calibrated)
    except RuleError as error:
        return str(error)
    return None


def tell_of_refusal(session: Session, attempt: Attempt, why: str) -> None:
    """Notify organisers of a refused report, and write it to the audit log."""
    if attempt.worker is None:
        return
    emit(session, WorkerOut(attempt.worker, "refused", why=why, attempt_id=attempt.id))
    actor, subject = Administrator("report check"), Subject("worker", attempt.worker)
    after = {
        "attempt": attempt.id,
        "verification": attempt.verification_id,
        "consequence": "the attempt failed and another is made",
    }
    record(session, actor, "report.refuse", subject, reason=why, after=after)


def posted_events(session: Session, attempt: Attempt) -> list[StreamedEvent]:
    """Read an attempt's posted events with seconds since its lease. No check needs ends of runs."""
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
    session: Session, verification: Verification, report: ReplayReport
) -> list[KnownCurve]:
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
    return known + _replayed_curves(session, verification, report)


def _adopted(session: Session, verification: Verification) -> list[Calibration]:
    found = (
        adopted_calibration(session, verification.benchmark_sha256, precision)
        for precision in {training.precision for training in verification.trainings}
    )
    return [each for each in found if each is not None]


def _replayed_curves(
    session: Session, verification: Verification, report: ReplayReport
) -> list[KnownCurve]:
    found: list[KnownCurve] = []
    for verification_id, index in _runs_alike(session, verification, report):
        other = _report_of(session, verification_id)
        run = None if other is None else other.runs[index]
        if run is not None:
            qualities = tuple(item.quality for item in run.evaluations)
            origin = f"run {index} of verification {verification_id}"
            found.append(KnownCurve(origin, run.seed, qualities))
    return found


def _runs_alike(
    session: Session, verification: Verification, report: ReplayReport
) -> list[tuple[str, int]]:
    openings = {opening_of(run) for run in report.runs}
    benchmark = definition(session, verification.benchmark_sha256)
    rows = session.execute(
        select(JobTraining.verification_id, JobTraining.index)
        .join(Verification, Verification.id == JobTraining.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .where(
            JobTraining.opening.in_(openings - {None}),
            BenchmarkDefinition.benchmark_id == benchmark.benchmark_id,
            JobTraining.verification_id != verification.id,
        )
        .order_by(JobTraining.verification_id, JobTraining.index)
    )
    return [(verification_id, index) for verification_id, index in rows]


def _report_of(session: Session, verification_id: str) -> ReplayReport | None:
    stored = session.scalar(select(Verification.report).where(Verification.id == verification_id))
    return None if stored is None else REPORT.validate_python(stored)


def _calibrated_off_clock(
    session: Session, verification: Verification, benchmark: Benchmark, hardware_class: str
) -> Sequence[OffClock]:
    """Read only adopted calibrations, because a benchmark's file holds no ledgers."""
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


router = Routes(tags=["workers"])
LOG_TAIL_CHARACTERS = 4_000
REFUSED: Literal["report_refused"] = "report_refused"
DISTURBED = Failure(
    kind="infrastructure",
    code="host_busy",
    message="other programs had the processor",
    next_step="nothing to do: it is trained once more",
)


class ReportAnswer(Schema):
    """State and outcome of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None


@dataclass(frozen=True)
class Judged:
    """The finding about a report by these `facts`: a `failure` of the attempt, or a `verdict`."""

    facts: tuple[object, ...]
    refused: str | None = None
    failure: Failure | None = None
    verdict: Verdict | None = None


@router.post("/attempts/{attempt_id}/report")
def post_report(services: ServicesDep, leased: LeasedDep, body: ReplayReport) -> ReportAnswer:
    """Report the end of a replay. Sending the same report again changes nothing.

    422: the report contradicts the events before it. The attempt has failed, and a retry is queued.
    """
    refuse_unstorable(body)
    require_a_system(body.system)
    with services.database.read(ORGANISER) as session:
        attempt = owned_attempt(session, leased)
        is_open = attempt.state == "running"
        judged = _judge(session, attempt, body) if is_open else None
    with services.database.write() as session:
        attempt = owned_attempt(session, leased)
        verification = attempt.verification
        if attempt.state not in ("done", "failed"):
            if judged is None or judged.facts != _facts(session, attempt, body):
                judged = _judge(session, attempt, body)
            _store(session, attempt, body, judged)
        answer = ReportAnswer.of(verification, verification_id=verification.id)
        failure = attempt.failure or {}
    if failure.get("code") == REFUSED:
        raise ContentError(f"{failure['message']}. The attempt has failed and is retried.")
    return answer


def _judge(session: Session, attempt: Attempt, report: ReplayReport) -> Judged:
    """Check and judge a report only by reads. Raises an error for an unplanned report."""
    _require_own_name_in(session, attempt, report)
    verification, facts = attempt.verification, _facts(session, attempt, report)
    died = _infrastructure_run(report)
    failure = report.failure or (None if died is None else died.failure)
    if failure is not None:
        return Judged(facts, failure=failure)
    check_report(
        report,
        seeds=verification.seeds,
        stop_at="end" if verification.trainings[0].stop_at == "end" else "target",
        two_clocks=not trains_packages(verification),
    )
    refused = why_refused(session, attempt, report)
    if refused is not None:
        failure = repeated(REFUSED, f"the report was refused: {refused}")
        return Judged(facts, refused, failure)
    if _is_trained_again(attempt, report):
        return Judged(facts, failure=DISTURBED)
    return Judged(facts, verdict=verdict_of(session, verification, report))


def _facts(session: Session, attempt: Attempt, report: ReplayReport) -> tuple[object, ...]:
    """Return the facts behind a judgement that others may have changed since.

    Each post of the worker renews the lease, so `lease_expires_at` changes with its events.
    """
    verification, submission = attempt.verification, attempt.verification.submission
    return (
        attempt.lease_expires_at,
        verification.benchmark_sha256,
        None if submission is None else submission.result,
        [each.id for each in _adopted(session, verification)],
        _runs_alike(session, verification, report),
        is_overtaken(session, verification),
        None if verification.against_id is None else contest_of(session, verification),
    )


def _store(session: Session, attempt: Attempt, report: ReplayReport, judged: Judged) -> None:
    failure = None if judged.failure is None else as_followed(attempt, judged.failure)
    is_right = failure is None or failure is DISTURBED
    slack_seconds = state_of(session, Services).settings.clock_slack_seconds
    move(
        session,
        attempt,
        "fail" if failure else "report",
        failure=asdict(failure) if failure else None,
        clock_slack_seconds=slack_seconds if is_right else None,
        log_tail=_log_tail(report) if failure else None,
    )
    if failure is not None:
        retry_or_give_up(session, attempt, failure)
    else:
        openings = {run.index: opening_of(run) for run in report.runs}
        for training in attempt.verification.trainings:  # To detect copies.
            training.opening = openings.get(training.index)
        end_with_report(session, attempt.verification, report, judged.verdict)
    if attempt.worker is not None:  # Last: a sign-on waits for this row.
        mark_worker(session, attempt.worker, "idle")
        wake_after_commit(session, DispatchWakeup)
    if judged.refused is not None:
        tell_of_refusal(session, attempt, judged.refused)


def _is_trained_again(attempt: Attempt, report: ReplayReport) -> bool:
    """Repeat the first disturbed measurement of a time while attempts are left."""
    others = (each.failure for each in attempt.verification.attempts if each is not attempt)
    return (
        purpose_of(attempt.verification).fills_pool
        and is_disturbed(report)
        and not any(failure and failure["code"] == DISTURBED.code for failure in others)
        and not is_spent(attempt, DISTURBED)
    )


def _require_own_name_in(session: Session, attempt: Attempt, report: ReplayReport) -> None:
    """Check the name, which says the owner, and the class, which says if times are comparable."""
    hardware_class = session.scalar(
        select(WorkerRow.hardware_class).where(WorkerRow.name == attempt.worker)
    )
    told = (("worker", attempt.worker), ("hardware_class", hardware_class))
    for field, known in told:
        found = getattr(report.system, field)
        if known is not None and found != known:
            raise ContentError(
                f"system.{field}: {found[:200]!r}; expected {known!r}, as this worker reported "
                "in its hello."
            )


def _infrastructure_run(report: ReplayReport) -> ReplayRun | None:
    died = (run for run in report.runs if run.failure and run.failure.kind == "infrastructure")
    return next(died, None)


def _log_tail(report: ReplayReport) -> str | None:
    """Replace NULs, which no database stores in a text."""
    failed = _infrastructure_run(report) or (report.runs[-1] if report.runs else None)
    if failed is None or not failed.log_tail:
        return None
    return failed.log_tail[-LOG_TAIL_CHARACTERS:].replace("\0", "\ufffd")
