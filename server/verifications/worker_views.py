"""Workers, their probes, and the queue of their attempts."""

from datetime import datetime
from typing import Any

from finishline.api.schema import Schema
from finishline.rules.measurements import Figure
from finishline.rules.verification.messages import (
    BoxWord,
)


class ProbeView(Schema):
    """Self-measurement of a worker at one moment.

    `gflops` is its speed check and `ratio` compares that with the worker's own baseline. `figures`
    are its roofs and `host` its surroundings, empty if only the speed check was measured.
    """

    moment: str
    measured_at: datetime
    attempt_id: str | None
    gflops: float | None
    configuration: str | None
    baseline_gflops: float | None
    ratio: float | None
    figures: dict[str, Figure]
    host: dict[str, str | None]


class WorkView(Schema):
    """An attempt, by its number, of a verification of some model."""

    verification_id: str
    kind: str
    benchmark: str
    model: str | None
    attempt: int


class UnderWayView(WorkView):
    """Current attempt of a worker. `run` (from 1) is None until the first of its `runs` starts."""

    run: int | None
    runs: int
    started_at: datetime | None


class WorkerView(Schema):
    """A worker, whether it is alive, and the system it reports.

    Its `state` is "drifted" if its speed check is off its own baseline. It then gets no work, and
    `drift` says how far it is off. It is "paused" by an organiser, as `held_by`, `held_at` and
    `held_because` explain. It is "unconfirmed", and gets no work, until an organiser confirms it.
    `probe` has its latest roofs, `canary` its latest speed check. `box` says whose code submissions
    it trains, in which environments.
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
    probe: ProbeView | None
    canary: ProbeView | None
    box: BoxWord | None


class WorkerList(Schema):
    """A page of workers: the living by name, then the others, the last heard first."""

    workers: list[WorkerView]
    next_cursor: str | None


class QueuedView(WorkView):
    """A queued attempt. `position` counts from 1 within its hardware class, in fair order.

    `expected_start` is by the median length of recent attempts of the same kind, benchmark and
    hardware class; None, with `why_unknown`, without a basis for it. `attempt` is above 1 if an
    earlier one failed without charge to a quota. `by_organiser`: an organiser requested it.
    """

    submission_id: str | None
    runs: int
    position: int
    by_organiser: bool
    asked_at: datetime
    queued_at: datetime
    expected_start: datetime | None
    why_unknown: str | None


class PauseView(Schema):
    """The pause of everything: who set it, since when and why."""

    by: str
    since: datetime
    reason: str


class ClassQueueView(Schema):
    """Queue of one hardware class, and the workers of the class.

    `hardware_class` is None for attempts that any worker may take. `workers` are alive and fit,
    `free` counts the idle ones of these, `out` are alive but off their baseline, `held` are paused.
    If no worker of a class is connected, any other takes its attempts, and times are not compared.
    `waiting` has the next of `waiting_count` to start, without those `under_embargo`.
    """

    hardware_class: str | None
    workers: int
    free: int
    out: int
    held: int
    waiting_count: int
    last_seen_at: datetime | None
    waiting: list[QueuedView]
    under_embargo: int = 0


class QueueView(Schema):
    """Queue of all attempts by hardware class, as of a moment. No attempt starts while `paused`."""

    as_of: datetime
    waiting: int
    paused: PauseView | None
    classes: list[ClassQueueView]


class RoofView(Schema):
    """The best FLOP/s of a floating type over matmul and convolution, in 10^12."""

    precision: str
    tflops: float
    how: str


class RooflinePointView(Schema):
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


class RooflineView(Schema):
    """The measured roofs of a worker and its latest trainings of known work, newest first.

    Seconds are those in training, without evaluation. The median over an attempt's runs.
    """

    worker: str
    roofs: list[RoofView]
    copy_gb_per_second: float | None
    points: list[RooflinePointView]


class AttemptAtWorkerView(WorkView):
    """An attempt that a worker made, or is making."""

    state: str
    started_at: datetime | None
    seconds: float | None
    failure: str | None


class WorkerDetail(Schema):
    """A worker, its latest attempts, and its trainings on its roofline."""

    worker: WorkerView
    attempts: list[AttemptAtWorkerView]
    roofline: RooflineView


class ProbeList(Schema):
    """A worker's latest probes, newest first."""

    worker: str
    probes: list[ProbeView]


class HardwareClassView(Schema):
    """A class of machines whose times may be compared. Its workers come within 10 % of `roof`.

    `roof` is in GFLOP/s, null until a worker of the class measured it. `origin` names the system
    that registered the class.
    """

    name: str
    accelerator: str | None
    accelerator_count: int
    processor: str
    processor_count: int
    roof: float | None
    origin: str
    created_at: datetime


class HardwareClassList(Schema):
    """Every registered class, by name."""

    hardware_classes: list[HardwareClassView]


class ReportAnswer(Schema):
    """State and outcome of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None
