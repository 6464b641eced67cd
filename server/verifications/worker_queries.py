"""Read workers: their state, their probes, their attempts and their rooflines."""

import re
import statistics
from collections.abc import Sequence
from datetime import datetime
from typing import Any, NamedTuple

from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.verification.utilisation import roofline, samples_per_second
from server.base.errors import ContentError
from server.base.fleet import Fleet, state_word
from server.base.models import Attempt, BenchmarkDefinition, Submission, Verification, WorkerRow
from server.base.paging import EPOCH, MICROSECOND
from server.base.standing import REPORT
from server.verifications.queue import read_attempts, runs_under_way
from server.verifications.worker_probes import HAS_FIGURES, IS_CANARY, read_probes
from server.verifications.worker_views import (
    ProbeView,
    UnderWayView,
    WorkerList,
    WorkerView,
    WorkView,
)
from server.verifications.workers import find_worker

LATEST_ATTEMPTS = 20
POINTS = 30
TERA, GIGA = 1e12, 1e9
ARITHMETIC = ("gemm", "convolution")
ALIVE = "alive"
SHOWN_PER_PAGE = 100
LONGEST_CURSOR = 300
CURSOR = re.compile(rf"({ALIVE}|[0-9]{{1,16}})\.(.+)", re.ASCII)


class WorkerCounts(NamedTuple):
    """Number of workers that ever said hello, of the living, and of those at work."""

    total: int
    alive: int
    at_work: int


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


def list_workers(
    session: Session, *, limit: int | None = None, cursor: str | None = None
) -> WorkerList:
    """List a page of workers: the living by name, then the last heard first.

    In this order no hello moves a worker to another page.
    """
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
    """Count the workers: all, the living, and those of them that are at work."""
    fleet = Fleet.read(session)
    running = set(session.scalars(select(Attempt.worker).where(Attempt.state == "running")))
    at_work = sum(worker.name in running for worker in fleet.alive)
    return WorkerCounts(len(fleet.workers), len(fleet.alive), at_work)


def read_worker(session: Session, name: str) -> WorkerDetail:
    """Read a worker with its latest attempts and its roofline. Raises NotFoundError."""
    (worker,) = _views(session, Fleet.read(session), [find_worker(session, name)])
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
    """Roofline of a worker's latest attempts, under the roofs that it measured last."""
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
