"""Workers: confirmation by an organiser, and self-measurements against their own baseline."""

import statistics
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from finishline.rules.measurements import Canary, ProbeAnswer, WorkerProbe
from finishline.rules.verification.utilisation import TOLERANCE
from server.base.database import moment_text, utc_now
from server.base.errors import ConflictError
from server.base.events import DispatchWakeup, WorkerOut, emit, wake_after_commit
from server.base.hardware_classes import register_class, roof_misfit
from server.base.models import User, WorkerProbeRow, WorkerRow
from server.people.audit import Actor, Subject, record
from server.people.dependencies import Caller
from server.verifications.worker_views import ProbeView
from server.verifications.workers import find_worker, require_own_name

HISTORY_LIMIT = 200
SHORT_HISTORY = 40
# The roof of a class, told once, does not show whether a worker still is as fast as it was.
IS_CANARY = (WorkerProbeRow.gflops.is_not(None), WorkerProbeRow.moment != "roof")


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


def record_probe(session: Session, probe: WorkerProbe, *, caller: Caller) -> ProbeAnswer:
    """Store a probe. A canary off the baseline excludes the worker, and one on it admits it."""
    require_own_name(session, probe.worker, caller)
    worker = session.get(WorkerRow, probe.worker)
    if worker is None:
        raise ConflictError(f"Worker {probe.worker!r} is not known; sign on first.")
    row = _row(probe, now=utc_now())
    session.add(row)
    session.flush()
    if probe.canary is not None:
        _hold(session, worker, row, probe.canary)
    return ProbeAnswer(
        drifted=worker.drift is not None,
        baseline_gflops=row.baseline_gflops,
        ratio=row.ratio,
        message=worker.drift,
    )


def set_baseline_anew(session: Session, caller: Caller, name: str) -> None:
    """Reset a worker's baseline: its next readings define it. Raises NotFoundError."""
    worker = find_worker(session, name)
    before = _logged(worker)
    worker.baseline_since = utc_now()
    worker.drift = None
    worker.drifted_at = None
    record(
        session,
        caller,
        "worker.baseline",
        Subject("worker", name),
        reason=None,
        before=before,
        after=_logged(worker),
    )


def _logged(worker: WorkerRow) -> dict[str, str | None]:
    since = worker.baseline_since
    return {"baseline_since": moment_text(since) if since else None, "drift": worker.drift}


def probe_history(session: Session, name: str) -> list[ProbeView]:
    """A worker's latest probes, newest first. Raises NotFoundError."""
    find_worker(session, name)
    rows = session.scalars(
        select(WorkerProbeRow)
        .where(WorkerProbeRow.worker == name)
        .order_by(WorkerProbeRow.id.desc())
        .limit(HISTORY_LIMIT)
    )
    return [ProbeView.of(row) for row in rows]


def canary_readings(session: Session, names: Collection[str]) -> dict[str, list[ProbeView]]:
    """Latest canaries of each named worker that has one, newest first, without roofs."""
    place = func.row_number().over(
        partition_by=WorkerProbeRow.worker, order_by=WorkerProbeRow.id.desc()
    )
    told = select(WorkerProbeRow.id, place.label("place")).where(
        WorkerProbeRow.worker.in_(names), *IS_CANARY
    )
    latest = told.subquery()
    rows = session.scalars(
        select(WorkerProbeRow)
        .join(latest, latest.c.id == WorkerProbeRow.id)
        .where(latest.c.place <= SHORT_HISTORY)
        .order_by(WorkerProbeRow.id.desc())
    )
    found: dict[str, list[ProbeView]] = {}
    for row in rows:
        found.setdefault(row.worker, []).append(ProbeView.of(row))
    return found


def latest_probes(
    session: Session, names: Collection[str], *, with_figures: bool
) -> dict[str, ProbeView]:
    """Latest probe of each named worker that has one: of its roofs, or of its canary."""
    wanted = (WorkerProbeRow.moment == "start",) if with_figures else IS_CANARY
    latest = (
        select(func.max(WorkerProbeRow.id))
        .where(WorkerProbeRow.worker.in_(names), *wanted)
        .group_by(WorkerProbeRow.worker)
    )
    rows = session.scalars(select(WorkerProbeRow).where(WorkerProbeRow.id.in_(latest)))
    return {row.worker: ProbeView.of(row) for row in rows}


def _row(probe: WorkerProbe, *, now: datetime) -> WorkerProbeRow:
    canary = probe.canary
    return WorkerProbeRow(
        worker=probe.worker,
        moment=probe.moment,
        measured_at=now,
        attempt_id=probe.attempt_id,
        gflops=canary.gflops if canary is not None else None,
        configuration=canary.configuration if canary is not None else None,
        figures={name: asdict(figure) for name, figure in probe.figures.items()},
        host=dict(probe.host),
    )


def _hold(session: Session, worker: WorkerRow, row: WorkerProbeRow, canary: Canary) -> None:
    misfit = roof_misfit(session, worker, canary.gflops)
    if misfit is not None:
        _take_out(session, worker, row, misfit)
        return
    drift = drift_of(canary.gflops, baseline_of(_first_readings(session, worker, row)))
    if drift is None:
        worker.drift = worker.drifted_at = None
        return
    row.baseline_gflops, row.ratio = drift.baseline_gflops, drift.ratio
    if not drift.is_too_far:
        worker.drift = worker.drifted_at = None
        return
    _take_out(session, worker, row, drift.sentence())


def _take_out(session: Session, worker: WorkerRow, row: WorkerProbeRow, why: str) -> None:
    if worker.drift is None:
        emit(session, WorkerOut(worker.name, "drifted", why=why))
    worker.drift = why
    worker.drifted_at = worker.drifted_at or row.measured_at


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


def confirm_worker(
    session: Session, actor: Actor, name: str, *, reason: str | None, owner: str | None = None
) -> None:
    """Confirm a worker, so that it gets attempts, and register its hardware class if that is new.

    Without a user the actor is the server's own administration, whose worker counts as the
    organisers', also one that a user confirmed before. It names the `owner` it expects.
    """
    worker = find_worker(session, name)
    confirmed = worker.confirmed_at is not None
    if confirmed and (actor.user_id is not None or worker.confirmed_by is None):
        raise ConflictError(f"Worker {name} is confirmed already.")
    user = session.get(User, worker.user_id) if worker.user_id is not None else None
    if owner is not None and (user is None or user.name != owner):
        raise ConflictError(f"Worker {name} is not {owner}'s: give yours another name.")
    register_class(session, worker, origin=f"worker {name}, confirmed by {actor.name}"[:200])
    worker.confirmed_at, worker.confirmed_by = utc_now(), actor.user_id
    wake_after_commit(session, DispatchWakeup)
    record(
        session,
        actor,
        "worker.confirm",
        Subject("worker", name),
        reason=reason,
        before={"confirmed": confirmed},
        after={"confirmed": True, "hardware_class": worker.hardware_class},
    )
