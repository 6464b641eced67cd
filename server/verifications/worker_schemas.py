"""Workers, the queue and rooflines as the API and the pages show them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from server.base.models import WorkerProbeRow


class QueuedView(BaseModel):
    """An attempt that waits. `position` counts from 1 within its hardware class, in fair order.

    `expected_start` is by the median length of recent attempts of the same kind, benchmark and
    hardware class; None, with `why_unknown`, where there is nothing to go by. `attempt` is above 1
    where an earlier one failed at nobody's cost; `by_organiser`: an organiser asked for it.
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
    """Who paused a queue, since when and why."""

    by: str
    since: datetime
    reason: str


class ClassQueueView(BaseModel):
    """What waits for one hardware class, and who is there to take it.

    `hardware_class` is None for what any worker may take. `workers` are alive and in, `free` of
    these do nothing, `out` are alive but off their baseline, `held` are paused or drained.
    `last_seen_at` is when a worker of the class was last heard of, None if never. Where no worker
    of a class is connected any other takes its attempts, and times are not compared. `waiting` has
    the next of `waiting_count` to start. While it is `paused` nothing of the class
    starts. `under_embargo` of them have places of their own and are not shown.
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
    """Everything that waits for a worker, by hardware class; `as_of` is when that was so.

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
    """One attempt's training: FLOP per byte, and the 10^12 FLOP/s it came to.

    `attainable_tflops` is what the roofs allow at that intensity and `bound` which of them does;
    None where the worker did not measure them.
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
    """What a worker measured of itself at one moment.

    `gflops` is its canary, `ratio` that by the worker's own baseline, None where it has none yet.
    `figures` are its roofs and `host` its surroundings, empty where only the canary was measured.
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
    """The attempt a worker is at. `run` (from 1) is None before the first of its `runs` started."""

    verification_id: str
    kind: str
    benchmark: str
    model: str | None
    attempt: int
    run: int | None
    runs: int
    started_at: datetime | None


class WorkerView(BaseModel):
    """A worker, whether it is alive, and the system it found under itself.

    Its `state` is "drifted" where its canary is off its own baseline; it then gets no work, and
    `drift` says how far it is off; it is "paused", "draining" or, once it ended for that,
    "drained" where an organiser said so, which `held_by`, `held_at` and `held_because` explain;
    it is "unconfirmed", and gets no work, until an organiser confirms it. One on a submitter's
    machine serves the submission `witness_for` alone, and nobody confirms it.
    `probe` has its latest roofs, `canary` its latest canary. `under_way` is what it is at.
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
    """An attempt that a worker made, or is at."""

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
    """A worker, its latest attempts, and where its trainings stand under its roofs."""

    worker: WorkerView
    attempts: list[AttemptAtWorkerView]
    roofline: RooflineView


class HardwareClassView(BaseModel):
    """A class of machines whose times may be compared; its workers come within 10 % of `roof`.

    `roof` is in GFLOP/s, null until a worker of the class measured it. `origin` says whose system
    the class was registered from.
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
    """What became of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None


def probe_view(row: WorkerProbeRow) -> ProbeView:
    """A stored probe."""
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
    """Why a worker takes nothing, or nothing of a queue starts; shown with it and kept."""

    model_config = ConfigDict(
        extra="forbid", json_schema_extra={"examples": [{"reason": "new fans on Saturday"}]}
    )

    reason: str = Field(min_length=1, max_length=LONGEST_REASON, pattern=REASON)


class Resume(BaseModel):
    """Why it goes on, if there is something to say."""

    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{}]})

    reason: str | None = Field(default=None, max_length=LONGEST_REASON)


class QueueHold(Hold):
    """Which queue nothing starts of: that of a hardware class, or of all where none is named."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={"examples": [{"hardware_class": None, "reason": "the database moves"}]},
    )

    hardware_class: str | None = Field(default=None, min_length=1, max_length=200)


class QueueResume(Resume):
    """Which pause ends: that of a hardware class, or that of all where none is named."""

    hardware_class: str | None = Field(default=None, min_length=1, max_length=200)
