"""Workers as the API and the pages show them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict

from server.models import WorkerProbeRow
from server.workers.roofline_schemas import RooflineView


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
