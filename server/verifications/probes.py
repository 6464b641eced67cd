"""Self-measurements of workers, against their own baseline."""

import statistics
from collections.abc import Collection
from dataclasses import asdict

from sqlalchemy import ColumnElement, and_, func, or_, select
from sqlalchemy.orm import Session

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
from server.verifications.worker_views import ProbeList, ProbeView
from server.verifications.workers import find_worker, refuse_unstorable, require_own_name

router = Routes(tags=["workers"])
HISTORY_LIMIT = 200
HAS_FIGURES = WorkerProbeRow.moment == "start"
# The roof of a class, told once, does not show whether a worker still is as fast as it was.
IS_CANARY = and_(WorkerProbeRow.gflops.is_not(None), WorkerProbeRow.moment != "roof")
BASELINE_READINGS = 5
FEWEST_READINGS = 3


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
        baseline = _baseline_of(session, worker, row)
        if why is None and baseline:
            row.baseline_gflops, row.ratio = baseline, canary.gflops / baseline
            why = _why_too_far(row.ratio, baseline)
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


def _baseline_of(session: Session, worker: WorkerRow, row: WorkerProbeRow) -> float | None:
    """The median of the first five readings before this one; None with fewer than three.

    None of them was too far off. A worker that loses a little every day keeps the baseline of its
    first days.
    """
    before = select(WorkerProbeRow.gflops).where(
        WorkerProbeRow.worker == worker.name,
        WorkerProbeRow.configuration == row.configuration,
        WorkerProbeRow.id < row.id,
        or_(
            WorkerProbeRow.ratio.is_(None),
            WorkerProbeRow.ratio.between(1 - TOLERANCE, 1 + TOLERANCE),
        ),
    )
    if worker.baseline_since is not None:
        before = before.where(WorkerProbeRow.measured_at >= worker.baseline_since)
    rows = session.scalars(before.order_by(WorkerProbeRow.id).limit(BASELINE_READINGS))
    first = [gflops for gflops in rows if gflops is not None]
    return statistics.median(first) if len(first) >= FEWEST_READINGS else None


def _why_too_far(ratio: float, baseline_gflops: float) -> str | None:
    """Sentence on a speed that is more than 3 % off its baseline, in either direction."""
    if abs(ratio - 1.0) <= TOLERANCE:
        return None
    side = "slower" if ratio < 1 else "faster"
    return (
        f"{100 * abs(ratio - 1):.1f} % {side} than its own baseline of {baseline_gflops:.4g} "
        f"GFLOP/s, where {100 * TOLERANCE:g} % is allowed: look for a busy neighbour, heat, a "
        "power limit or another driver"
    )


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
