"""Workers as the API and the pages show them."""

from datetime import datetime
from typing import Any

from pydantic import BaseModel


class WorkerView(BaseModel):
    """A worker, whether it is alive, and the system it found under itself."""

    name: str
    hardware_class: str
    state: str
    alive: bool
    last_seen_at: datetime
    system: dict[str, Any]


class WorkerList(BaseModel):
    """Every worker that said hello, the latest first."""

    workers: list[WorkerView]


class ReportAnswer(BaseModel):
    """What became of a verification after a report."""

    verification_id: str
    state: str
    outcome: str | None
