"""Submissions and their results."""

from datetime import date, datetime

from finishline.client.views.evidence import EvidenceFields
from finishline.client.views.view import Page, View


class Cloud(View):
    """Rented instances, by their names in a price book."""

    provider: str
    instance: str
    region: str
    count: int


class System(View):
    """The hardware of a submission, as its submitter states it."""

    name: str
    hardware_class: str
    processor: str
    processor_count: int | None
    memory_gib: float | None
    accelerator: str | None
    accelerator_count: int
    price_usd_per_hour: float | None
    price_source: str | None
    pricing: str = "on_demand"
    cloud: Cloud | None = None


class Rcp(View):
    """The runs' convergence compared with the reference's."""

    verdict: str
    message: str
    factor: float
    batch_size: int | None
    mean: float | None
    lowest: float | None
    submission_mean: float | None
    normalised: bool


class Violation(View):
    """A rule the runs break."""

    code: str
    message: str
    file: str | None


class Step(View):
    """One step of the score."""

    name: str
    formula: str
    numbers: dict[str, float | None]
    value: float | None
    unit: str


class CostBasis(View):
    """The price a cost rests on: as claimed, or of entry `price` of the price book."""

    source: str
    usd_per_hour: float
    price: int | None = None
    count: int | None = None
    effective_on: date | None = None
    source_url: str | None = None


class TrainingResult(View):
    """Result of the runs. Times in seconds on the benchmark's clock."""

    tta_seconds: float | None
    raw_tta_seconds: float | None = None
    rcp: Rcp | None = None
    tta_display: str | None
    reached: int
    started: int
    cv_percent: float | None
    tta_low_seconds: float | None
    tta_high_seconds: float | None
    epochs_to_target: float | None
    cost_usd: float | None
    cost_basis: CostBasis | None
    best_quality: float | None
    evaluation_interval_seconds: float | None
    clock: str
    eligible: bool
    violations: tuple[Violation, ...]
    steps: tuple[Step, ...]


class InferenceResult(View):
    """Result of an inference entry; nothing in it is derived from a log."""

    latency_ms: float
    cost_usd_per_10000: float | None
    metric: str
    quality: float
    reached: bool
    given_in_percent: bool
    eligible: bool
    steps: tuple[Step, ...]


class Run(View):
    """One run of a submission."""

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


class VerificationSummary(View):
    """A verification of a submission in one line."""

    id: str
    kind: str
    state: str
    outcome: str | None
    created_at: datetime
    ended_at: datetime | None
    decision: str | None
    published: bool


class Withdrawal(View):
    """Withdrawal of a submission: when, by whom and why."""

    at: datetime
    by: str
    reason: str


class ChangedFigure(View):
    """A figure of a run: as it was judged, and as it is."""

    file: str
    field: str
    judged: float | bool | None
    now: float | bool | None


class JudgedOn(View):
    """The figures that the published verdict was reached on, where they are others today."""

    verification_id: str
    judged_at: datetime
    benchmark_sha256: str | None
    figures: tuple[ChangedFigure, ...]


class Submission(EvidenceFields):
    """A submission: the claim, the result, the runs and the verifications."""

    id: str
    kind: str
    precision: str | None
    precision_measured: str | None
    ticket: str | None = None
    benchmark: str
    benchmark_version: str
    benchmark_sha256: str
    division: str
    submitter: str
    model: str
    framework: str
    system: System
    hyperparameters: dict[str, float]
    code_url: str | None
    notes: str | None
    submitted_at: datetime
    submitted_on: date | None
    archive: bool
    status: str
    measured_latency_ms: float | None
    result: TrainingResult | InferenceResult
    runs: tuple[Run, ...]
    verifications: tuple[VerificationSummary, ...]
    published_verification: str | None
    pending_decisions: tuple[str, ...]
    hidden_until: datetime | None = None
    under_embargo: bool = False
    withdrawal: Withdrawal | None = None
    judged_on: JudgedOn | None = None
    rank: int | None = None


class Ticket(View):
    """Seeds for one claim; `submission` is the one that spent it, None while it is open."""

    id: str
    benchmark: str
    benchmark_sha256: str
    division: str
    settings: dict[str, float]
    hardware_class: str
    seeds: tuple[int, ...]
    created_at: datetime
    expires_at: datetime
    submission: str | None


class TicketList(View):
    """Your own tickets."""

    tickets: tuple[Ticket, ...]


class SubmissionPage(Page):
    """Submissions, newest first."""

    submissions: tuple[Submission, ...]
