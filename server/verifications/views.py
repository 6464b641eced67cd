"""Show verifications: plan, attempts and verdict, in full, in lists, or in one line."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel
from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session, object_session

from finishline.api.verifications import (
    AttemptView,
    BackendView,
    DecisionView,
    FactorView,
    HeadToHeadView,
    ReasonView,
    VerificationList,
    VerificationView,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import inference_cost_usd_per_10000
from finishline.rules.measurements import Figure
from finishline.rules.scoring.latency import FEWEST_SAMPLES, LatencyFigures, latency_figures
from finishline.rules.verification.entry import ABLATION, factor_effects
from finishline.rules.verification.head_to_head import SIDES, judge_head_to_head
from finishline.rules.verification.job import in_turn
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.latency import fastest_backend, why_unmeasured
from finishline.rules.verification.messages import BackendLatency, ReplayReport, ReplayRun
from finishline.rules.verification.purposes import PURPOSES
from finishline.rules.verification.utilisation import (
    RunUtilisation,
    best_roof_tflops,
    roofline,
    samples_per_second,
)
from server.base.database import utc_now
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    Attempt,
    BenchmarkDefinition,
    Submission,
    User,
    Verification,
    WorkerProbeRow,
)
from server.base.standing import (
    ENDED,
    LISTED,
    OPEN,
    decision_word,
    find_verification,
    is_published,
    report_of,
)
from server.base.visibility import ORGANISER, ranks, sees_source, viewer_of
from server.benchmarks.definitions import definition
from server.benchmarks.prices import BookCosts, SystemPrice
from server.people.declared import Routes
from server.verifications.head_to_heads import judged_head_to_head, threshold_of
from server.verifications.jobs import trainings_of
from server.verifications.queue import Waits
from web.names import hardware_words

router = Routes(tags=["verifications"])
State = Literal["queued", "running", "checking", "done", "failed", "cancelled"]
Limit = Annotated[int, Query(ge=1, le=100)]


def attempt_view(attempt: Attempt) -> AttemptView:
    """Build the view of an attempt."""
    failure = attempt.failure
    # Events show a running attempt's evaluations. Repeating them here would double each.
    last = attempt.last_evaluation if failure is not None else None
    shows_output = _shows_output(attempt.verification)
    return AttemptView.of(
        attempt,
        id=attempt.id if attempt.state != "queued" else None,
        refunded=failure is not None and failure["kind"] == "infrastructure",
        last_evaluation=last,
        log_tail=attempt.log_tail if shows_output else None,
    )


def view(session: Session, verification: Verification) -> VerificationView:
    """Build the view of a verification, with its band, and its report once it has ended."""
    shown, band = line(session, verification), verification.control_points
    report = report_of(verification) if verification.state in ENDED else None
    if report is None:
        return VerificationView.of(shown, control_points=band)
    benchmark = definition(session, verification.benchmark_sha256)
    return VerificationView.of(
        shown,
        control_points=band,
        head_to_head=_head_to_head_view(session, verification, report),
        factors=factor_views(verification, benchmark, report),
        report=None if verification.state == "cancelled" else shown_report(verification),
        backends=backend_views(session, verification, benchmark, report),
        utilisation=run_utilisations(
            report, roofs_of_worker(session, verification, report.system.worker)
        ),
    )


def line(
    session: Session, verification: Verification, waits: Waits | None = None
) -> VerificationView:
    """Build a verification's short view for a list. `waits` saves statements."""
    benchmark = definition(session, verification.benchmark_sha256)
    ended = verification.state in ENDED
    shows = ended and PURPOSES[verification.kind].track != "evidence"
    return VerificationView.of(
        verification,
        benchmark=benchmark.benchmark_id,
        waiting_for=(waits or Waits(session)).reason(verification),
        nonce=verification.nonce if ended else None,
        runs_planned=verification.runs,
        seeds=verification.seeds if ended else None,
        control_runs=sorted(verification.control_runs),
        repeat_runs=sorted(verification.repeat_runs),
        hyperparameters=[each.settings for each in verification.trainings] if shows else None,
        target=benchmark.target,
        control_points=[],
        attempts=[attempt_view(attempt) for attempt in verification.attempts],
        head_to_head=_head_to_head_view(session, verification, None),
        report=None,
        backends=[],
        utilisation=[],
        decision=decision_view(verification),
        published=is_published(verification),
    )


def _shows_output(verification: Verification) -> bool:
    session = object_session(verification)
    viewer = ORGANISER if session is None else viewer_of(session)
    sides = (verification.submission, verification.against)
    return all(side is None or sees_source(viewer, side) for side in sides)


def shown_report(verification: Verification) -> Any:
    """Return a job's report, without the runs' output if it would tell a hidden source."""
    report = verification.report
    if report is None or _shows_output(verification):
        return report
    return report | {"runs": [run | {"log_tail": ""} for run in report["runs"]]}


def decision_view(verification: Verification) -> DecisionView | None:
    """Return the decision about a verdict. None without a verdict."""
    word = decision_word(verification, verification.submission)
    if word is None:
        return None
    return DecisionView.of(verification, decision=word, reason=verification.decision_reason)


