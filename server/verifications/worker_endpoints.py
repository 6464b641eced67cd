"""Read, pause, resume and confirm workers, by the API or the console's form."""

import re
import statistics
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, Self

from fastapi import Query
from pydantic import BaseModel, Field, StrictBool, model_validator
from pydantic_core import PydanticCustomError
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.verification.messages import BoxWord, WorkerSystem
from finishline.rules.verification.utilisation import roofline, samples_per_second
from server.base.database import find_row
from server.base.errors import ConflictError, ContentError
from server.base.fleet import Fleet, state_word
from server.base.forms import Body, Sentence, example
from server.base.models import (
    Attempt,
    BenchmarkDefinition,
    HardwareClassRow,
    Submission,
    Verification,
    WorkerRow,
)
from server.base.paging import EPOCH, MICROSECOND
from server.base.standing import REPORT
from server.people.callers import Caller
from server.people.declared import Form, Routes
from server.verifications import workers
from server.verifications.queue import QueueView, WorkView, get_queue, read_attempts, runs_under_way
from server.verifications.workers import HAS_FIGURES, IS_CANARY, ProbeView, read_probes

LATEST_ATTEMPTS = 20
POINTS = 30
TERA, GIGA = 1e12, 1e9
ARITHMETIC = ("gemm", "convolution")
ALIVE = "alive"
SHOWN_PER_PAGE = 100
LONGEST_CURSOR = 300
CURSOR = re.compile(rf"({ALIVE}|[0-9]{{1,16}})\.(.+)", re.ASCII)
CONSOLE = "/console/workers"
EVERY_QUEUE, WORKER = "everything", "worker:"


class UnderWayView(WorkView):
    """Current attempt of a worker. `run` (from 1) is None until the first of its `runs` starts."""

    run: int | None
    runs: int
    started_at: datetime | None


class WorkerView(Schema):
    """A worker, whether it is alive, and the system it reports.

    Its `state` is "drifted" while its speed check is off its baseline, by `drift`. It is "paused"
    by an organiser (`held_by`, `held_at`, `held_because`), and "unconfirmed" until an organiser
    confirms it. In each of these it gets no work. `probe` has its latest roofs, `canary` its latest
    speed check. `box` names the users and environments whose code submissions it trains.
    """

    name: str
    hardware_class: str
    state: str
    alive: bool
    first_seen_at: datetime
    last_seen_at: datetime
    system: WorkerSystem
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


class RoofView(Schema):
    """The best FLOP/s of a floating type over matmul and convolution, in 10^12."""

    precision: str
    tflops: float
    how: str


class RooflinePointView(Schema):
    """Training of one attempt: FLOP per byte, and the achieved 10^12 FLOP/s.

    `attainable_tflops` is the limit of the roofs at that intensity, and `bound` names the limiting
    roof. Both are null without measured roofs.
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

    A point has the median over an attempt's runs, from seconds of training without evaluation.
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


class HardwareClassView(Schema):
    """A class of machines with comparable times. Its workers come within 10 % of `roof`.

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


class QueueChange(Body):
    """Whether every queue is paused. A pause needs a reason, which is shown and stored."""

    model_config = example(paused=True, reason="new fans on Saturday")

    paused: StrictBool
    reason: Sentence | None = None

    @model_validator(mode="after")
    def _has_reason(self) -> Self:
        if self.paused and self.reason is None:
            raise PydanticCustomError("no_reason", "to pause takes a reason")
        return self


class WorkerChange(Body):
    """Pause a worker with a reason that is shown, resume it, or confirm its hardware class."""

    model_config = example(paused=True, reason="new fans on Saturday")

    paused: StrictBool | None = None
    confirmed: Literal[True] | None = None
    reason: Sentence | None = None

    @model_validator(mode="after")
    def _is_one_change(self) -> Self:
        if (self.paused is None) is (self.confirmed is None):
            raise PydanticCustomError("one_change", "expected either paused or confirmed")
        if self.paused and self.reason is None:
            raise PydanticCustomError("no_reason", "to pause takes a reason")
        return self


class Order(BaseModel):
    """An action of the console's form, on a worker or on every queue."""

    what: str = Field(min_length=1, pattern=f"^({EVERY_QUEUE}$|{WORKER}.)")
    action: Literal["pause", "resume", "confirm", "baseline"]
    reason: Sentence


