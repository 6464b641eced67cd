"""Views of verifications: plan, attempts, verdict, and the figures of a report."""

from dataclasses import asdict
from typing import Any

from finishline.api.duels import DuelView
from finishline.api.verifications import (
    AttemptView,
    BackendView,
    DecisionView,
    FailureView,
    LastEvaluationView,
    ReasonView,
    UtilisationView,
    VerificationView,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import SystemPrice
from finishline.rules.scoring.latency import FEWEST_SAMPLES, latency_result, why_absent
from finishline.rules.scoring.measurements import Figure
from finishline.rules.scoring.utilisation import run_utilisations
from finishline.rules.verification.duel import Duel, interleave
from finishline.rules.verification.judge_convergence import evaluation_at_target
from finishline.rules.verification.messages import (
    BackendLatency,
    ControlPoint,
    ReplayRun,
)
from finishline.rules.verification.purposes import PURPOSES
from server.base.models import Attempt, Verification
from server.base.models.visibility import is_hidden, sees_runs
from server.base.standing import ENDED, decision_word, is_published, report_of
from server.base.viewer import ANYBODY, Viewer
from server.benchmarks.schemas import target_view

Figures = dict[str, Figure]


def attempt_view(attempt: Attempt) -> AttemptView:
    """View of a stored attempt."""
    failure = attempt.failure
    # Events show a running attempt's evaluations; repeating them here would double each.
    last = attempt.last_evaluation if failure is not None else None
    if last is not None and last["run"] < hidden_runs(attempt.verification, ANYBODY):
        last = None
    return AttemptView(
        id=attempt.id if attempt.state != "queued" else None,
        number=attempt.number,
        state=attempt.state,
        worker=attempt.worker,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        failure=FailureView(**failure) if failure is not None else None,
        refunded=failure is not None and failure["kind"] == "infrastructure",
        last_evaluation=LastEvaluationView(**last) if last is not None else None,
        log_tail=attempt.log_tail,
    )


def verification_view(
    verification: Verification,
    *,
    benchmark: Benchmark,
    waiting_for: str | None,
    duel: Duel | None = None,
    figures: Figures | None = None,
    price: SystemPrice | None = None,
    with_report: bool = True,
    with_band: bool = True,
    owners: int = 0,
) -> VerificationView:
    """View of a verification. Its draw stays hidden until it has ended and its claim is shown."""
    ended = verification.state in ENDED
    claim = verification.submission
    # Some of its seeds may be the claim's own.
    opened = ended and not (claim is not None and is_hidden(claim))
    band = verification.control_points if with_band else []
    is_cancelled = verification.state == "cancelled"
    return VerificationView(
        id=verification.id,
        kind=verification.kind,
        submission_id=verification.submission_id,
        checks_id=verification.checks_id,
        owners=owners,
        witnessed=verification.witness_token_id is not None,
        against_id=verification.against_id,
        calibration_id=verification.calibration_id,
        benchmark=benchmark.benchmark_id,
        state=verification.state,
        waiting_for=waiting_for,
        seal=verification.seal,
        nonce=verification.nonce if ended else None,
        runs_planned=verification.runs,
        seeds=verification.seeds if opened else None,
        own_runs=verification.own_runs,
        hyperparameters=_settings(verification) if ended else None,
        target=target_view(benchmark),
        control_points=[ControlPoint(**point) for point in band],
        attempts=[attempt_view(attempt) for attempt in verification.attempts],
        outcome=verification.outcome,
        reasons=[ReasonView(**reason) for reason in verification.reasons],
        duel=duel_view(verification, duel) if verification.against_id is not None else None,
        report=None if is_cancelled or not (with_report and ended) else verification.report,
        backends=backend_views(verification, benchmark, price) if with_report and ended else [],
        utilisation=utilisation_views(verification, figures or {}) if with_report and ended else [],
        reason=verification.reason,
        created_at=verification.created_at,
        ended_at=verification.ended_at,
        cancelled_at=verification.cancelled_at,
        decision=decision_view(verification),
        published=is_published(verification),
    )


def _settings(verification: Verification) -> list[dict[str, Any]] | None:
    """Settings of each run, if the runs of a verification may differ."""
    if not PURPOSES[verification.kind].seals_settings:
        return None
    return [training.settings for training in verification.trainings]


def decision_view(verification: Verification) -> DecisionView | None:
    """Decision about a verdict; None for a verification without one."""
    word, decided = decision_word(verification, verification.submission), verification.decision
    if word is None:
        return None
    return DecisionView(
        decision=word,
        reason=decided.reason if decided is not None else None,
        decided_at=decided.decided_at if decided is not None else None,
    )


def duel_view(verification: Verification, duel: Duel | None) -> DuelView:
    """View of a stored duel, with its result if that is given."""
    return DuelView(
        challenger=str(verification.submission_id),
        holder=str(verification.against_id),
        order=list(interleave(verification.runs // 2)),
        pairs=duel.pairs if duel else [],
        time=duel.time if duel else None,
        epochs=duel.epochs if duel else None,
        pace=duel.pace if duel else None,
        test=duel.test if duel else None,
        p_value=duel.p_value if duel else None,
        pairs_needed=duel.pairs_needed if duel else None,
    )


def backend_views(
    verification: Verification, benchmark: Benchmark, price: SystemPrice | None
) -> list[BackendView]:
    """Backends of a measured latency; empty for other kinds and before the end."""
    report = report_of(verification)
    ordered = any("latency" in each.measure for each in verification.trainings)
    if report is None or benchmark.latency is None or not ordered:
        return []
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
    result = latency_result(
        item.milliseconds,
        warmup_items=warmup_items,
        quality=reached.quality,
        target=benchmark.target,
        price_usd_per_hour=None if price is None else price.usd_per_hour,
    )
    figures = asdict(result.figures)
    missing = {f"p{p}": why_absent(result.figures.samples, p) for p in FEWEST_SAMPLES}
    return BackendView(
        backend=item.backend,
        **figures,
        passes=item.passes,
        missing={name: why for name, why in missing.items() if why is not None},
        cost_usd_per_10000=result.cost_usd_per_10000,
        quality=result.quality,
        eligible=result.eligible,
        largest_difference=item.largest_difference,
    )


def utilisation_views(verification: Verification, figures: Figures) -> list[UtilisationView]:
    """Utilisation of each reported run; empty before the report."""
    report = report_of(verification)
    if report is None:
        return []
    return [UtilisationView(**asdict(found)) for found in run_utilisations(report, figures)]


def hidden_runs(verification: Verification, viewer: Viewer) -> int:
    """Number of a verification's first runs whose curves are hidden from a viewer."""
    claim = verification.submission
    return 0 if claim is None or sees_runs(viewer, claim) else verification.own_runs


def without_quality(event: dict[str, Any], hidden: int) -> dict[str, Any]:
    """Remove the quality from an event of one of the first `hidden` runs."""
    return event | {"quality": None} if event["run"] < hidden and "quality" in event else event
