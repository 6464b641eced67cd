"""Who replays: workers say hello at their start and every few seconds."""

from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import select
from sqlalchemy.orm import Session

from rules.messages import WorkerHello
from server.database import utc_now
from server.models import WorkerRow
from server.workers.schemas import WorkerView


def greet(session: Session, hello: WorkerHello) -> None:
    """Store that a worker is alive, and its system."""
    now = utc_now()
    row = session.get(WorkerRow, hello.system.worker)
    if row is None:
        row = WorkerRow(name=hello.system.worker, first_seen_at=now)
        session.add(row)
    row.hardware_class = hello.system.hardware_class
    row.state = hello.state
    row.system = asdict(hello.system)
    row.last_seen_at = now


def list_workers(session: Session, *, alive_seconds: float) -> list[WorkerView]:
    """Every worker, the latest first."""
    since = utc_now() - timedelta(seconds=alive_seconds)
    rows = session.scalars(select(WorkerRow).order_by(WorkerRow.last_seen_at.desc()))
    return [
        WorkerView(
            name=row.name,
            hardware_class=row.hardware_class,
            state=row.state,
            alive=row.last_seen_at >= since and row.state != "stopping",
            last_seen_at=row.last_seen_at,
            system=row.system,
        )
        for row in rows
    ]