# Changes of a worker by the form's action, and the words after them.
CHANGES: dict[str, tuple[Callable[..., None], str]] = {
    "pause": (workers.pause_worker, "paused"),
    "resume": (workers.resume_worker, "no longer paused"),
    "confirm": (workers.confirm_worker, "confirmed"),
    "baseline": (workers.set_baseline_anew, "measured anew from its next readings"),
}
MOST_SHOWN = 1000
router = Routes(tags=["workers"])
LimitDep = Annotated[int, Query(ge=1, le=MOST_SHOWN)]
CursorDep = Annotated[str | None, Query(max_length=LONGEST_CURSOR)]


class WorkerCounts(NamedTuple):
    """Number of workers: ever signed on, alive, and at work."""

    total: int
    alive: int
    at_work: int


@router.read("/workers")
def list_workers(
    session: Session, limit: LimitDep = SHOWN_PER_PAGE, cursor: CursorDep = None
) -> WorkerList:
    """List all workers that ever signed on: the living by name, then the last heard."""
    # In this order no sign-on moves a worker to another page.
    fleet = Fleet.read(session)
    alive = set(fleet.alive)

    def place(row: WorkerRow) -> tuple[bool, int, str]:
        silent = 0 if row in alive else (EPOCH - row.last_seen_at) // MICROSECOND
        return row not in alive, silent, row.name

    rows = sorted(fleet.workers, key=place)
    if cursor is not None:
        after = _place_of(cursor)
        rows = [row for row in rows if place(row) > after]
    page, following = rows[:limit], None
    if len(rows) > len(page):
        is_silent, heard, name = place(page[-1])
        following = f"{-heard if is_silent else ALIVE}.{name}"
    return WorkerList(workers=_views(session, fleet, page), next_cursor=following)


def _place_of(cursor: str) -> tuple[bool, int, str]:
    found = CURSOR.fullmatch(cursor) if cursor.isprintable() else None
    if found is None:
        raise ContentError("Invalid cursor. Pass the next_cursor of the previous page.")
    heard, name = found.groups()
    return (False, 0, name) if heard == ALIVE else (True, -int(heard), name)


def count_workers(session: Session) -> WorkerCounts:
    """Count the workers: all, the living, and the living at work."""
    fleet = Fleet.read(session)
    running = set(session.scalars(select(Attempt.worker).where(Attempt.state == "running")))
    at_work = sum(worker.name in running for worker in fleet.alive)
    return WorkerCounts(len(fleet.workers), len(fleet.alive), at_work)


@router.read("/workers/{name}")
def get_worker(session: Session, name: str) -> WorkerDetail:
    """Read a worker: its current attempt, its latest attempts, and its roofline."""
    (worker,) = _views(session, Fleet.read(session), [find_row(session, WorkerRow, name)])
    own = select(Attempt.id).where(Attempt.worker == name).order_by(Attempt.started_at.desc())
    ids = session.scalars(own.limit(LATEST_ATTEMPTS)).all()
    attempts = [
        AttemptAtWorkerView.of(
            row,
            seconds=(row.ended_at - row.started_at).total_seconds() if row.ended_at else None,
            failure=row.failure["message"] if row.failure else None,
        )
        for row in reversed(read_attempts(session, Attempt.id.in_(ids)))
    ]
    return WorkerDetail(
        worker=worker, attempts=attempts, roofline=_roofline_of(session, name, worker.probe)
    )


def _views(session: Session, fleet: Fleet, rows: Sequence[WorkerRow]) -> list[WorkerView]:
    names = [row.name for row in rows]
    roofs = read_probes(session, names, HAS_FIGURES)
    canaries = read_probes(session, names, IS_CANARY)
    running = read_attempts(session, Attempt.state == "running", Attempt.worker.in_(names))
    runs = runs_under_way(session, [attempt.id for attempt in running])
    under_way = {
        attempt.worker: UnderWayView.of(
            attempt, run=runs[attempt.id] + 1 if attempt.id in runs else None
        )
        for attempt in running
    }
    return [
        WorkerView.of(
            row,
            state=state_word(row),
            alive=row in fleet.alive,
            under_way=under_way.get(row.name),
            probe=next(iter(roofs.get(row.name, [])), None),
            canary=next(iter(canaries.get(row.name, [])), None),
            box=row.box or None,
        )
        for row in rows
    ]


