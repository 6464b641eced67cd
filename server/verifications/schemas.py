"""API and page models of verifications."""

from datetime import datetime
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.prices import SystemPrice
from finishline.rules.verification.duel import Duel
from finishline.rules.verification.purposes import PURPOSES
from finishline.rules.verification.replay_plan import OWN_SEEDS
from server.base.models import Attempt, Verification
from server.base.models.visibility import is_hidden
from server.base.standing import decision_word, is_published
from server.base.viewer import ANYBODY
from server.benchmarks.schemas import TargetView, target_view
from server.verifications.duel_schemas import DuelView, duel_view
from server.verifications.figure_views import (
    BackendView,
    Figures,
    UtilisationView,
    backend_views,
    hidden_runs,
    utilisation_views,
)

ENDED = ("done", "failed", "cancelled")


def _may_be_asked_for(name: str) -> str:
    if name not in ASKED_FOR:
        raise ValueError(f"expected {' or '.join(ASKED_FOR)}")
    return name


# The purposes that somebody asks for about one submission.
ASKED_FOR = tuple(name for name, purpose in PURPOSES.items() if purpose.claims == 1)
AskedFor = Annotated[
    str, AfterValidator(_may_be_asked_for), Field(json_schema_extra={"enum": list(ASKED_FOR)})
]


class VerificationCreate(BaseModel):
    """Kind of verification to request, and the reason; both are stored.

    A "replay" trains the reference as the claim says; a "latency" times its trained model. Before
    its sealed runs a replay trains `own_seeds` of the seeds in the claim's logs.
    """

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"kind": "replay", "reason": "record claim"}]},
    )

    kind: AskedFor = "replay"
    reason: str | None = Field(default=None, max_length=2000)
    own_seeds: int = Field(default=OWN_SEEDS, ge=1, le=OWN_SEEDS)


class FailureView(BaseModel):
    """Failure: why an attempt ended without a report that could be judged."""

    kind: str
    code: str
    message: str
    next_step: str


class LastEvaluationView(BaseModel):
    """The latest quality an attempt posted, and in which of its runs (from 0)."""

    run: int
    epoch: float | None
    samples: int | None
    seconds: float | None
    quality: float | None


class AttemptView(BaseModel):
    """An attempt on one worker. `refunded` is whether it failed without charge to a quota.

    `id` is null while it waits: only the worker that was drawn for it knows it. A failure leaves
    the latest evaluation and the end of the log of the run that failed; if the worker could not
    send the log, the last events received.
    """

    id: str | None
    number: int
    state: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    failure: FailureView | None
    refunded: bool
    last_evaluation: LastEvaluationView | None
    log_tail: str | None


class ControlPointView(BaseModel):
    """The reference band at one evaluation."""

    index: int
    mean: float
    lower: float
    upper: float


class ReasonView(BaseModel):
    """A finding of the verdict, its effect on the outcome, and the numbers behind it."""

    code: str
    weight: str
    message: str
    numbers: dict[str, float]


class WitnessCreate(BaseModel):
    """Reason for an organisers' witness of a run on the submitter's machine."""

    model_config = ConfigDict(extra="forbid")

    reason: str | None = Field(default=None, min_length=1, max_length=2000)


class WitnessToken(BaseModel):
    """A token for a worker that serves one submission: the only time its secret is shown."""

    submission_id: str
    verification_id: str
    token: str
    token_id: int
    expires_at: datetime | None


class DecisionView(BaseModel):
    """Decision about a verdict: published, kept back, or pending for an organiser."""

    decision: Literal["publish", "keep", "pending"]
    reason: str | None
    decided_at: datetime | None


class VerificationView(BaseModel):
    """A verification: sealed plan, attempts, verdict. Seeds and nonce are shown after its end.

    One that is `witnessed` is trained on the submitter's own machine and measures nothing.

    `kind` is "replay" for the check of a submission, "calibration" for a measurement of the
    reference, "duel" for a submission `against` another, "latency" for the time its model takes,
    with the measured `backends`. `utilisation` is of each run of the report, by the roofs that its
    worker measured. `hyperparameters` are those of each run if the runs differ; they are sealed as
    seeds are. The first `own_runs` of the seeds are the claim's own. `duel` is None for every
    other kind. A "cross_check" trains a run of `checks_id` again; `owners` counts the owners of
    workers that agree, 0 before a report. A replay cancelled while it runs, at `cancelled_at`,
    finishes its runs first.
    """

    id: str
    kind: str
    submission_id: str | None
    checks_id: str | None
    owners: int
    witnessed: bool
    against_id: str | None
    calibration_id: str | None
    benchmark: str
    state: str
    waiting_for: str | None
    seal: str
    nonce: str | None
    runs_planned: int
    seeds: list[int] | None
    own_runs: int
    hyperparameters: list[dict[str, float]] | None
    target: TargetView
    control_points: list[ControlPointView]
    attempts: list[AttemptView]
    outcome: str | None
    reasons: list[ReasonView]
    duel: DuelView | None
    report: dict[str, Any] | None
    backends: list[BackendView]
    utilisation: list[UtilisationView]
    reason: str | None
    created_at: datetime
    ended_at: datetime | None
    cancelled_at: datetime | None
    decision: DecisionView | None
    published: bool


class VerificationList(BaseModel):
    """Verifications, newest first, without their reports."""

    verifications: list[VerificationView]


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
        control_points=[ControlPointView(**point) for point in band],
        attempts=[attempt_view(attempt) for attempt in verification.attempts],
        outcome=verification.outcome,
        reasons=[ReasonView(**reason) for reason in verification.reasons],
        duel=duel_view(verification, duel) if verification.kind == "duel" else None,
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
