"""Read workers: their state, their attempts and their rooflines."""

import re
import statistics
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import ColumnElement, and_, case, func, not_, or_, select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.verification.utilisation import roofline, samples_per_second
from server.base.database import utc_now
from server.base.errors import ContentError, no_such
from server.base.models import Attempt, BenchmarkDefinition, Submission, Verification, WorkerRow
from server.base.paging import EPOCH, MICROSECOND, cursor_of
from server.base.standing import REPORT
from server.verifications.work import AttemptWork, attempts_of, running_attempts, runs_under_way
from server.verifications.worker_probes import latest_probes
from server.verifications.worker_views import (
    ProbeView,
    UnderWayView,
    WorkerList,
    WorkerView,
    WorkView,
)


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


POINTS = 30
TERA, GIGA = 1e12, 1e9
ARITHMETIC = ("gemm", "convolution")


def worker_roofline(session: Session, name: str) -> RooflineView:
    """Roofline of a worker's latest attempts."""
    probe = latest_probes(session, [name], with_figures=True).get(name)
    roofs = _roofs(probe)
    copy = probe.figures.get("copy") if probe is not None else None
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
    bandwidth = copy.value if copy is not None else None
    points = (_point(row, roofs, bandwidth) for row in rows)
    return RooflineView(
        worker=name,
        roofs=roofs,
        copy_gb_per_second=bandwidth,
        points=[point for point in points if point is not None],
    )


def _roofs(probe: ProbeView | None) -> list[RoofView]:
    best: dict[str, RoofView] = {}
    for name, figure in probe.figures.items() if probe is not None else ():
        what, _, precision = name.partition("_")
        if what not in ARITHMETIC or figure.value is None:
            continue
        if precision not in best or figure.value > best[precision].tflops:
            best[precision] = RoofView(precision=precision, tflops=figure.value, how=figure.how)
    return sorted(best.values(), key=lambda roof: -roof.tflops)


