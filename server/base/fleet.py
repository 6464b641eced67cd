"""The fleet: which workers are alive, which of them are given work, and why none is."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.database import state_of, utc_now
from server.base.models import PauseRow, User, WorkerRow
from server.base.settings import Settings

EVERYTHING = "*"
# A worker that was silent as long does not come back.
LONGEST_ABSENCE = timedelta(days=7)
OWNERS_IN_CHARGE = ("organiser", "admin")


@dataclass(frozen=True)
class Pause:
    """A pause of everything: who set it, since when and why."""

    by: str
    since: datetime
    reason: str

    @property
    def sentence(self) -> str:
        """Sentence about the pause, for those who wait."""
        return f"every queue is paused by {self.by}: {self.reason}"


def read_pause(session: Session) -> Pause | None:
    """Read the pause of everything; None without one."""
    row = session.get(PauseRow, EVERYTHING)
    return None if row is None else Pause(row.paused_by, row.paused_at, row.paused_because)


@dataclass(frozen=True)
class Fleet:
    """Every worker that ever said hello, by name, with its owner. It is alive if heard `since`."""

    workers: Sequence[WorkerRow]
    since: datetime
    owners: Mapping[int, User] = field(default_factory=dict)
    pause: Pause | None = None

    @classmethod
    def read(cls, session: Session) -> Self:
        """Read all workers, as a transaction sees them."""
        workers = session.scalars(select(WorkerRow).order_by(WorkerRow.name)).all()
        owned = select(User).where(User.id.in_({worker.user_id for worker in workers}))
        owners = {user.id: user for user in session.scalars(owned)}
        silence = timedelta(seconds=state_of(session, Settings).worker_alive_seconds)
        return cls(workers, utc_now() - silence, owners, read_pause(session))

    @cached_property
    def alive(self) -> list[WorkerRow]:
        """Workers that were heard lately and are not stopping."""
        return [
            worker
            for worker in self.workers
            if worker.last_seen_at >= self.since and worker.state != "stopping"
        ]

    @cached_property
    def fit(self) -> list[WorkerRow]:
        """Living workers that are confirmed and on their baseline. One may be paused."""
        return [worker for worker in self.alive if worker.confirmed_at and not worker.drift]

    @cached_property
    def open(self) -> list[WorkerRow]:
        """Workers that are given work: fit ones that are not paused."""
        return [] if self.pause else [worker for worker in self.fit if worker.held is None]

    @cached_property
    def recent(self) -> list[WorkerRow]:
        """Confirmed workers that may come back, the last heard first."""
        since = utc_now() - LONGEST_ABSENCE
        found = [row for row in self.workers if row.confirmed_at and row.last_seen_at >= since]
        return sorted(found, key=lambda row: row.last_seen_at, reverse=True)

    def takers(
        self, wanted: str | None, among: Sequence[WorkerRow] | None = None
    ) -> list[WorkerRow]:
        """Workers that may take an attempt that wants a hardware class, or None for any.

        While its class has a fit worker it waits for that. Without one, any worker may take it.
        """
        workers = self.fit if among is None else among
        same = [worker for worker in workers if worker.hardware_class == wanted]
        return same or list(workers)

    def is_organisers(self, worker: WorkerRow) -> bool:
        """Whether an organiser owns a worker, or the server process itself confirmed it.

        A confirmation without a user is one of `python -m server.admin`.
        """
        by_server = worker.confirmed_at is not None and worker.confirmed_by is None
        owner = self.owners.get(worker.user_id or 0)
        return by_server or (owner is not None and owner.role in OWNERS_IN_CHARGE)

    def why_none(self, wanted: str | None = None) -> str | None:
        """Reason why no worker is given an attempt of a class, and the remedy; None if one is."""
        if self.pause:
            return f"Nothing starts: {self.pause.sentence}."
        if not self.alive:
            return (
                "No worker is connected: start one with 'finishline up' on this machine or "
                "'python -m worker' on another."
            )
        if not any(worker.confirmed_at for worker in self.alive):
            return (
                "No connected worker is confirmed: an organiser confirms one with "
                "'finishline admin worker set NAME confirm' or on the console's page of workers."
            )
        if not self.fit:
            return (
                "Every connected worker is off its baseline speed and gets no work; the page of "
                "the workers shows by how much. They measure again once a minute."
            )
        if all(worker.held for worker in self.takers(wanted)):
            return "Every connected worker is paused; the page of the workers shows by whom."
        return None


def state_word(worker: WorkerRow) -> str:
    """State of a worker: its own, unless it is paused, unconfirmed or off its baseline."""
    if worker.state == "stopping":
        return worker.state
    if worker.held is not None:
        return worker.held
    if worker.confirmed_at is None:
        return "unconfirmed"
    return "drifted" if worker.drift is not None else worker.state
