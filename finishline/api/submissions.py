"""Submissions: claim, evidence, result, runs, curves, and the files of code submissions."""

from datetime import date, datetime
from typing import Literal

from pydantic import ConfigDict, Field, computed_field

from finishline.api.schema import Schema
from finishline.rules.ranking import Check, Evidence
from finishline.rules.scoring.convergence import FACTOR_COUNTS
from finishline.rules.scoring.scoring import AtStop, Step
from finishline.rules.submissions.claim import Cloud, TrainedWith, Tuning
from finishline.rules.verification.verdict import ChangedFigure

Decision = Literal["publish", "keep", "pending"]


class SourceView(Schema):
    """Archive of a published result, and its commit."""

    name: str
    url: str
    commit: str


class ViolationView(Schema):
    """A rule that the runs break."""

    model_config = ConfigDict(extra="ignore")

    code: str
    message: str
    file: str | None


class RcpView(Schema):
    """Comparison of the runs' convergence with the reference's.

    `verdict` is "pass", "fail", "missing", or "published": missing, with the factor of a
    scaling.json. `factor` multiplies a passing set's raw time. `batch_size`, `mean` and `lowest`
    are of the reference point.
    """

    verdict: str
    message: str
    factor: float
    batch_size: int | None
    mean: float | None
    lowest: float | None
    submission_mean: float | None

    @computed_field  # type: ignore[prop-decorator]
    @property
    def normalised(self) -> bool:
        """Whether the time is raised, because the set converged faster than the mean."""
        return self.verdict in FACTOR_COUNTS and self.factor > 1.0


class CostBasisView(Schema):
    """Price behind a cost: `usd_per_hour` is for the whole system.

    From the price book it is entry `price`, for `count` instances. Otherwise it is as claimed.
    `why_unranked` says why rows don't rank by it.
    """

    source: Literal["price_book", "claim"]
    usd_per_hour: float
    price: int | None = None
    count: int | None = None
    effective_on: date | None = None
    source_url: str | None = None
    why_unranked: str | None = None


class ResultView(Schema):
    """Result of the runs, with every step. Times in seconds on the benchmark's clock.

    `raw_tta_seconds` is as measured, and `tta_seconds` is normalised if `rcp` says so. `at_stop`
    has the figures of runs that all stop at one step. `cost_usd` is computed with each answer from
    `cost_basis`.
    """

    tta_seconds: float | None
    raw_tta_seconds: float | None = None
    rcp: RcpView | None = None
    at_stop: AtStop | None = None
    tta_display: str | None
    reached: int
    started: int
    cv_percent: float | None
    tta_low_seconds: float | None
    tta_high_seconds: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    cost_basis: CostBasisView | None
    best_quality: float | None
    evaluation_interval_seconds: float | None
    clock: str
    eligible: bool
    violations: list[ViolationView]
    steps: list[Step]


class InferenceResultView(Schema):
    """Result of an inference, as it states it.

    `latency_ms` is for one item at batch size 1. `quality` is in the unit of the target. It ranks
    if `reached`. `given_in_percent` means a stated percentage where the target is a fraction.
    """

    latency_ms: float
    cost_usd_per_10000: float | None
    metric: str
    quality: float
    reached: bool
    given_in_percent: bool
    eligible: bool
    steps: list[Step]


class JudgedOnView(Schema):
    """Figures behind a published verdict that rescoring changed later.

    `benchmark_sha256` is the definition of the verdict, None if it is the current one. The proof of
    `verification_id` keeps the earlier figures.
    """

    verification_id: str
    judged_at: datetime
    benchmark_sha256: str | None
    figures: list[ChangedFigure]


class SystemView(Schema):
    """Hardware of a submission, as its submitter states it. Only an `on_demand` price ranks."""

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
    cloud: Cloud | None = None
    availability: str | None = None


class RunView(Schema):
    """A run of a submission. `settings` are the hyperparameters in its log."""

    index: int
    file: str
    seed: int | None
    reached: bool
    tta_seconds: float | None
    epochs_to_target: float | None
    best_quality: float | None
    batch_size: int | None
    convergence: float | None
    log_sha256: str
    ledger: dict[str, float] | None
    settings: dict[str, float] | None = None


class VerificationState(Schema):
    """Short form of a verification. A status rests on the `published` verification."""

    id: str
    kind: str
    state: str
    outcome: str | None
    created_at: datetime
    ended_at: datetime | None
    published: bool


class VerificationSummary(VerificationState):
    """Summary of a verification of a submission, or of a head-to-head."""

    decision: Decision | None


class WithdrawalView(Schema):
    """Date, author and reason of an act."""

    at: datetime
    by: str
    reason: str


class WaiverView(WithdrawalView):
    """A rule that an organiser waived for one submission: its result breaks it and may rank."""

    rule: str