def _point(row: Any, roofs: list[RoofView], bandwidth: float | None) -> RooflinePointView | None:
    report = REPORT.validate_python(row.report)
    work = report.work
    rates = [rate for run in report.runs if (rate := samples_per_second(run)) is not None]
    if work is None or not work.step_bytes or not rates:
        return None
    precision = report.precision.lowest if report.precision is not None else None
    roof = next((roof.tflops for roof in roofs if roof.precision == precision), None)
    found = roofline(
        work,
        seconds_per_step=statistics.median(work.batch_size / rate for rate in rates),
        roof_flops=roof * TERA if roof is not None else None,
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


LATEST_ATTEMPTS = 20
UNCONFIRMED = "unconfirmed"


@dataclass(frozen=True)
class WorkerCounts:
    """Number of workers that ever said hello, of the living, and of those at work."""

    total: int
    alive: int
    at_work: int


def list_workers(
    session: Session, *, alive_seconds: float, limit: int | None = None, cursor: str | None = None
) -> WorkerList:
    """List a page of workers: the living by name, then the last heard first.

    In this order no hello moves a worker to another page.
    """
    since = utc_now() - timedelta(seconds=alive_seconds)
    alive = is_alive(since)
    query = select(WorkerRow).order_by(
        case((alive, 0), else_=1),
        case((alive, WorkerRow.name)),
        WorkerRow.last_seen_at.desc(),
        WorkerRow.name,
    )
    if cursor is not None:
        query = query.where(_is_after(cursor, alive))
    rows = session.scalars(query.limit(None if limit is None else limit + 1)).all()
    page = rows[:limit]
    views = _views(session, page, since)
    more = len(rows) > len(page)
    return WorkerList(
        workers=views, next_cursor=_cursor_of(page[-1], views[-1].alive) if more else None
    )


def is_alive(since: datetime) -> ColumnElement[bool]:
    """Whether a worker was heard since then, and is not stopping."""
    return and_(WorkerRow.last_seen_at >= since, WorkerRow.state != "stopping")


ALIVE = "alive"
SHOWN_PER_PAGE = 100
LONGEST_CURSOR = 300
CURSOR = re.compile(rf"({ALIVE}|[0-9]{{1,16}})\.(.+)", re.ASCII)


def _cursor_of(row: WorkerRow, alive: bool) -> str:
    return f"{ALIVE}.{row.name}" if alive else cursor_of(row.last_seen_at, row.name)


def _is_after(cursor: str, alive: ColumnElement[bool]) -> ColumnElement[bool]:
    found = CURSOR.fullmatch(cursor) if cursor.isprintable() else None
    if found is None:
        raise ContentError("Invalid cursor. Pass the next_cursor of the previous page.")
    moment, name = found.groups()
    if moment == ALIVE:
        return or_(not_(alive), WorkerRow.name > name)
    heard_at = EPOCH + int(moment) * MICROSECOND
    later = and_(WorkerRow.last_seen_at == heard_at, WorkerRow.name > name)
    return and_(not_(alive), or_(WorkerRow.last_seen_at < heard_at, later))


def count_workers(session: Session, *, alive_seconds: float) -> WorkerCounts:
    """Count the workers: all, the living, and those of them that are at work."""
    alive = is_alive(utc_now() - timedelta(seconds=alive_seconds))
    at_work = (Attempt.state == "running", Attempt.worker == WorkerRow.name)
    row = session.execute(
        select(
            func.count(),
            func.count(case((alive, 1))),
            func.count(case((alive & select(Attempt.id).where(*at_work).exists(), 1))),
        ).select_from(WorkerRow)
    ).one()
    return WorkerCounts(*row)


def _views(session: Session, rows: Sequence[WorkerRow], since: datetime) -> list[WorkerView]:
    names = [row.name for row in rows]
    roofs = latest_probes(session, names, with_figures=True)
    canaries = latest_probes(session, names, with_figures=False)
    at = under_way(session, names)
    return [
        worker_view(
            row,
            since=since,
            probe=roofs.get(row.name),
            canary=canaries.get(row.name),
            under_way=at.get(row.name),
        )
        for row in rows
    ]


def read_worker(session: Session, name: str, *, alive_seconds: float) -> WorkerDetail:
    """Read a worker with its latest attempts and its roofline. Raises NotFoundError."""
    row = session.get(WorkerRow, name)
    if row is None:
        raise no_such("worker", name)
    (worker,) = _views(session, [row], utc_now() - timedelta(seconds=alive_seconds))
    return WorkerDetail(
        worker=worker,
        attempts=[_attempt(one) for one in attempts_of(session, name, limit=LATEST_ATTEMPTS)],
        roofline=worker_roofline(session, name),
    )


def under_way(session: Session, names: Collection[str]) -> dict[str, UnderWayView]:
    """Current attempt of each named worker that has one."""
    running = running_attempts(session, Attempt.worker.in_(names))
    runs = runs_under_way(session, [attempt.attempt_id for attempt in running])
    return {
        attempt.worker: UnderWayView.of(
            attempt,
            attempt=attempt.number,
            run=runs[attempt.attempt_id] + 1 if attempt.attempt_id in runs else None,
        )
        for attempt in running
        if attempt.worker is not None
    }


def worker_view(
    row: WorkerRow,
    *,
    since: datetime,
    probe: ProbeView | None,
    canary: ProbeView | None,
    under_way: UnderWayView | None = None,
) -> WorkerView:
    """View of a stored worker; it is not alive if last heard before `since`."""
    stopping = row.state == "stopping"
    return WorkerView.of(
        row,
        state=_state(row),
        alive=row.last_seen_at >= since and not stopping,
        under_way=under_way,
        probe=probe,
        canary=canary,
        box=row.box or None,
    )


def _state(row: WorkerRow) -> str:
    """State to show: an organiser's hold overrides the worker's own state, except "stopping"."""
    if row.state == "stopping":
        return row.state
    if row.held is None and row.confirmed_at is None:
        return UNCONFIRMED
    return row.held or ("drifted" if row.drift is not None else row.state)


def _attempt(attempt: AttemptWork) -> AttemptAtWorkerView:
    ended, started = attempt.ended_at, attempt.started_at
    return AttemptAtWorkerView.of(
        attempt,
        attempt=attempt.number,
        started_at=started,
        seconds=(ended - started).total_seconds() if ended and started else None,
        failure=attempt.failure["message"] if attempt.failure else None,
    )
