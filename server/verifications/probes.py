"""Self-measurements of workers, against their own baseline."""

import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

from finishline.api.workers import ProbeList, ProbeView
from finishline.rules.measurements import ProbeAnswer, WorkerProbe
from finishline.rules.verification.utilisation import TOLERANCE
from server.base.database import utc_now
from server.base.errors import ConflictError
from server.base.events import WorkerOut, emit
from server.base.fleet import roof_misfit
from server.base.models import WorkerProbeRow, WorkerRow
from server.people.audit import audited
from server.people.callers import Caller
from server.people.declared import Routes
from server.verifications.workers import find_worker, refuse_unstorable, require_own_name

router = Routes(tags=["workers"])
HISTORY_LIMIT = 200
HAS_FIGURES = WorkerProbeRow.moment == "start"
# The roof of a class, told once, does not show whether a worker still is as fast as it was.
IS_CANARY = and_(WorkerProbeRow.gflops.is_not(None), WorkerProbeRow.moment != "roof")
BASELINE_READINGS = 5
FEWEST_READINGS = 3


@dataclass(frozen=True)
class Drift:
    """Distance of a speed check from its worker's baseline. `ratio` is above 1 if it is faster."""

    baseline_gflops: float
    ratio: float

    @property
    def is_too_far(self) -> bool:
        """Whether the worker is off by more than 3 %, in either direction."""
        return abs(self.ratio - 1.0) > TOLERANCE

    def sentence(self) -> str:
        """Sentence on the fault and its remedy."""
        side = "slower" if self.ratio < 1 else "faster"
        return (
            f"{100 * abs(self.ratio - 1):.1f} % {side} than its own baseline of "
            f"{self.baseline_gflops:.4g} GFLOP/s, where {100 * TOLERANCE:g} % is allowed: look for "
            "a busy neighbour, heat, a power limit or another driver"
        )


def baseline_of(readings_gflops: Sequence[float]) -> float | None:
    """The median of a worker's first five readings, oldest first, None with fewer than three.

    A worker that loses a little every day keeps the baseline of its first days.
    """
    first = readings_gflops[:BASELINE_READINGS]
    if len(first) < FEWEST_READINGS:
        return None
    return float(statistics.median(first))


def drift_of(reading_gflops: float, baseline_gflops: float | None) -> Drift | None:
    """A reading compared with its baseline, None where there is no baseline yet."""
    if baseline_gflops is None or baseline_gflops <= 0:
        return None
    return Drift(baseline_gflops, reading_gflops / baseline_gflops)


@router.command("/workers/probes", role="worker")
def post_probe(session: Session, caller: Caller, body: WorkerProbe) -> ProbeAnswer:
    """Store a worker's self-measurement. A speed check off the worker's baseline excludes it."""
    refuse_unstorable(body)
    require_own_name(session, body.worker, caller)
    worker = session.get(WorkerRow, body.worker)
    if worker is None:
        raise ConflictError(f"Worker {body.worker!r} is not known; sign on first.")
    canary = body.canary
    row = WorkerProbeRow(
        worker=body.worker,
        moment=body.moment,
        measured_at=utc_now(),
        attempt_id=body.attempt_id,
        gflops=canary.gflops if canary is not None else None,
        configuration=canary.configuration if canary is not None else None,
        figures={name: asdict(figure) for name, figure in body.figures.items()},
        host=dict(body.host),
    )
    session.add(row)
    session.flush()
    if canary is not None:
        why = roof_misfit(session, worker, canary.gflops)
        drift = drift_of(canary.gflops, baseline_of(_first_readings(session, worker, row)))
        if why is None and drift is not None:
            row.baseline_gflops, row.ratio = drift.baseline_gflops, drift.ratio
            why = drift.sentence() if drift.is_too_far else None
        if why is not None and worker.drift is None:
            emit(session, WorkerOut(worker.name, "drifted", why=why))
        worker.drift = why
        worker.drifted_at = (worker.drifted_at or row.measured_at) if why else None
    return ProbeAnswer(
        drifted=worker.drift is not None,
        baseline_gflops=row.baseline_gflops,
        ratio=row.ratio,
        message=worker.drift,
    )


def _first_readings(session: Session, worker: WorkerRow, row: WorkerProbeRow) -> list[float]:
    """Readings that define a baseline: before this one, and none that was too far off."""
    of_old = select(WorkerProbeRow.gflops).where(
        WorkerProbeRow.worker == worker.name,
        WorkerProbeRow.configuration == row.configuration,
        WorkerProbeRow.id < row.id,
        or_(
            WorkerProbeRow.ratio.is_(None),
            WorkerProbeRow.ratio.between(1 - TOLERANCE, 1 + TOLERANCE),
        ),
    )
    if worker.baseline_since is not None:
        of_old = of_old.where(WorkerProbeRow.measured_at >= worker.baseline_since)
    first = session.scalars(of_old.order_by(WorkerProbeRow.id).limit(BASELINE_READINGS))
    return [value for value in first if value is not None]


def set_baseline_anew(
    session: Session, caller: Caller, name: str, *, reason: str | None = None
) -> None:
    """Reset a worker's baseline: its next readings define it. Raises NotFoundError."""
    worker = find_worker(session, name)
    with audited(session, caller, "worker.baseline", worker, reason=reason):
        worker.baseline_since = utc_now()
        worker.drift = worker.drifted_at = None


def read_probes(
    session: Session, names: Collection[str], *which: ColumnElement[bool], each: int = 1
) -> dict[str, list[ProbeView]]:
    """The latest probes of each named worker that has one, newest first."""
    place = func.row_number().over(
        partition_by=WorkerProbeRow.worker, order_by=WorkerProbeRow.id.desc()
    )
    own = WorkerProbeRow.worker.in_(names)
    latest = select(WorkerProbeRow.id, place.label("place")).where(own, *which).subquery()
    rows = session.scalars(
        select(WorkerProbeRow)
        .join(latest, latest.c.id == WorkerProbeRow.id)
        .where(latest.c.place <= each)
        .order_by(WorkerProbeRow.id.desc())
    )
    found: dict[str, list[ProbeView]] = {}
    for row in rows:
        found.setdefault(row.worker, []).append(ProbeView.of(row))
    return found


@router.read("/workers/{name}/probes")
def list_probes(session: Session, name: str) -> ProbeList:
    """List a worker's roofs and speed checks over time, the newest first."""
    find_worker(session, name)
    probes = read_probes(session, [name], each=HISTORY_LIMIT).get(name, [])
    return ProbeList(worker=name, probes=probes)
