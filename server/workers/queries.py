"""Reading workers: who is there, who is out, what each is at and what it measured of itself."""

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import utc_now
from server.errors import NotFoundError
from server.models import WorkerRow
from server.workers.probes import latest_probes
from server.workers.roofline import worker_roofline
from server.workers.schemas import (
    AttemptAtWorkerView,
    ProbeView,
    UnderWayView,
    WorkerDetail,
    WorkerView,
)
from server.workers.work import AttemptWork, attempts_of, running_attempts, runs_under_way

LATEST_ATTEMPTS = 20
UNCONFIRMED = "unconfirmed"


def list_workers(session: Session, *, alive_seconds: float) -> list[WorkerView]:
    """Every worker, the latest first."""
    since = utc_now() - timedelta(seconds=alive_seconds)
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.last_seen_at.desc()))
    roofs = latest_probes(session, with_figures=True)
    canaries = latest_probes(session, with_figures=False)
    at = under_way(session)
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
    """One worker with its latest attempts and its roofline. Raises NotFoundError."""
    found = (w for w in list_workers(session, alive_seconds=alive_seconds) if w.name == name)
    worker = next(found, None)
    if worker is None:
        raise NotFoundError(f"There is no worker {name!r}.")
    return WorkerDetail(
        worker=worker,
        attempts=[_attempt(one) for one in attempts_of(session, name, limit=LATEST_ATTEMPTS)],
        roofline=worker_roofline(session, name),
    )


def under_way(session: Session) -> dict[str, UnderWayView]:
    """What each worker is at, by the worker's name."""
    running = running_attempts(session)
    runs = runs_under_way(session, [attempt.attempt_id for attempt in running])
    return {
        attempt.worker: UnderWayView(
            verification_id=attempt.verification_id,
            kind=attempt.kind,
            benchmark=attempt.benchmark,
            model=attempt.model,
            attempt=attempt.number,
            run=runs[attempt.attempt_id] + 1 if attempt.attempt_id in runs else None,
            runs=attempt.runs,
            started_at=attempt.started_at,
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
    """A stored worker; one that was heard before `since` is not alive."""
    stopping = row.state == "stopping"
    return WorkerView(
        name=row.name,
        hardware_class=row.hardware_class,
        state=_state(row),
        alive=row.last_seen_at >= since and not stopping,
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        system=row.system,
        under_way=under_way,
        drift=row.drift,
        drifted_at=row.drifted_at,
        held=row.held,
        held_at=row.held_at,
        held_by=row.held_by,
        held_because=row.held_because,
        confirmed_at=row.confirmed_at,
        witness_for=row.witness_for,
        probe=probe,
        canary=canary,
    )


def _state(row: WorkerRow) -> str:
    """What it said itself, unless it is to take nothing: the order of whoever holds it first."""
    if row.state == "stopping":
        return row.state
    if row.held is None and row.confirmed_at is None and row.witness_for is None:
        return UNCONFIRMED
    return row.held or ("drifted" if row.drift is not None else row.state)


def _attempt(attempt: AttemptWork) -> AttemptAtWorkerView:
    ended, started = attempt.ended_at, attempt.started_at
    return AttemptAtWorkerView(
        verification_id=attempt.verification_id,
        kind=attempt.kind,
        benchmark=attempt.benchmark,
        model=attempt.model,
        attempt=attempt.number,
        state=attempt.state,
        started_at=started,
        seconds=(ended - started).total_seconds() if ended and started else None,
        failure=attempt.failure["message"] if attempt.failure else None,
    )
