"""Views of verifications: plan, attempts and verdict, in full, in lists, or in one line."""

from datetime import datetime
from typing import Annotated, Any, Literal

from fastapi import Query
from pydantic import BaseModel
from sqlalchemy import Select, and_, func, select
from sqlalchemy.orm import Session, object_session

from finishline.api.verifications import (
    AttemptView,
    DecisionView,
    FactorView,
    HeadToHeadView,
    ReasonView,
    VerificationList,
    VerificationView,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.entry import ABLATION, factor_effects
from finishline.rules.verification.head_to_head import SIDES, judge_head_to_head
from finishline.rules.verification.job import in_turn
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import PURPOSES
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    Attempt,
    BenchmarkDefinition,
    Submission,
    User,
    Verification,
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
from server.people.declared import Routes
from server.verifications.figures import backend_views, roofs_of_worker, run_utilisations
from server.verifications.head_to_heads import judged_head_to_head, threshold_of
from server.verifications.jobs import trainings_of
from server.verifications.queue import Waits
from web.names import hardware_words

router = Routes(tags=["verifications"])
State = Literal["queued", "running", "checking", "done", "failed", "cancelled"]
Limit = Annotated[int, Query(ge=1, le=100)]


def attempt_view(attempt: Attempt) -> AttemptView:
    """View of a stored attempt."""
    failure = attempt.failure
    # Events show a running attempt's evaluations; repeating them here would double each.
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
    """View of a verification, with its band, and its report once it has ended."""
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
    """View of a verification in a list: without its band and report. `waits` saves statements."""
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
    """Report of a job, without what the runs wrote where that would tell a source."""
    report = verification.report
    if report is None or _shows_output(verification):
        return report
    return report | {"runs": [run | {"log_tail": ""} for run in report["runs"]]}


def decision_view(verification: Verification) -> DecisionView | None:
    """Decision about a verdict; None for a verification without one."""
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
    """Effects of a code submission's factors; empty for another job and before a report."""
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
    """Verifications, newest first, without their bands and reports."""
    latest = select(Verification).order_by(Verification.created_at.desc()).limit(limit)
    if state is not None:
        latest = latest.where(Verification.state == state)
    found, waits = session.scalars(latest.options(*LISTED)), Waits(session)
    return VerificationList(verifications=[line(session, each, waits) for each in found])


@router.read("/verifications/{verification_id}")
def get_verification(session: Session, verification_id: str) -> VerificationView:
    """Read a verification: its attempts, its verdict with every reason, its report."""
    return view(session, find_verification(session, verification_id))


# Weight of the reasons that decide an outcome; other outcomes are left open by some reason.
DECIDING_WEIGHTS = {
    "verified": "supports",
    "rejected": "rejects",
    "challenger_faster": "supports",
}


class VerificationLine(BaseModel):
    """A verification in one line, with the latest evaluation or the first reason that decides.

    `model`, `hardware` and `submitter` are the submission's, in a head-to-head the challenger's. A
    calibration has none. `run` counts from 0.
    """

    id: str
    kind: str
    benchmark: str
    submission_id: str | None
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
    """Latest verdicts about submissions, newest first; of one benchmark or of all."""
    query = _lines().where(
        Verification.outcome.is_not(None), Verification.submission_id.is_not(None), ranks()
    )
    if benchmark_id is not None:
        query = query.where(BenchmarkDefinition.benchmark_id == benchmark_id)
    newest_first = query.order_by(Verification.ended_at.desc(), Verification.id).limit(limit)
    return [_line_of(row) for row in session.execute(newest_first)]


def live_verifications(session: Session, *, limit: int) -> tuple[list[VerificationLine], int]:
    """Running and then queued verifications, in the order of their requests, and their number."""
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
