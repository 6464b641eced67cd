"""API and page models of workers, the queue and rooflines."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from server.base.models import WorkerProbeRow


class QueuedView(BaseModel):
    """A queued attempt. `position` counts from 1 within its hardware class, in fair order.

    `expected_start` is by the median length of recent attempts of the same kind, benchmark and
    hardware class; None, with `why_unknown`, without a basis for it. `attempt` is above 1 if an
    earlier one failed without charge to a quota; `by_organiser`: an organiser requested it.
    """

    verification_id: str
    kind: str
    benchmark: str
    submission_id: str | None
    model: str | None
    runs: int
    attempt: int
    position: int
    by_organiser: bool
    asked_at: datetime
    queued_at: datetime
    expected_start: datetime | None
    why_unknown: str | None


class PauseView(BaseModel):
    """A pause of a queue: who set it, since when and why."""

    by: str
    since: datetime
    reason: str


class ClassQueueView(BaseModel):
    """Queue of one hardware class, and the workers of the class.

    `hardware_class` is None for attempts that any worker may take. `workers` are alive and fit,
    `free` counts the idle ones of these, `out` are alive but off their baseline, `held` are paused
    or drained. `last_seen_at` is the last hello of a worker of the class, None if never. If no
    worker of a class is connected, any other takes its attempts, and times are not compared.
    `waiting` has the next of `waiting_count` to start. While the class is `paused`, no attempt of
    it starts. `under_embargo` of them have places of their own and are not shown.
    """

    hardware_class: str | None
    workers: int
    free: int
    out: int
    held: int
    paused: PauseView | None
    waiting_count: int
    last_seen_at: datetime | None
    waiting: list[QueuedView]
    under_embargo: int = 0


class QueueView(BaseModel):
    """Queue of all attempts by hardware class; `as_of` is the time of the snapshot.

    `paused` is the pause of everything.
    """

    as_of: datetime
    waiting: int
    paused: PauseView | None
    classes: list[ClassQueueView]


class RoofView(BaseModel):
    """The best FLOP/s of a floating type over matmul and convolution, in 10^12."""

    precision: str
    tflops: float
    how: str


class RooflinePointView(BaseModel):
    """Training of one attempt: FLOP per byte, and the achieved 10^12 FLOP/s.

    `attainable_tflops` is the limit of the roofs at that intensity and `bound` names the limiting
    roof; None if the worker did not measure them.
    """

    verification_id: str
    benchmark: str
    model: str | None
    precision: str | None
    intensity: float
    achieved_tflops: float
    attainable_tflops: float | None
    share_of_attainable: float | None
    bound: str | None


class RooflineView(BaseModel):
    """The measured roofs of a worker and its latest trainings of known work, newest first.

    Seconds are those in training, without evaluation; the median over an attempt's runs.
    """

    worker: str
    roofs: list[RoofView]
    copy_gb_per_second: float | None
    points: list[RooflinePointView]


class FigureView(BaseModel):
    """One measured figure; a value that is None is absent, and `how` says why."""

    value: float | None
    unit: str
    how: str


class ProbeView(BaseModel):
    """Self-measurement of a worker at one moment.

    `gflops` is its canary, `ratio` that by the worker's own baseline, None without a baseline.
    `figures` are its roofs and `host` its surroundings, empty if only the canary was measured.
    """

    moment: str
    measured_at: datetime
    attempt_id: str | None
    gflops: float | None
    configuration: str | None
    baseline_gflops: float | None
    ratio: float | None
    figures: dict[str, FigureView]
    host: dict[str, str | None]


class ProbeList(BaseModel):
    """A worker's latest probes, newest first."""

    worker: str
    probes: list[ProbeView]


class UnderWayView(BaseModel):
    """Current attempt of a worker. `run` (from 1) is None until the first of its `runs` starts."""

    verification_id: str
    kind: str
    benchmark: str
    model: str | None
    attempt: int
    run: int | None
    runs: int
    started_at: datetime | None


class WorkerView(BaseModel):
    """A worker, whether it is alive, and the system it reports.

    Its `state` is "drifted" if its canary is off its own baseline; it then gets no work, and
    `drift` says how far it is off. It is "paused", "draining" or, once it ended for that,
    "drained" by an organiser's order, which `held_by`, `held_at` and `held_because` explain. It is
    "unconfirmed", and gets no work, until an organiser confirms it. A worker on a submitter's
    machine serves only the submission `witness_for`, and is never confirmed. `probe` has its
    latest roofs, `canary` its latest canary, `under_way` its current attempt.
    """

    name: str
    hardware_class: str
    state: str
    alive: bool
    first_seen_at: datetime
    last_seen_at: datetime
    system: dict[str, Any]
    under_way: UnderWayView | None
    drift: str | None
    drifted_at: datetime | None
    held: str | None
    held_at: datetime | None
    held_by: str | None
    held_because: str | None
    confirmed_at: datetime | None
    witness_for: str | None
    probe: ProbeView | None
    canary: ProbeView | None


class WorkerList(BaseModel):
    """Every worker that said hello, the latest first."""

    workers: list[WorkerView]


class AttemptAtWorkerView(BaseModel):
    """An attempt that a worker made, or is making."""

    verification_id: str
    kind: str
    benchmark: str
    model: str | None
    attempt: int
    state: str
    started_at: datetime | None
    seconds: float | None
    failure: str | None


class WorkerDetail(BaseModel):
    """A worker, its latest attempts, and its trainings on its roofline."""

    worker: WorkerView
    attempts: list[AttemptAtWorkerView]
    roofline: RooflineView


class HardwareClassView(BaseModel):
    """A class of machines whose times may be compared; its workers come within 10 % of `roof`.

    `roof` is in GFLOP/s, null until a worker of the class measured it. `origin` names the system
    that registered the class.
    """

    model_config = ConfigDict(from_attributes=True)

    name: str
    accelerator: str | None
    accelerator_count: int
    processor: str
    processor_count: int
    roof: float | None
    origin: str
    created_at: datetime


class HardwareClassList(BaseModel):
    """Every registered class, by name."""

    hardware_classes: list[HardwareClassView]


class ReportAnswer(BaseModel):
    """State and outcome of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None


def probe_view(row: WorkerProbeRow) -> ProbeView:
    """View of a stored probe."""
    return ProbeView(
        moment=row.moment,
        measured_at=row.measured_at,
        attempt_id=row.attempt_id,
        gflops=row.gflops,
        configuration=row.configuration,
        baseline_gflops=row.baseline_gflops,
        ratio=row.ratio,
        figures={name: FigureView(**figure) for name, figure in row.figures.items()},
        host=row.host,
    )


LONGEST_REASON = 2000
REASON = r"\S"


class Hold(BaseModel):
    """Reason to hold a worker or a queue; shown with it and kept."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "new fans on Saturday"}]}
    )

    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


class Resume(BaseModel):
    """Reason to resume, optional."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    reason: str | None = Field(default=None, max_length=LONGEST_REASON)


class QueueHold(Hold):
    """Queue to pause: that of a hardware class, or all if none is named."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"hardware_class": None, "reason": "the database moves"}]},
    )

    hardware_class: str | None = Field(default=None, min_length=1, max_length=200)


class QueueResume(Resume):
    """Pause to end: that of a hardware class, or that of all if none is named."""

    hardware_class: str | None = Field(default=None, min_length=1, max_length=200)
