"""Submissions as the API and the pages show them."""

from collections.abc import Mapping
from datetime import date, datetime
from typing import Any, Literal, cast

from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session, object_session

from finishline.rules.ranking.evidence import Check, Evidence
from finishline.rules.submissions.claim import TrainedWith
from server.benchmarks.prices import BookCosts
from server.models import RunRow, Submission
from server.models.visibility import is_hidden
from server.standing import (
    decision_word,
    pending_verifications,
    published_verification,
)
from server.submissions.evidence_schemas import EvidenceFields, SourceView, TuningView
from server.submissions.result_views import InferenceResultView, ResultView, result_view
from server.verifications.judged import JudgedOnView
from server.viewer import seeing_figures

RUN_FIGURES = (
    "index",
    "file",
    "reached",
    "tta_seconds",
    "epochs_to_target",
    "best_quality",
    "batch_size",
    "convergence",
)
EXAMPLE_CLAIM = {
    "benchmark": "digits",
    "division": "closed",
    "model": "digits reference",
    "framework": "torch 2.13.0",
    "system": {
        "name": "my laptop",
        "hardware_class": "cpu-amd-ryzen-7-7840u-16-cores",
        "processor": "AMD Ryzen 7 7840U",
        "processor_count": 16,
        "memory_gib": 32,
    },
    "hyperparameters": {"batch_size": 64},
    "trained_with": "reference",
    "tuning": {"trials": 40, "seconds": 3600},
    "runs": ["run_0.log", "run_1.log", "run_2.log"],
}


class CloudView(BaseModel):
    """What was rented: `count` instances, by the names a price book lists."""

    provider: str
    instance: str
    region: str
    count: int


class SystemView(BaseModel):
    """The hardware a submission was made on, as its submitter states it.

    A price that is no `on_demand` one never ranks.
    """

    name: str
    hardware_class: str
    processor: str
    processor_count: int | None
    memory_gib: float | None
    accelerator: str | None
    accelerator_count: int
    price_usd_per_hour: float | None
    price_source: str | None
    pricing: Literal["on_demand", "spot"] = "on_demand"
    cloud: CloudView | None = None


class RunView(BaseModel):
    """One run of a submission; `settings` are the hyperparameters that its log states."""

    index: int
    file: str
    seed: int | None
    reached: bool
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None
    batch_size: int | None
    convergence: float | None
    log_sha256: str | None
    ledger: dict[str, float] | None
    settings: dict[str, float] | None = None


class VerificationSummary(BaseModel):
    """A verification of a submission, or a duel it asked for, in one line."""

    id: str
    kind: str
    state: str
    outcome: str | None
    created_at: datetime
    ended_at: datetime | None
    decision: Literal["publish", "keep", "pending"] | None
    published: bool


class WithdrawalView(BaseModel):
    """When a submission was withdrawn, by whom and why."""

    at: datetime
    by: str
    reason: str


class SubmissionView(EvidenceFields):
    """A submission: the claim, the result, the runs and the verifications.

    `kind` is "train", or "inference" for one without runs, whose result is another.
    `measured_latency_ms` is a worker's median for one item on the same hardware class. `precision`
    is the narrowest floating type the training touches as claimed, `precision_measured` as
    replayed. `trained_with` says whether the benchmark's reference trained or code of the
    submitter's own; `tuning` is null where its submitter does not state it.
    `ticket` is the ticket that its seeds came with, null of a claim without one.

    `judged_on` tells of a status that was reached on other figures than are here: its runs were
    scored again since. It is told of a single submission, and null in a list.

    Until `hidden_until`, or its first verdict, its seeds, curves and logs are shown to its owner
    and to organisers alone; null once they are everybody's.

    Its status rests on `published_verification`; `pending_decisions` are verdicts of reruns that
    wait for an organiser. One with a `withdrawal` ranks nowhere and stays as it was. One that is
    `under_embargo` is shown to its submitter, the members of their organisation and organisers.
    """

    id: str
    kind: str
    precision: str | None
    precision_measured: str | None
    ticket: str | None
    benchmark: str
    benchmark_version: str
    benchmark_sha256: str
    division: str
    submitter: str
    model: str
    framework: str
    system: SystemView
    hyperparameters: dict[str, float]
    code_url: str | None
    notes: str | None
    submitted_at: datetime
    submitted_on: date | None
    archive: bool
    status: str
    measured_latency_ms: float | None
    result: ResultView | InferenceResultView
    runs: list[RunView]
    verifications: list[VerificationSummary]
    published_verification: str | None
    pending_decisions: list[str]
    hidden_until: datetime | None = None
    under_embargo: bool = False
    withdrawal: WithdrawalView | None = None
    judged_on: JudgedOnView | None = None
    rank: int | None = None


class SubmissionList(BaseModel):
    """A page of submissions, newest first; `next_cursor` asks for the next page."""

    submissions: list[SubmissionView]
    next_cursor: str | None


