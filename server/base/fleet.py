"""The fleet: which workers are alive, which get work, why none does, and hardware classes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Self

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.database import Services, state_of, utc_now
from server.base.errors import ContentError
from server.base.models import HardwareClassRow, PauseRow, User, WorkerRow

EVERYTHING = "*"
# A worker silent for longer is gone.
LONGEST_ABSENCE = timedelta(days=7)
OWNERS_IN_CHARGE = ("organiser", "admin")


def read_pause(session: Session) -> PauseRow | None:
    """Read the pause of everything, if there is one."""
    return session.get(PauseRow, EVERYTHING)


@dataclass(frozen=True)
class Fleet:
    """Every worker that ever signed on, by name, with its owner. It is alive if heard `since`."""

    workers: Sequence[WorkerRow]
    since: datetime
    owners: Mapping[int, User] = field(default_factory=dict)
    pause: PauseRow | None = None

    @classmethod
    def read(cls, session: Session) -> Self:
        """Read all workers in the session's transaction."""
        workers = session.scalars(select(WorkerRow).order_by(WorkerRow.name)).all()
        owned = select(User).where(User.id.in_({worker.user_id for worker in workers}))
        owners = {user.id: user for user in session.scalars(owned)}
        silence = timedelta(seconds=state_of(session, Services).settings.worker_alive_seconds)
        return cls(workers, utc_now() - silence, owners, read_pause(session))

    @cached_property
    def alive(self) -> list[WorkerRow]:
        """Workers heard lately, except stopping ones."""
        return [
            worker
            for worker in self.workers
            if worker.last_seen_at >= self.since and worker.state != "stopping"
        ]

    @cached_property
    def fit(self) -> list[WorkerRow]:
        """Living, confirmed workers on their baseline, paused or not."""
        return [worker for worker in self.alive if worker.confirmed_at and not worker.drift]

    @cached_property
    def open(self) -> list[WorkerRow]:
        """Workers getting work: fit and unpaused."""
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
        """Return the fit workers, or those `among`, of the wanted class, else of any class."""
        workers = self.fit if among is None else among
        same = [worker for worker in workers if worker.hardware_class == wanted]
        return same or list(workers)

    def is_organisers(self, worker: WorkerRow) -> bool:
        """Return whether an organiser owns a worker, or `python -m server.admin` confirmed it."""
        by_server = worker.confirmed_at is not None and worker.confirmed_by is None
        owner = self.owners.get(worker.user_id or 0)
        return by_server or (owner is not None and owner.role in OWNERS_IN_CHARGE)

    @property
    def lacks(self) -> str | None:
        """The kind of missing workers, "connected" or "free", or None if work can start."""
        return None if self.open else "free" if self.alive else "connected"

    def why_none(self, wanted: str | None = None) -> str | None:
        """Say why no worker gets an attempt of a class, with the remedy, or None if one does."""
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
    """Return a worker's state, or else "unconfirmed", "drifted" or how it is held."""
    if worker.state == "stopping":
        return worker.state
    if worker.held is not None:
        return worker.held
    if worker.confirmed_at is None:
        return "unconfirmed"
    return "drifted" if worker.drift is not None else worker.state


# A faster machine under a class's name is as wrong as a slower one.
ROOF_TOLERANCE = 0.1
MOST_OF_ROOF = 1 + ROOF_TOLERANCE
OF_A_CLASS = ("accelerator", "accelerator_count", "processor", "processor_count")


def register_class(session: Session, worker: WorkerRow, *, origin: str) -> None:
    """Register a worker's class. Raises ContentError if it exists for another machine."""
    row = session.get(HardwareClassRow, worker.hardware_class)
    if row is not None:
        refuse_misfit(row, worker.system)
        return
    system = worker.system
    session.add(
        HardwareClassRow(
            name=worker.hardware_class,
            **{name: system[name] for name in OF_A_CLASS},
            origin=origin,
            created_at=utc_now(),
        )
    )


def refuse_misfit(row: HardwareClassRow, system: Mapping[str, Any]) -> None:
    """Raise ContentError unless a worker has its class's accelerators, or else processor count."""
    for name in ("accelerator", "accelerator_count", "processor_count"):
        expected, found = getattr(row, name), system[name]
        if found != expected and not (name == "processor_count" and may_have(row, found)):
            raise ContentError(
                f"system.{name}: {found!r}; hardware class {row.name} has {expected!r}. Give this "
                "worker the name of another class in FINISHLINE_HARDWARE_CLASS."
            )


def may_have(row: HardwareClassRow, processors: int | None) -> bool:
    """Return whether a class may have so many processors: with accelerators it may have any."""
    if row.accelerator_count or not processors or not row.processor_count:
        return True
    return processors == row.processor_count


def roof_misfit(
    session: Session, worker: WorkerRow, gflops: float, *, may_raise: bool
) -> str | None:
    """Say how far a speed check is off its class's peak, or None within a tenth of it.

    A confirmed worker's first speed check sets the peak. `may_raise` lets a faster one replace it:
    the earlier one came from a busy machine.
    """
    row = session.get(HardwareClassRow, worker.hardware_class)
    if row is None or worker.confirmed_at is None:
        return None
    if gflops > 0 and (row.roof is None or (may_raise and gflops > row.roof * MOST_OF_ROOF)):
        row.roof = gflops
    if row.roof is None or row.roof * (1 - ROOF_TOLERANCE) <= gflops <= row.roof * MOST_OF_ROOF:
        return None
    ratio = gflops / row.roof
    side = "slower" if ratio < 1 else "faster"
    return (
        f"{100 * abs(ratio - 1):.1f} % {side} than hardware class {row.name} with its roof of "
        f"{row.roof:.4g} GFLOP/s, where {100 * ROOF_TOLERANCE:g} % is allowed: another machine"
    )