def _head_to_head_view(
    session: Session, verification: Verification, report: ReplayReport | None
) -> HeadToHeadView | None:
    if verification.against_id is None:
        return None
    head_to_head = judge_head_to_head(())
    if report is not None:
        head_to_head = judged_head_to_head(session, verification)
    following = verification.continued_by
    return HeadToHeadView.of(
        head_to_head,
        challenger=str(verification.submission_id),
        holder=verification.against_id,
        order=in_turn(SIDES, verification.runs // 2),
        threshold=threshold_of(session, verification),
        continued_by=None if following is None else following.id,
    )


def factor_views(
    verification: Verification, benchmark: Benchmark, report: ReplayReport | None
) -> list[FactorView]:
    """List the effects of a code submission's factors. Empty for other jobs."""
    if verification.kind != ABLATION.name or report is None:
        return []
    effects = factor_effects(benchmark, trainings_of(verification), report)
    return [
        FactorView.of(
            each,
            ratio=each.time.ratio if each.time else None,
            low=each.time.low if each.time else None,
            high=each.time.high if each.time else None,
            pairs=each.time.pairs if each.time else 0,
        )
        for each in effects
    ]


@router.read("/verifications")
def list_verifications(
    session: Session, state: State | None = None, limit: Limit = 20
) -> VerificationList:
    """List verifications, newest first, without their bands and reports."""
    latest = select(Verification).order_by(Verification.created_at.desc()).limit(limit)
    if state is not None:
        latest = latest.where(Verification.state == state)
    found, waits = session.scalars(latest.options(*LISTED)), Waits(session)
    return VerificationList(verifications=[line(session, each, waits) for each in found])


@router.read("/verifications/{verification_id}")
def get_verification(session: Session, verification_id: str) -> VerificationView:
    """Read a verification: its attempts, its verdict with every reason, its report."""
    return view(session, find_verification(session, verification_id))


# Weight of the reasons that decide an outcome. Other outcomes are left open by some reason.
DECIDING_WEIGHTS = {
    "verified": "supports",
    "rejected": "rejects",
    "challenger_faster": "supports",
}


class VerificationLine(BaseModel):
    """A verification in one line. A head-to-head shows its challenger. `run` counts from 0."""

    id: str
    kind: str
    benchmark: str
    submission_id: str | None
    division: str | None
    model: str | None
    hardware: str | None
    submitter: str | None
    display_name: str | None = None
    trained_with: str | None = None
    state: str
    runs_planned: int
    worker: str | None
    run: int | None
    epoch: float | None
    quality: float | None
    created_at: datetime
    outcome: str | None
    reason: ReasonView | None
    ended_at: datetime | None


def latest_verdicts(
    session: Session, *, limit: int, benchmark_id: str | None = None
) -> list[VerificationLine]:
    """List the latest verdicts about submissions of one benchmark or of all, newest first."""
    has_verdict = Verification.outcome.is_not(None), Verification.outcome != "continues"
    query = _lines().where(*has_verdict, Verification.submission_id.is_not(None), ranks())
    if benchmark_id is not None:
        query = query.where(BenchmarkDefinition.benchmark_id == benchmark_id)
    newest_first = query.order_by(Verification.ended_at.desc(), Verification.id).limit(limit)
    return [_line_of(row) for row in session.execute(newest_first)]


def live_verifications(session: Session, *, limit: int) -> tuple[list[VerificationLine], int]:
    """List running and then queued verifications, oldest first, and count them all."""
    is_open = Verification.state.in_(OPEN)
    count = session.scalar(select(func.count()).select_from(Verification).where(is_open))
    if not count:
        return [], 0
    oldest_first = (Verification.state.desc(), Verification.created_at, Verification.id)
    rows = session.execute(_lines().where(is_open).order_by(*oldest_first).limit(limit))
    return [_line_of(row) for row in rows], count


def _lines() -> Select[Any]:
    running = and_(Attempt.verification_id == Verification.id, Attempt.state == "running")
    return (
        select(
            Verification.id,
            Verification.kind,
            BenchmarkDefinition.benchmark_id.label("benchmark"),
            Verification.submission_id,
            Submission.division,
            Submission.model,
            Submission.system,
            Submission.trained_with,
            SUBMITTER,
            DISPLAY_NAME,
            Verification.state,
            Verification.runs.label("runs_planned"),
            Attempt.worker,
            Attempt.last_evaluation,
            Verification.created_at,
            Verification.outcome,
            Verification.reasons,
            Verification.ended_at,
        )
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Attempt, running)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .outerjoin(User, User.id == Submission.user_id)
        .outerjoin(Submission.published)
    )


def _line_of(row: Any) -> VerificationLine:
    weight = DECIDING_WEIGHTS.get(row.outcome, "leaves_open")
    reasons = [ReasonView(**reason) for reason in row.reasons]
    deciding = [reason for reason in reasons if reason.weight == weight]
    last = row.last_evaluation or {}
    return VerificationLine(
        **row._mapping,
        hardware=hardware_words(row.system) if row.system else None,
        reason=next(iter([*deciding, *reasons]), None),
        **{name: last.get(name) for name in ("run", "epoch", "quality")},
    )


