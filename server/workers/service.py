"""Who replays: workers say hello at their start and every few seconds."""

from dataclasses import asdict
from datetime import timedelta

from sqlalchemy import select, update
from sqlalchemy.orm import Session

from rules.messages import WorkerHello
from server.database import insert_missing, utc_now
from server.models import WorkerRow
from server.workers.schemas import WorkerView


def greet(session: Session, hello: WorkerHello) -> None:
    """Store that a worker is alive, and its system."""
    now = utc_now()
    seen = {
        "hardware_class": hello.system.hardware_class,
        "state": hello.state,
        "system": asdict(hello.system),
        "last_seen_at": now,
    }
    insert_missing(session, WorkerRow, name=hello.system.worker, first_seen_at=now, **seen)
    session.execute(update(WorkerRow).where(WorkerRow.name == hello.system.worker).values(**seen))


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
