"""Verifications as the API and the pages show them."""

from datetime import datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from server.benchmarks.schemas import TargetView
from server.models import Attempt, Verification
from server.verifications.publishing import decision_word, published_verification

ENDED = ("done", "failed", "cancelled")


class VerificationCreate(BaseModel):
    """Why a verification is asked for; kept with it."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"reason": "record claim"}]},
    )

    reason: str | None = Field(default=None, max_length=2000)


class FailureView(BaseModel):
    """Why an attempt ended without a report that could be judged."""

    kind: str
    code: str
    message: str
    next_step: str


class AttemptView(BaseModel):
    """One try on one worker."""

    id: str
    number: int
    state: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    failure: FailureView | None


class ControlPointView(BaseModel):
    """The reference band at one evaluation."""

    index: int
    mean: float
    lower: float
    upper: float


class ReasonView(BaseModel):
    """One finding of the verdict, what it does to the outcome, and the numbers behind it."""

    code: str
    weight: str
    message: str
    numbers: dict[str, float]


class DecisionView(BaseModel):
    """Whether a verdict is published, kept back, or pending: waits for an organiser's decision."""

    decision: Literal["publish", "keep", "pending"]
    reason: str | None
    decided_at: datetime | None


class VerificationView(BaseModel):
    """A verification: sealed plan, attempts, verdict. Seeds and nonce show once it has ended."""

    id: str
    submission_id: str
    benchmark: str
    state: str
    waiting_for: str | None
    seal: str
    nonce: str | None
    runs_planned: int
    seeds: list[int] | None
    target: TargetView
    control_points: list[ControlPointView]
    attempts: list[AttemptView]
    outcome: str | None
    reasons: list[ReasonView]
    report: dict[str, Any] | None
    reason: str | None
    created_at: datetime
    ended_at: datetime | None
    decision: DecisionView | None
    published: bool


class VerificationList(BaseModel):
    """Verifications, newest first, without their reports."""

    verifications: list[VerificationView]


def attempt_view(attempt: Attempt) -> AttemptView:
    """A stored attempt."""
    return AttemptView(
        id=attempt.id,
        number=attempt.number,
        state=attempt.state,
        worker=attempt.worker,
        started_at=attempt.started_at,
        ended_at=attempt.ended_at,
        failure=FailureView(**attempt.failure) if attempt.failure is not None else None,
    )


def verification_view(
    verification: Verification,
    *,
    target: TargetView,
    waiting_for: str | None,
    with_report: bool = True,
) -> VerificationView:
    """A stored verification. What was drawn stays hidden until the end."""
    ended = verification.state in ENDED
    return VerificationView(
        id=verification.id,
        submission_id=verification.submission_id,
        benchmark=verification.submission.benchmark_id,
        state=verification.state,
        waiting_for=waiting_for,
        seal=verification.seal,
        nonce=verification.nonce if ended else None,
        runs_planned=len(verification.seeds),
        seeds=verification.seeds if ended else None,
        target=target,
        control_points=[ControlPointView(**point) for point in verification.control_points],
        attempts=[attempt_view(attempt) for attempt in verification.attempts],
        outcome=verification.outcome,
        reasons=[ReasonView(**reason) for reason in verification.reasons],
        report=verification.report if with_report else None,
        reason=verification.reason,
        created_at=verification.created_at,
        ended_at=verification.ended_at,
        decision=decision_view(verification),
        published=published_verification(verification.submission) is verification,
    )


def decision_view(verification: Verification) -> DecisionView | None:
    """What was decided about a verdict; None for a verification without one."""
    word, decided = decision_word(verification), verification.decision
    if word is None:
        return None
    return DecisionView(
        decision=word,
        reason=decided.reason if decided is not None else None,
        decided_at=decided.decided_at if decided is not None else None,
    )
