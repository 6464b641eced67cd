"""Messages between server and worker, as plain values that both write and check."""

from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import quote

from finishline.rules.measurements import (
    Canary,
    Figure,
    ModelWork,
    PrecisionAudit,
    PrecisionName,
    RunTelemetry,
)

WORKER_PROTOCOL = 1  # Of sign-ons and leases. Older workers omit it.
REPLAY_TASK = "worker.replay"  # The Celery task name: neither side imports the other.
FENCE_HEADER = "Finishline-Fence"  # Carries a claim's fence with every post of the claim.

WorkerWord = Literal["idle", "busy", "draining", "stopping"]
WorkerOrder = Literal["work", "pause"]
Entries = Literal["anyone", "known", "off"]
Measure = Literal["tta", "latency", "profile", "control", "repeat"]
PACKAGE_PREFIX = "sha256:"  # Of a code submission, in place of a reference's name.
StopAt = Literal["target", "end"]
Backend = Literal["eager", "compiled", "onnxruntime"]
AbsenceCode = Literal[
    "not_installed",  # a package that it takes is missing
    "not_supported",  # by this device or this Python
    "compile_failed",
    "export_failed",
    "outputs_differ",  # from eager's, by more than the tolerance
]
EventKind = Literal["run_started", "phase", "evaluation", "run_finished"]
RunStatus = Literal["reached", "not_reached", "below_band", "cancelled", "failed"]
FailureKind = Literal["submitter", "rules", "infrastructure", "time_limit"]
FailureCode = Literal[
    "bad_hyperparameter",  # submitter
    "training_diverged",  # submitter
    "unknown_reference",  # rules
    "data_set_differs",  # rules
    "precision_missing",  # rules: the device lacks arithmetic in the training's precision
    "clock_mismatch",  # infrastructure
    "child_died",  # infrastructure
    "out_of_memory",  # infrastructure
    "device_unfit",  # infrastructure
    "node_lost",  # infrastructure: a host that trained along left
    "nodes_unfit",  # infrastructure: the hosts fail to exchange the right data
    "worker_stopped",  # infrastructure
    "worker_lost",  # infrastructure: the lease ran out
    "worker_drifted",  # infrastructure
    "report_refused",  # infrastructure: the server found the report impossible
    "host_busy",  # infrastructure: the time limit came on a processor that others had
    "run_time_limit",  # time_limit
    "entry_import_failed",  # submitter
    "entry_died",  # submitter
    "protocol_broken",  # submitter
    "memory_limit",  # submitter
    "log_limit",  # submitter
    "prepare_time_limit",  # time_limit
    "silence_time_limit",  # time_limit
    "box_unavailable",  # infrastructure: the sandbox failed to start, or its task failed
]


def queue_of(worker: str) -> str:
    """Return the name of a worker's own queue: two names never share one."""
    return f"replay.{quote(worker, safe='')}"


def unacked_keys(worker: str) -> dict[str, str]:
    """Return keys of a worker's unacknowledged messages, by Kombu's name for each."""
    names = ("unacked", "unacked_index", "unacked_mutex")
    return {f"{name}_key": f"{name}/{queue_of(worker)}" for name in names}


@dataclass(frozen=True)
class ControlPoint:
    """The band a replay must stay in at one evaluation (`index` counts from 1)."""

    index: int
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class TargetSpec:
    """The quality where a replay stops, or `fixed_stop` at its end, or a budget in seconds."""

    metric: str
    value: float
    direction: Literal["higher", "lower"]
    evaluations_in_a_row: int = 1
    fixed_stop: bool = False
    budget_seconds: float | None = None


@dataclass(frozen=True)
class LatencyOrder:
    """Order to measure the latency of the trained model.

    A backend ends after `enough_seconds` if it has `fewest_items`, and after `most_seconds`.
    """

    items: int
    warmup_items: int
    output_tolerance: float
    fewest_items: int = 120
    enough_seconds: float = 30.0
    most_seconds: float = 60.0