def backend_views(
    session: Session, verification: Verification, benchmark: Benchmark, report: ReplayReport
) -> list[BackendView]:
    ordered = any("latency" in each.measure for each in verification.trainings)
    if benchmark.latency is None or not ordered:
        return []
    submission = verification.submission
    price = None if submission is None else BookCosts(session).price(submission)
    return [
        _backend_view(item, run, benchmark, price, warmup_items=benchmark.latency.warmup_items)
        for run in report.runs
        for item in run.latency
    ]


def _backend_view(
    item: BackendLatency,
    run: ReplayRun,
    benchmark: Benchmark,
    price: SystemPrice | None,
    *,
    warmup_items: int,
) -> BackendView:
    reached = evaluation_at_target(benchmark, run)
    if item.absence is not None or reached is None:
        absence = item.absence
        return BackendView(
            backend=item.backend,
            absence=absence.code if absence is not None else None,
            why_absent=absence.message if absence is not None else None,
        )
    figures = latency_figures(item.milliseconds, warmup_items=warmup_items)
    missing = {f"p{p}": why_absent(figures.samples, p) for p in FEWEST_SAMPLES}
    hourly = None if price is None else price.usd_per_hour
    usd = None if hourly is None else figures.mean_ms / 3.6e6 * hourly
    return BackendView.of(
        item,
        **asdict(figures),
        missing={name: why for name, why in missing.items() if why is not None},
        cost_usd_per_10000=inference_cost_usd_per_10000(usd),
        quality=reached.quality,
        eligible=benchmark.target.is_reached(reached.quality),
    )


ROOFS_LOOKED_AT = 5  # A worker that is stopped meanwhile sends a probe without roofs.


def roofs_of_worker(session: Session, verification: Verification, worker: str) -> dict[str, Figure]:
    """Read the roofs that the worker had last measured when it ended. Empty without any."""
    rows = session.scalars(
        select(WorkerProbeRow)
        .where(
            WorkerProbeRow.worker == worker,
            WorkerProbeRow.moment == "start",
            WorkerProbeRow.measured_at <= (verification.ended_at or utc_now()),
        )
        .order_by(WorkerProbeRow.id.desc())
        .limit(ROOFS_LOOKED_AT)
    )
    found = next((row.figures for row in rows if row.figures), {})
    return {name: Figure(**figure) for name, figure in found.items()}


TERA = 1e12


def run_utilisations(
    report: ReplayReport, figures: Mapping[str, Figure]
) -> tuple[RunUtilisation, ...]:
    """Compute the utilisation of every run of a report by its worker's figures."""
    return tuple(_run_utilisation(run, report, figures) for run in report.runs)


def _run_utilisation(
    run: ReplayRun, report: ReplayReport, figures: Mapping[str, Figure]
) -> RunUtilisation:
    rate = samples_per_second(run)
    if rate is None:
        return RunUtilisation(run.index, missing="no evaluation was measured after training")
    if report.work is None or report.work.batch_size < 1:
        missing = "the work of a step was not counted by the worker"
        return RunUtilisation(run.index, rate, missing=missing)
    precision = report.precision.lowest if report.precision is not None else None
    best = best_roof_tflops(figures, precision)
    roof_flops = best * TERA * report.processes if best else None
    if not figures:
        missing = "the worker has no measured roof to compare with"
    elif precision is None:
        missing = "the precision of the training is unknown"
    else:
        missing = f"the worker has no measured roof in {precision}"
    point = roofline(
        report.work,
        seconds_per_step=report.work.batch_size / rate,
        roof_flops=roof_flops,
        bytes_per_second=None,
    )
    return RunUtilisation(
        run=run.index,
        samples_per_second=rate,
        achieved_flops=point.achieved_flops,
        utilisation=point.utilisation,
        roof_flops=roof_flops,
        precision=precision,
        intensity=point.intensity,
        missing=None if roof_flops else missing,
    )


def why_absent(samples: int, percent: int) -> str | None:
    """Say why a percentile has too few samples. None if it has enough."""
    floor = FEWEST_SAMPLES[percent]
    return f"not enough samples: {samples} of {floor}" if samples < floor else None


def energy_to_target_joules(joules_of_runs: Sequence[float | None]) -> float | None:
    """Return the mean joules of the runs. None unless all were measured."""
    measured = [joules for joules in joules_of_runs if joules is not None]
    if not measured or len(measured) < len(joules_of_runs):
        return None
    return sum(measured) / len(measured)


def measured_figures(benchmark: Benchmark, report: ReplayReport) -> LatencyFigures | None:
    """Return the figures of the fastest backend, if its model meets the target."""
    if benchmark.latency is None or why_unmeasured(benchmark, report) is not None:
        return None
    fastest = fastest_backend(report.runs[0], benchmark.latency)
    return fastest.figures if fastest is not None else None
