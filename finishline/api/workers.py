"""Response models of workers, their probes, rooflines and hardware classes."""

from datetime import datetime
from typing import Any

from pydantic import ConfigDict

from finishline.api.schema import Schema
from finishline.rules.measurements import Figure
from finishline.rules.verification.messages import BoxWord


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

    Seconds are those in training, without evaluation; the median over an attempt's runs.
    """

    worker: str
    roofs: list[RoofView]
    copy_gb_per_second: float | None
    points: list[RooflinePointView]


class ProbeView(Schema):
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
    figures: dict[str, Figure]
    host: dict[str, str | None]


class ProbeList(Schema):
    """A worker's latest probes, newest first."""

    worker: str
    probes: list[ProbeView]


class UnderWayView(Schema):
    """Current attempt of a worker. `run` (from 1) is None until the first of its `runs` starts."""

    verification_id: str
    kind: str
    benchmark: str
    model: str | None
    attempt: int
    run: int | None
    runs: int
    started_at: datetime | None


class WorkerView(Schema):
    """A worker, whether it is alive, and the system it reports.

    Its `state` is "drifted" if its canary is off its own baseline; it then gets no work, and
    `drift` says how far it is off. It is "paused" by an organiser's order, which `held_by`,
    `held_at` and `held_because` explain. It is "unconfirmed", and gets no work, until an organiser
    confirms it. `probe` has its latest roofs, `canary` its latest canary, `under_way` its
    current attempt. `box` tells whose packages it trains, in which environments; null if it never
    said.
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
    """A page of workers: the living by name, then the others, the last heard first.

    `next_cursor` requests the next page.
    """

    workers: list[WorkerView]
    next_cursor: str | None


class AttemptAtWorkerView(Schema):
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


class WorkerDetail(Schema):
    """A worker, its latest attempts, and its trainings on its roofline."""

    worker: WorkerView
    attempts: list[AttemptAtWorkerView]
    roofline: RooflineView


class HardwareClassView(Schema):
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


class HardwareClassList(Schema):
    """Every registered class, by name."""

    hardware_classes: list[HardwareClassView]


class ReportAnswer(Schema):
    """State and outcome of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None