def _roofline_of(session: Session, name: str, probe: ProbeView | None) -> RooflineView:
    figures = probe.figures if probe is not None else {}
    roofs = [
        RoofView(precision=found.partition("_")[2], tflops=figure.value, how=figure.how)
        for found, figure in figures.items()
        if found.partition("_")[0] in ARITHMETIC and figure.value is not None
    ]
    roofs.sort(key=lambda roof: -roof.tflops)
    best = {roof.precision: roof for roof in reversed(roofs)}
    bandwidth = figures["copy"].value if "copy" in figures else None
    rows = session.execute(
        select(
            Verification.id,
            Verification.report,
            BenchmarkDefinition.benchmark_id,
            Submission.model,
        )
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(BenchmarkDefinition, BenchmarkDefinition.sha256 == Verification.benchmark_sha256)
        .outerjoin(Submission, Submission.id == Verification.submission_id)
        .where(Attempt.worker == name, Attempt.state == "done", Verification.report.is_not(None))
        .order_by(Attempt.ended_at.desc())
        .limit(POINTS)
    )
    points = (_point(row, best, bandwidth) for row in rows)
    return RooflineView(
        worker=name,
        roofs=[roof for roof in roofs if best[roof.precision] is roof],
        copy_gb_per_second=bandwidth,
        points=[point for point in points if point is not None],
    )


def _point(
    row: Any, best: dict[str, RoofView], bandwidth: float | None
) -> RooflinePointView | None:
    report = REPORT.validate_python(row.report)
    work = report.work
    rates = [rate for run in report.runs if (rate := samples_per_second(run)) is not None]
    if work is None or not work.step_bytes or not rates:
        return None
    precision = report.precision.lowest if report.precision is not None else None
    roof = best.get(precision or "")
    found = roofline(
        work,
        seconds_per_step=statistics.median(work.batch_size / rate for rate in rates),
        roof_flops=roof.tflops * TERA if roof is not None else None,
        bytes_per_second=bandwidth * GIGA if bandwidth is not None else None,
    )
    attainable = found.attainable_flops
    return RooflinePointView(
        verification_id=row.id,
        benchmark=row.benchmark_id,
        model=row.model,
        precision=precision,
        intensity=work.step_flops / work.step_bytes,
        achieved_tflops=found.achieved_flops / TERA,
        attainable_tflops=attainable / TERA if attainable is not None else None,
        share_of_attainable=found.of_attainable,
        bound=found.bound,
    )


@router.command("/workers/{name}/baseline", role="organiser", status=204)
def renew_baseline(session: Session, caller: Caller, name: str) -> None:
    """Reset a worker's baseline to its next readings. For organisers."""
    workers.set_baseline_anew(session, caller, name)


@router.command("/workers/{name}", role="organiser", method="PATCH")
def set_worker(session: Session, caller: Caller, name: str, body: WorkerChange) -> WorkerDetail:
    """Pause a worker, resume it, or confirm its hardware class, so that it gets attempts.

    A paused worker finishes its current attempt. 409 if it is so already.
    """
    action = "confirm" if body.confirmed else "pause" if body.paused else "resume"
    CHANGES[action][0](session, caller, name, reason=body.reason)
    return get_worker(session, name)


@router.command("/queue", role="organiser", method="PATCH")
def set_queue(session: Session, caller: Caller, body: QueueChange) -> QueueView:
    """Pause the queue of every hardware class, or end the pause. Running attempts go on.

    409 if it is so already.
    """
    if body.paused:
        workers.pause_everything(session, caller, reason=body.reason or "")
    else:
        workers.resume_everything(session, caller, reason=body.reason)
    return get_queue(session)


@router.command(None, Form(CONSOLE, "{0}"), role="organiser")
def change_worker(session: Session, caller: Caller, body: Order) -> str:
    """Pause, resume, confirm or measure anew. Returns the sentence for the page."""
    change, words = CHANGES[body.action]
    if body.what != EVERY_QUEUE:
        name = body.what.removeprefix(WORKER)
        change(session, caller, name, reason=body.reason)
        return f"Worker {name} is {words}."
    if body.action == "pause":
        workers.pause_everything(session, caller, reason=body.reason)
    elif body.action == "resume":
        workers.resume_everything(session, caller, reason=body.reason)
    else:
        raise ConflictError(f"A queue can't be {words}: choose a worker, or pause the queue.")
    return f"Every queue is {words}."


@router.read("/hardware-classes")
def list_hardware_classes(session: Session) -> HardwareClassList:
    """List every registered hardware class. The systems of submissions have to match one."""
    rows = session.scalars(select(HardwareClassRow).order_by(HardwareClassRow.name))
    return HardwareClassList(
        hardware_classes=[HardwareClassView.model_validate(row) for row in rows]
    )