class PackageFileView(Schema):
    """A file of a code submission. Its text is at `/submissions/{id}/package/files/{name}`."""

    name: str
    size_bytes: int


class PackageView(Schema):
    """Code of a code submission.

    `environment_sha256` is of the exact versions on its workers. `based_on` is the parent that its
    submitter names, and `factors` are the ideas that you can switch off. `compressed_bytes` is its
    size under xz. `files` and `factors` are for its submitter and organisers until `published_at`,
    the moment of its first verdict, and empty for others.

    A `deterministic` code submission has one run repeated with equal seed and data. Its
    `determinism` is "shown" if all predictions were equal, else "struck".
    """

    sha256: str
    title: str
    module: str
    license: str
    environment: str
    environment_sha256: str
    based_on: str | None = None
    deterministic: bool = False
    determinism: Literal["shown", "struck", "not checked"] | None = None
    precision: str | None = None
    factors: dict[str, str] = Field(default_factory=dict)
    size_bytes: int
    compressed_bytes: int
    published_at: datetime | None = None
    files: list[PackageFileView] = Field(default_factory=list)


class SubmissionView(Schema):
    """A submission: its statements, result, runs and verifications.

    `kind` is "logs", "code" or "inference". `measured_latency_ms` is a worker's median for one item
    on the same hardware class. `precision` is the narrowest floating type the training touches as
    claimed, `precision_measured` as replayed. Code has a `package`, and its runs are from its
    measurements.

    Its status rests on `published_verification`. `judged_on` has the earlier figures behind it if
    its runs were rescored since, and is null in a list. `pending_decisions` are verdicts of reruns
    that wait for an organiser. With a `withdrawal` it is unranked and stays as it was. With a
    `retirement` it can't be trained any more, and can't hold first place. If `under_embargo`, only
    its submitter, the members of their organisation and organisers see it.

    Its rank, evidence and measured time are as on its board.
    """

    id: str
    kind: str
    precision: str | None
    precision_measured: str | None
    benchmark: str
    benchmark_version: str
    benchmark_sha256: str
    division: str
    submitter: str
    display_name: str | None = None
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
    under_embargo: bool = False
    withdrawal: WithdrawalView | None = None
    retirement: WithdrawalView | None = None
    waivers: list[WaiverView] = []
    judged_on: JudgedOnView | None = None
    package: PackageView | None = None
    rank: int | None = None
    evidence: Evidence = "claimed"
    check: Check | None = None
    unranked_reason: str | None = None
    is_holder: bool = False
    not_first: str | None = None
    head_to_head: str | None = None
    claimed_seconds: float | None = None
    claimed_model: str | None = None
    measured_seconds: float | None = None
    measured_low_seconds: float | None = None
    measured_high_seconds: float | None = None
    measured_quality: float | None = None
    quality_low: float | None = None
    quality_high: float | None = None
    measured_runs: int = 0
    busy: bool = False
    pool_id: str | None = None
    duplicate_of: str | None = None
    not_separated_from: int | None = None
    visible_gap_percent: float | None = None
    trained_with: TrainedWith = "own"
    tuning: Tuning | None = None
    source: SourceView | None = None


class SubmissionList(Schema):
    """A page of submissions, newest first. `next_cursor` requests the next page."""

    submissions: list[SubmissionView]
    next_cursor: str | None


class EvaluationView(Schema):
    """One quality measurement. `seconds` on the clock of the log."""

    epoch: float | None
    seconds: float
    quality: float
    samples: int | None


class CurveView(Schema):
    """All evaluations of a run."""

    index: int
    file: str
    evaluations: list[EvaluationView]


class ParameterSetting(Schema):
    """A hyperparameter as the submission states it."""

    name: str
    value: float


class RunMeasure(Schema):
    """Best value of a measure in a run, and when it reached the target.

    `seconds` are on the benchmark's clock. They and `epoch` are None for a run that missed the
    target.
    """

    measure: str
    value: float | None
    seconds: float | None
    epoch: float | None


class RunRecord(Schema):
    """One run, with its submission and the definition of its score.

    `status` is of its submission. `parameter_setting` has the stated values. The others are the
    reference's.
    """

    benchmark: str
    benchmark_version: str
    benchmark_sha256: str
    division: str
    submission_id: str
    submitter: str
    display_name: str | None = None
    submitted_at: datetime
    submitted_on: date | None
    archive: bool
    status: str
    withdrawn: bool = False
    run: int
    seed: int | None
    batch_size: int | None
    reached: bool
    model: str
    framework: str
    parameter_setting: list[ParameterSetting]
    evaluations: list[RunMeasure]
    system: SystemView
    log_sha256: str


class RunExport(Schema):
    """A page of runs, in order of arrival. `next_cursor` requests the next page."""

    benchmark: str
    next_cursor: str | None
    runs: list[RunRecord]