class RunList(BaseModel):
    """The runs of a submission in order."""

    runs: list[RunView]


class EvaluationView(BaseModel):
    """One quality measurement; `seconds` on the clock of the log."""

    epoch: float | None
    seconds: float
    quality: float
    samples: int | None


class CurveView(BaseModel):
    """Every evaluation of a run."""

    index: int
    file: str
    evaluations: list[EvaluationView]


def run_view(run: RunRow) -> RunView:
    """A stored run."""
    return RunView(
        index=run.index,
        file=run.file,
        seed=run.seed,
        reached=run.reached,
        tta_seconds=run.tta_seconds,
        epochs_to_target=run.epochs_to_target,
        best_quality=run.best_quality,
        batch_size=run.batch_size,
        convergence=run.convergence,
        log_sha256=run.log_sha256,
        ledger=run.ledger,
        settings=run.settings,
    )


def run_view_of(row: Mapping[str, Any]) -> RunView:
    """A run by the values that are stored of it."""
    return RunView(**{name: row[name] for name in RunView.model_fields})


def curve_view(run: RunRow) -> CurveView:
    """A stored run's evaluations."""
    return CurveView(
        index=run.index,
        file=run.file,
        evaluations=[
            EvaluationView(epoch=epoch, seconds=seconds, quality=quality, samples=samples)
            for epoch, seconds, quality, samples, *_ledger in run.curve
        ],
    )


def submission_view(
    submission: Submission,
    *,
    benchmark_version: str,
    costs: BookCosts,
    judged_on: JudgedOnView | None = None,
    runs: list[RunView] | None = None,
) -> SubmissionView:
    """A stored submission with its runs and verifications, and what it costs by the book.

    It is asked for its runs unless they are given.
    """
    published = published_verification(submission)
    return SubmissionView(
        id=submission.id,
        kind=submission.kind,
        precision=submission.precision,
        precision_measured=submission.precision_measured,
        trained_with=cast(TrainedWith, submission.trained_with),
        tuning=TuningView(**submission.tuning) if submission.tuning is not None else None,
        ticket=submission.ticket_id,
        benchmark=submission.benchmark_id,
        benchmark_version=benchmark_version,
        benchmark_sha256=submission.benchmark_sha256,
        division=submission.division,
        submitter=submission.submitter,
        model=submission.model,
        framework=submission.framework,
        system=SystemView(**submission.system),
        hyperparameters=submission.hyperparameters,
        code_url=submission.code_url,
        notes=submission.notes,
        submitted_at=submission.submitted_at,
        submitted_on=submission.published_on,
        archive=submission.published is not None,
        status=submission.status,
        measured_latency_ms=submission.measured_latency_ms,
        result=result_view(submission, costs.price(submission)),
        runs=shown_runs(submission) if runs is None else runs,
        hidden_until=submission.revealed_at if is_hidden(submission) else None,
        verifications=[
            VerificationSummary(
                id=verification.id,
                kind=verification.kind,
                state=verification.state,
                outcome=verification.outcome,
                created_at=verification.created_at,
                ended_at=verification.ended_at,
                decision=decision_word(verification, submission),
                published=verification is published,
            )
            for verification in submission.verifications
        ],
        published_verification=published.id if published is not None else None,
        pending_decisions=[item.id for item in pending_verifications(submission)],
        under_embargo=submission.embargoed,
        withdrawal=withdrawal_view(submission),
        judged_on=judged_on,
        evidence=cast(Evidence, submission.evidence),
        check=cast(Check | None, submission.check_word),
        witnessed_by=submission.witnessed_by,
        claimed_seconds=submission.tta_seconds,
        pool_id=submission.pool_id,
        source=_source_view(submission),
    )


def _source_view(submission: Submission) -> SourceView | None:
    published = submission.published
    return None if published is None or published.source is None else SourceView(**published.source)


def shown_runs(submission: Submission) -> list[RunView]:
    """Return the runs as their viewer may see them: of hidden ones the figures alone."""
    session = object_session(submission)
    if submission.runs or session is None or not is_hidden(submission):
        return [run_view(run) for run in submission.runs]
    return run_figure_views(session, submission.id)


def run_figure_views(session: Session, submission_id: str) -> list[RunView]:
    """Return the figures of a claim's runs without what is hidden until its first verdict."""
    figures = [getattr(RunRow, name) for name in RUN_FIGURES]
    statement = select(*figures).where(RunRow.submission_id == submission_id).order_by(RunRow.index)
    with seeing_figures(session):
        rows = session.execute(statement).all()
    return [RunView(seed=None, log_sha256=None, ledger=None, **row._mapping) for row in rows]


def withdrawal_view(submission: Submission) -> WithdrawalView | None:
    """What is told of a withdrawal; None of a submission that was not withdrawn."""
    if submission.withdrawn_at is None:
        return None
    return WithdrawalView(
        at=submission.withdrawn_at,
        by=submission.withdrawn_by or "",
        reason=submission.withdrawn_because or "",
    )
