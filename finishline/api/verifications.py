"""Verifications: attempts, verdicts, head-to-heads and latencies."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from finishline.api.benchmarks import TargetView
from finishline.api.schema import Schema
from finishline.api.submissions import Decision, VerificationState
from finishline.rules.proof.proof import PostedEvaluation
from finishline.rules.verification.head_to_head import PairRun, Side
from finishline.rules.verification.messages import ControlPoint, Failure
from finishline.rules.verification.utilisation import RunUtilisation


class PairView(Schema):
    """Two runs in a row, and the challenger's time over the holder's.

    The `winner` has the lower time, or the better quality where the board ranks by it.
    """

    number: int
    challenger: PairRun
    holder: PairRun
    ratio: float | None
    winner: Side | None


class GapView(Schema):
    """The challenger's figure over the holder's, with a 95 % interval and its two-sided p-value."""

    ratio: float
    low: float
    high: float
    pairs: int
    p_value: float


class QualityGapView(Schema):
    """The challenger's quality less the holder's, in the unit of the target."""

    difference: float
    low: float
    high: float
    pairs: int
    p_value: float


class HeadToHeadView(Schema):
    """A head-to-head: its two sides, the side of each run, and the result so far.

    `pairs` are of this verification and of the earlier ones that asked for more pairs. `p_value` is
    one-sided: how likely are these figures if the challenger is no better? It wins below
    `threshold`. `quality` is compared instead of `time` where the board ranks by it. `continued_by`
    is the verification with the next pairs.
    """

    challenger: str
    holder: str
    order: list[Side]
    pairs: list[PairView]
    time: GapView | None
    quality: QualityGapView | None = None
    epochs: GapView | None
    pace: GapView | None
    p_value: float | None
    threshold: float
    continued_by: str | None


class BackendView(Schema):
    """One backend: milliseconds for one item at batch size 1, or the reason for its absence.

    `samples` were timed in `passes` over the evaluation set. `missing` says why a percentile is
    absent. `eligible` is whether the model meets the target.
    """

    backend: str
    samples: int = 0
    passes: float | None = None
    mean_ms: float | None = None
    p50_ms: float | None = None
    p90_ms: float | None = None
    p99_ms: float | None = None
    missing: dict[str, str] = {}
    items_per_second: float | None = None
    drift_percent: float | None = None
    cost_usd_per_10000: float | None = None
    quality: float | None = None
    eligible: bool = False
    largest_difference: float | None = None
    absence: str | None = None
    why_absent: str | None = None


class AttemptView(Schema):
    """An attempt on one worker. `refunded` means it failed without charge to a quota.

    `id` is null while it waits, because only its drawn worker may know it. A failure leaves the
    latest evaluation and the end of the failed run's log. If the worker could not send the log, it
    leaves the last events received.
    """

    id: str | None
    number: int
    state: str
    worker: str | None
    started_at: datetime | None
    ended_at: datetime | None
    failure: Failure | None
    refunded: bool
    last_evaluation: PostedEvaluation | None
    log_tail: str | None


class ReasonView(Schema):
    """A finding of the verdict, its effect on the outcome, and its numbers."""

    code: str
    weight: str
    message: str
    numbers: dict[str, float]


class DecisionView(Schema):
    """Review of a verdict: published, kept back, or pending for an organiser."""

    decision: Decision
    reason: str | None
    decided_at: datetime | None


class FactorView(Schema):
    """Training without the factors in `off`, compared with all of them.

    `reached` of `started` runs reached the target. `ratio` is the time over the time with all
    factors, with its 95 % interval, over `pairs` of equal seed and data. It is None below two such
    pairs.
    """

    off: list[str]
    reached: int
    started: int
    ratio: float | None
    low: float | None
    high: float | None
    pairs: int


class VerificationView(VerificationState):
    """A verification: sealed plan, attempts, verdict. Seeds and nonce are shown after its end.

    `kind` is "replay" for the check of a submission, "calibration" for a measurement of the
    reference, "head_to_head" for a submission `against` another, "latency" for a model's time, with
    the measured `backends`. A "cross_check" trains a run of `checks_id` again. An "ablation"
    switches the `factors` of a code submission off, one by one and all together.

    `utilisation` is of each run of the report, by the peak throughput of its worker.
    `hyperparameters` are for each run if the runs differ, and are sealed as seeds are.
    `control_runs` and `repeat_runs` measure no time, and count from 0 as the index of a run.
    """

    submission_id: str | None
    checks_id: str | None
    against_id: str | None
    calibration_id: str | None
    benchmark: str
    waiting_for: str | None
    seal: str
    nonce: str | None
    runs_planned: int
    seeds: list[int] | None
    control_runs: list[int] = []
    repeat_runs: list[int] = []
    hyperparameters: list[dict[str, float]] | None
    target: TargetView
    control_points: list[ControlPoint]
    attempts: list[AttemptView]
    reasons: list[ReasonView]
    head_to_head: HeadToHeadView | None
    factors: list[FactorView] = []
    report: dict[str, Any] | None
    backends: list[BackendView]
    utilisation: list[RunUtilisation]
    reason: str | None
    decision: DecisionView | None


@dataclass(frozen=True)
class ReplayFigures:
    """One replay: seconds and epochs to the target, None if it missed it."""

    index: int
    seed: int
    status: str
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None


@dataclass(frozen=True)
class Difference:
    """Means of a figure in both verifications, and the two-sided p-value of Welch's t-test on logs.

    `comparable` is false for times on different hardware classes.
    """

    figure: str
    first_mean: float | None
    second_mean: float | None
    ratio: float | None
    p_value: float | None
    comparable: bool


@dataclass(frozen=True)
class SystemDifference:
    """A line in which the systems of two replays differ."""

    field: str
    first: str | None
    second: str | None


class ExpectedReplay(Schema):
    """A replay of the batch. `seconds_expected` covers all its runs. `basis` names its source.

    `verification_id` is None in a dry run.
    """

    submission_id: str
    verification_id: str | None
    runs_expected: float
    seconds_expected: float
    accelerators: int
    basis: Literal["replays of the submission", "replays of the benchmark", "run limit"]


class Skipped(Schema):
    """A submission without a replay, and why."""

    submission_id: str
    why: str


class BatchView(Schema):
    """Replays that a batch queues, or would queue. GPU seconds are seconds times accelerators."""

    dry_run: bool
    replays: list[ExpectedReplay]
    skipped: list[Skipped]
    gpu_seconds_expected: float
    cpu_seconds_expected: float


class SideView(Schema):
    """A side of two compared verifications."""

    id: str
    state: str
    outcome: str | None
    published: bool
    worker: str | None
    hardware_class: str | None
    reasons: list[ReasonView]
    runs: list[ReplayFigures]


class VerificationComparison(Schema):
    """Two verifications of one submission, side by side."""

    submission_id: str
    benchmark: str
    first: SideView
    second: SideView
    same_band: bool
    differences: list[Difference]
    systems: list[SystemDifference]


class VerificationList(Schema):
    """Verifications, newest first, without their bands and reports."""

    verifications: list[VerificationView]
