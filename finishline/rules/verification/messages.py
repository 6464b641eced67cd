"""Messages between the server and a worker.

A ReplayJob goes out through the broker, the rest goes back over HTTP as JSON. The classes hold
plain values only, so that either side can write and check them with its own tools.
"""

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

REPLAY_TASK = "finishline.replay"  # The Celery task name: neither side imports the other.
FENCE_HEADER = "Finishline-Fence"  # Carries a claim's fence with every post of that claim.

WorkerWord = Literal["idle", "busy", "draining", "stopping"]
WorkerOrder = Literal["work", "pause"]
Entries = Literal["anyone", "known", "off"]
Measure = Literal["tta", "latency", "profile", "control", "repeat"]
PACKAGE_PREFIX = "sha256:"  # Of a training package, where a reference has its name.
StopAt = Literal["target", "end"]
Backend = Literal["eager", "compiled", "onnxruntime"]
AbsenceCode = Literal[
    "not_installed",  # a package that it takes is missing
    "not_supported",  # not on this device or with this Python
    "compile_failed",
    "export_failed",
    "outputs_differ",  # from those of eager, by more than the tolerance
]
EventKind = Literal["run_started", "phase", "evaluation", "run_finished"]
RunStatus = Literal["reached", "not_reached", "below_band", "cancelled", "failed"]
FailureKind = Literal["submitter", "rules", "infrastructure", "time_limit"]
FailureCode = Literal[
    "bad_hyperparameter",  # submitter
    "training_diverged",  # submitter
    "unknown_reference",  # rules
    "data_set_differs",  # rules
    "precision_missing",  # rules: the device has no arithmetic in the training's precision
    "clock_mismatch",  # infrastructure
    "child_died",  # infrastructure
    "out_of_memory",  # infrastructure
    "device_unfit",  # infrastructure
    "node_lost",  # infrastructure: a host that trained along left
    "nodes_unfit",  # infrastructure: the hosts exchange nothing, or something else
    "worker_stopped",  # infrastructure
    "worker_lost",  # infrastructure: the lease ran out
    "worker_drifted",  # infrastructure
    "report_refused",  # infrastructure: the server does not believe the report
    "host_busy",  # infrastructure: the time limit came on a processor that others had
    "run_time_limit",  # time_limit
    "entry_import_failed",  # submitter
    "entry_died",  # submitter
    "protocol_broken",  # submitter
    "memory_limit",  # submitter
    "log_limit",  # submitter
    "prepare_time_limit",  # time_limit
    "silence_time_limit",  # time_limit
    "box_unavailable",  # infrastructure: no box could be started, or its task failed
]


def queue_of(worker: str) -> str:
    """The name of a worker's own queue: two names never share one."""
    return f"replay.{quote(worker, safe='')}"


@dataclass(frozen=True)
class ControlPoint:
    """The band a replay must stay in at one evaluation (`index` counts from 1)."""

    index: int
    mean: float
    lower: float
    upper: float


@dataclass(frozen=True)
class TargetSpec:
    """The quality target a replay stops at.

    With `fixed_stop` it goes on to the end of its training, and counts there at any quality: the
    mean over runs is tested.
    """

    metric: str
    value: float
    direction: Literal["higher", "lower"]
    evaluations_in_a_row: int = 1
    fixed_stop: bool = False


@dataclass(frozen=True)
class LatencyOrder:
    """Order to measure the latency of the trained model: see rules.latency_protocol.

    A backend that is still at it after `enough_seconds` ends once it has `fewest_items`, one that
    is after `most_seconds` with the items it has.
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

    `package` names its code: a reference, or a training package by its SHA-256, whose data are
    drawn from `data_nonce`, 64 hex digits that no worker sees before its lease. `stop_at` "end"
    trains every epoch, past the target and out of any band. `measure` lists the figures to take:
    the time to accuracy, the latency of the model at the target, the precision and work of the
    training, or alone the quality on a control, for which carried answers are worthless, or the
    predictions of a repeat, which has seed and data of the first training. `precision` is the
    type of the step's products, None where the code has its own.
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
        """Whether it is a training package, which is trained in a box."""
        return self.package.startswith(PACKAGE_PREFIX)

    @property
    def is_control(self) -> bool:
        """Whether its data are a control's; its time counts nowhere."""
        return "control" in self.measure

    @property
    def is_repeat(self) -> bool:
        """Whether it repeats the first training, to compare predictions; it measures no time."""
        return "repeat" in self.measure