@dataclass(frozen=True)
class Training:
    """One training of a job, from `seed` with `settings` over the reference's defaults.

    `package` is a reference, or the SHA-256 of a code submission. Its data are drawn from
    `data_nonce`, 64 hex digits. `stop_at` "end" trains every epoch, past the target. `measure`
    lists the figures to take. "control" is the quality on data for which public answers are
    worthless, "repeat" compares predictions with the first training.
    """

    package: str
    settings: dict[str, float]
    seed: int
    data_nonce: str | None = None
    stop_at: StopAt = "target"
    measure: tuple[Measure, ...] = ("tta",)
    precision: PrecisionName | None = None

    @property
    def in_box(self) -> bool:
        """Whether it is a code submission, which is trained in a sandbox."""
        return self.package.startswith(PACKAGE_PREFIX)

    @property
    def is_control(self) -> bool:
        """Whether its data are a shortcut test's, untimed."""
        return "control" in self.measure

    @property
    def is_repeat(self) -> bool:
        """Whether it repeats the first training, untimed."""
        return "repeat" in self.measure


@dataclass(frozen=True)
class ReplayJob:
    """One attempt at a job, for the worker with the lease. `trainings` are made in order.

    `control_points` is empty without a band. `clock` and `division` say which seconds count.
    """

    attempt_id: str
    verification_id: str
    submission_id: str | None
    benchmark_id: str
    benchmark_sha256: str
    data_set_sha256: str | None
    trainings: list[Training]
    target: TargetSpec
    clock: str
    division: str
    control_points: list[ControlPoint]
    run_limit_seconds: float
    purpose: str = "replay"
    latency: LatencyOrder | None = None

    @property
    def seeds(self) -> list[int]:
        return [training.seed for training in self.trainings]


@dataclass(frozen=True)
class NextAttempt:
    """The attempt that a worker was drawn for, and may lease."""

    attempt_id: str


@dataclass(frozen=True)
class ClaimRequest:
    """A worker's request to lease an attempt, with its protocol."""

    worker: str
    protocol: int = 0


@dataclass(frozen=True)
class Lease:
    """The attempt is this worker's until the lease runs out. Every post renews it.

    `token` authorises the posts of this claim. `fence` counts the claims of the attempt.
    """

    attempt_id: str
    fence: int
    token: str
    lease_seconds: float
    job: ReplayJob


@dataclass(frozen=True)
class PackageContent:
    """A code submission as a worker trains it: its files by name, and its environment's hash."""

    files: dict[str, str]
    module: str
    environment: str
    environment_sha256: str
    factors: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingGrant:
    """Further needs of a worker with a lease to train code submissions in a sandbox.

    `packages` are by name. `task_files` has SHA-256 sums. `prepare_seconds` are processor time.
    """

    packages: dict[str, PackageContent]
    task_files: dict[str, str]
    run_seconds: float
    prepare_seconds: float
    max_evaluations: int
    memory_mib: int
    threads: int


@dataclass(frozen=True)
class Failure:
    """Reason why a run or an attempt ended without a result, and the remedy."""

    kind: FailureKind
    code: FailureCode
    message: str
    next_step: str


@dataclass(frozen=True)
class ReplayEvent:
    """One event of a replay, in the order of `sequence` (from 0, no gaps).

    `seconds` is on the benchmark's clock from the start of the run. `status`, `cpu_seconds` and
    `failure` belong to the end of a run, as in its report. `ledger` holds seconds per phase.
    """

    sequence: int
    run: int
    kind: EventKind
    seconds: float | None = None
    epoch: float | None = None
    samples: int | None = None
    quality: float | None = None
    phase: str | None = None
    status: RunStatus | None = None
    ledger: dict[str, float] | None = None
    cpu_seconds: float | None = None
    failure: Failure | None = None
    second_half: float | None = None
    predictions_sha256: str | None = None


@dataclass(frozen=True)
class EvaluationBatch:
    """Events since the last post. An empty batch is a heartbeat."""

    events: list[ReplayEvent] = field(default_factory=list)


@dataclass(frozen=True)
class BatchAnswer:
    """Whether the worker goes on, and if not why ("cancelled", "time_limit")."""

    proceed: bool
    reason: str | None = None


@dataclass(frozen=True)
class ReplayEvaluation:
    """One evaluation of a replay, in `seconds` on the benchmark's clock.

    A code submission has the number of the evaluation as `epoch`, no `samples`, and as
    `second_half` the quality on the test items that stop no clock.
    """

    epoch: float
    samples: int | None
    seconds: float
    quality: float
    ledger: dict[str, float]
    second_half: float | None = None
    predictions_sha256: str | None = None


