"""Verifications: plan, attempts, verdict."""

from datetime import datetime
from typing import Any

from pydantic import Field

from finishline.client.views.benchmarks import Target
from finishline.client.views.duels import Duel
from finishline.client.views.view import View


class ControlPoint(View):
    """The reference band at one evaluation."""

    index: int
    mean: float
    lower: float
    upper: float


class Failure(View):
    """Reason why an attempt ended without a report that could be judged."""

    kind: str
    code: str
    message: str
    next_step: str


class LastEvaluation(View):
    """The latest quality an attempt posted, and in which of its runs (from 0)."""

    run: int
    epoch: float | None
    samples: int | None
    seconds: float | None
    quality: float | None


class Attempt(View):
    """One try on one worker. `id` is None while it waits."""

    id: str | None
    number: int
    state: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    failure: Failure | None
    refunded: bool
    last_evaluation: LastEvaluation | None
    log_tail: str | None


class Reason(View):
    """One finding of the verdict, its effect on the outcome, and the numbers behind it."""

    code: str
    weight: str
    message: str
    numbers: dict[str, float]


class Backend(View):
    """Latency of a runtime for one item, in milliseconds."""

    backend: str
    samples: int = 0
    passes: float | None = None
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    missing: dict[str, str] = Field(default_factory=dict)
    items_per_second: float | None = None
    drift_percent: float | None = None
    cost_usd_per_10000: float | None = None
    quality: float | None = None
    eligible: bool = False
    largest_difference: float | None = None
    absence: str | None = None
    why_absent: str | None = None


class Utilisation(View):
    """Share of its worker's roof that a run reached."""

    run: int
    samples_per_second: float | None
    achieved_flops: float | None
    utilisation: float | None
    roof_flops: float | None
    precision: str | None
    intensity: float | None
    missing: str | None


class Decision(View):
    """Whether a verdict is published, kept back, or pending."""

    decision: str
    reason: str | None
    decided_at: datetime | None


class Verification(View):
    """A verification: sealed plan, attempts, verdict. `outcome` is None until the verdict."""

    id: str
    kind: str
    submission_id: str | None
    checks_id: str | None
    owners: int
    witnessed: bool = False
    against_id: str | None
    calibration_id: str | None
    benchmark: str
    state: str
    waiting_for: str | None
    seal: str
    nonce: str | None
    runs_planned: int
    own_runs: int = 0
    seeds: tuple[int, ...] | None
    hyperparameters: tuple[dict[str, float], ...] | None
    target: Target
    control_points: tuple[ControlPoint, ...]
    attempts: tuple[Attempt, ...]
    outcome: str | None
    reasons: tuple[Reason, ...]
    duel: Duel | None
    report: dict[str, Any] | None
    backends: tuple[Backend, ...]
    utilisation: tuple[Utilisation, ...]
    reason: str | None
    created_at: datetime
    ended_at: datetime | None
    cancelled_at: datetime | None = None
    decision: Decision | None
    published: bool