@dataclass(frozen=True)
class ReplayJob:
    """One attempt at a job: complete, so that a worker needs no other source.

    `trainings` are made in order, their settings complete. `control_points` is empty where no band
    is known for this configuration. `clock` and `division` say which seconds count. `latency` says
    how to measure a model if its training asks for it.
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
        """The seed of each training, in order."""
        return [training.seed for training in self.trainings]


@dataclass(frozen=True)
class ClaimRequest:
    """A worker asks for an attempt."""

    worker: str
    hardware_class: str


@dataclass(frozen=True)
class Lease:
    """The attempt is this worker's until the lease runs out; every post renews it.

    `token` authorises the posts of this claim alone; `fence` counts the claims of the attempt and
    goes with every post in the header FENCE_HEADER.
    """

    attempt_id: str
    fence: int
    token: str
    lease_seconds: float


@dataclass(frozen=True)
class PackageContent:
    """A training package as a worker trains it: its files by name, and its environment's hash."""

    files: dict[str, str]
    module: str
    environment: str
    environment_sha256: str
    factors: dict[str, bool] = field(default_factory=dict)


@dataclass(frozen=True)
class TrainingGrant:
    """Everything that a worker with a lease needs beside its job to train packages in a box.

    `packages` are by the name in their trainings, `data_nonces` by the index of the training.
    `task_files` has the SHA-256 of each file of the benchmark's task. `prepare_seconds` are of the
    processor.
    """

    packages: dict[str, PackageContent]
    data_nonces: list[str]
    task_files: dict[str, str]
    run_seconds: float
    prepare_seconds: float
    max_evaluations: int
    memory_mib: int
    threads: int


@dataclass(frozen=True)
class Failure:
    """Reason why a run or an attempt ended without a result, from a closed list, and the remedy."""

    kind: FailureKind
    code: FailureCode
    message: str
    next_step: str


@dataclass(frozen=True)
class ReplayEvent:
    """One thing that happened in a replay, in the order of `sequence` (from 0, no gaps).

    `seconds` counts on the benchmark's clock from the start of the run, None before it starts.
    `epoch`, `samples`, `quality` belong to evaluations; `phase` to phases; `status`, `cpu_seconds`
    and `failure` to the end of a run, as in its report. `ledger` holds seconds per phase.
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
    """Events since the last post; an empty batch is a heartbeat."""

    events: list[ReplayEvent] = field(default_factory=list)


@dataclass(frozen=True)
class BatchAnswer:
    """Whether the worker goes on, and if not why ("cancelled", "time_limit")."""

    proceed: bool
    reason: str | None = None


@dataclass(frozen=True)
class ReplayEvaluation:
    """One evaluation of a replay; `seconds` on the benchmark's clock.

    Of a package `epoch` is the number of the evaluation, `samples` None, and `second_half` the
    quality on the test items that stop no clock. `predictions_sha256` is over their bytes.
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
    """Reason why a backend was not measured, from a closed list, and its message."""

    code: AbsenceCode
    message: str


@dataclass(frozen=True)
class BackendLatency:
    """One way of running the trained model, timed one item at a time; warm-up included.

    `largest_difference` is that of its outputs to eager's, as a share of eager's largest output.
    `seconds` and `cpu_seconds` are the span of the timed items on the wall and of the processor.
    `passes` says how often the items went round, warm-up left out; None in older reports.
    Without times there is an `absence`.
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

    `status` is "reached" for a run that was at the target, whether or not it went on after it.
    `tta_seconds` is on the benchmark's clock, None unless the target was reached. `parent_seconds`
    and `child_seconds` are the same span on the two clocks; `cpu_seconds` is the processor time
    of the span (low against the span on a CPU: a neighbour was in the way). `processor_share` is
    that of a box: the part of the time in which its threads that were ready to run had a processor.
    `telemetry` is None where the run was not observed.
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
    """The hardware and software a worker found under itself.

    On several hosts `nodes` lists them, this worker's first; they have `accelerator_count`
    accelerators together, and processor and memory are those of one.
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

    `processes` trained each run together, each with a device of its own. `all_reduce` is the
    exchange between several hosts as it was measured before the runs.
    `drift` is a sentence where the worker's canary after the runs was off its baseline: their
    times are then compared with nothing.
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
    """Whose packages a worker trains, and in which environments (name to SHA-256).

    "anyone": its box held against every probe; "known": it has no memory cgroup, so packages of
    participants whom an organiser knows; "off": none, and `why`.
    """

    entries: Entries = "off"
    why: str | None = None
    environments: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class WorkerHello:
    """A worker is alive: sent at the start, every few seconds, and when it has become free.

    One that is "draining" was stopped by its own operator and finishes its attempt.
    """

    system: WorkerSystem
    state: WorkerWord
    box: BoxWord = BoxWord()


@dataclass(frozen=True)
class HelloAnswer:
    """An organiser's order to a worker, and the reason.

    "pause": take nothing until this says "work" again.
    `roof_wanted` asks a confirmed worker for a canary: its hardware class has no roof yet.
    `unconfirmed`: it is sent nothing until an organiser confirms it.
    """

    order: WorkerOrder = "work"
    why: str | None = None
    roof_wanted: bool = False
    unconfirmed: bool = False