@dataclass(frozen=True)
class Absence:
    """Reason why a backend is missing."""

    code: AbsenceCode
    message: str


@dataclass(frozen=True)
class BackendLatency:
    """One way of running the trained model, timed one item at a time, with warm-up.

    `largest_difference` compares its outputs with eager's, as a share of eager's largest output.
    `seconds` and `cpu_seconds` are the span of the timed items. `passes` counts the rounds over the
    items without warm-up, None in older reports. Without times there is an `absence`.
    """

    backend: Backend
    milliseconds: list[float] = field(default_factory=list)
    largest_difference: float | None = None
    seconds: float | None = None
    cpu_seconds: float | None = None
    absence: Absence | None = None
    passes: float | None = None


@dataclass(frozen=True)
class ReplayRun:
    """One training of a replay.

    `status` is "reached" for a run that was at the target, even if it continued. `tta_seconds` is
    on the benchmark's clock. `parent_seconds` and `child_seconds` are the same span on two clocks,
    `cpu_seconds` its processor time. `processor_share` is the part of the time in which the
    sandbox's ready threads had a processor.
    """

    index: int
    seed: int
    status: RunStatus
    evaluations: list[ReplayEvaluation]
    ledger: dict[str, float]
    tta_seconds: float | None = None
    parent_seconds: float | None = None
    child_seconds: float | None = None
    cpu_seconds: float | None = None
    processor_share: float | None = None
    failure: Failure | None = None
    log_tail: str = ""
    latency: list[BackendLatency] = field(default_factory=list)
    telemetry: RunTelemetry | None = None


@dataclass(frozen=True)
class Node:
    """A host of a worker that trains on several."""

    name: str
    processor: str
    processor_count: int
    memory_gib: float
    accelerator: str | None
    accelerator_count: int


@dataclass(frozen=True)
class WorkerSystem:
    """The hardware and software of a worker.

    On several hosts `nodes` lists them, its own first. Only `accelerator_count` is of all.
    """

    worker: str
    hardware_class: str
    processor: str
    processor_count: int
    memory_gib: float
    accelerator: str | None
    accelerator_count: int
    threads: int
    software: dict[str, str]
    nodes: list[Node] = field(default_factory=list)


@dataclass(frozen=True)
class ReplayReport:
    """The end of an attempt: the outcome of every started run, or why the attempt failed.

    `processes` trained each run together, one a device. `all_reduce` is the exchange between
    several hosts, measured before the runs. `drift` is a sentence if the worker's speed check after
    the runs was off its baseline: then their times are left out.
    """

    runs: list[ReplayRun]
    system: WorkerSystem
    failure: Failure | None = None
    precision: PrecisionAudit | None = None
    work: ModelWork | None = None
    canaries: list[Canary] = field(default_factory=list)
    drift: str | None = None
    processes: int = 1
    all_reduce: Figure | None = None


@dataclass(frozen=True)
class BoxWord:
    """Submitters and environments (name to SHA-256) that a worker's sandbox trains.

    "anyone": its sandbox passed every probe. "known": it lacks a memory cgroup, so it trains only
    code of approved users. "off": it refuses code submissions, and `why`.
    """

    entries: Entries = "off"
    why: str | None = None
    environments: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        return self.entries if self.why is None else f"{self.entries}: {self.why}"


@dataclass(frozen=True)
class WorkerHello:
    """A worker is alive: sent at the start, every few seconds, and when it has become free.

    A "draining" worker finishes its attempt and stops. A worker without a broker `polls`.
    """

    system: WorkerSystem
    state: WorkerWord
    box: BoxWord = BoxWord()
    polls: bool = False
    protocol: int = 0


@dataclass(frozen=True)
class HelloAnswer:
    """An organiser's order to a worker. An `unconfirmed` one waits until it is confirmed.

    `roof_wanted` asks for a speed check: the hardware class has no peak throughput yet.
    """

    order: WorkerOrder = "work"
    why: str | None = None
    roof_wanted: bool = False
    unconfirmed: bool = False
