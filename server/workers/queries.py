"""Reading workers: who is there, who is out, and what each measured of itself."""

from datetime import datetime, timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.database import utc_now
from server.models import WorkerRow
from server.workers.probes import latest_probes
from server.workers.schemas import ProbeView, WorkerView


def list_workers(session: Session, *, alive_seconds: float) -> list[WorkerView]:
    """Every worker, the latest first."""
    since = utc_now() - timedelta(seconds=alive_seconds)
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.last_seen_at.desc()))
    roofs = latest_probes(session, with_figures=True)
    canaries = latest_probes(session, with_figures=False)
    return [
        worker_view(row, since=since, probe=roofs.get(row.name), canary=canaries.get(row.name))
        for row in rows
    ]


def worker_view(
    row: WorkerRow, *, since: datetime, probe: ProbeView | None, canary: ProbeView | None
) -> WorkerView:
    """A stored worker; one that was heard before `since` is not alive."""
    stopping = row.state == "stopping"
    return WorkerView(
        name=row.name,
        hardware_class=row.hardware_class,
        state="drifted" if row.drift is not None and not stopping else row.state,
        alive=row.last_seen_at >= since and not stopping,
        last_seen_at=row.last_seen_at,
        system=row.system,
        drift=row.drift,
        drifted_at=row.drifted_at,
        probe=probe,
        canary=canary,
    )
