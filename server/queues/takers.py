"""How many workers of each hardware class could be sent something this moment."""

from collections import Counter
from collections.abc import Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from server.models import Attempt, WorkerRow
from server.queues.pauses import Pauses, read_pauses


@dataclass(frozen=True)
class Takers:
    """`free` workers by hardware class, less the messages under way to them.

    `present` are the classes with a worker that is alive and not off its baseline; what waits for
    one of them, or for one that is paused, waits for that class and goes to no other.
    """

    free: Counter[str]
    present: Set[str]
    pauses: Pauses

    def only(self, hardware_classes: Set[str]) -> "Takers":
        """The same with the free workers of some classes alone."""
        free = {name: count for name, count in self.free.items() if name in hardware_classes}
        return replace(self, free=Counter(free))

    def may_take(self, hardware_class: str, wanted: str | None) -> bool:
        """Whether a worker of one class may be given what wants another, or None for any."""
        if wanted is None or wanted == hardware_class:
            return True
        return wanted not in self.present and self.pauses.of(wanted) is None


def read_takers(session: Session, *, alive_seconds: float, now: datetime) -> Takers:
    """Who could take work. A worker that is held, at work, off its baseline or silent could not."""
    pauses = read_pauses(session)
    workers = session.execute(
        select(WorkerRow.name, WorkerRow.hardware_class, WorkerRow.state, WorkerRow.held).where(
            WorkerRow.last_seen_at >= now - timedelta(seconds=alive_seconds),
            WorkerRow.state != "stopping",
            WorkerRow.drift.is_(None),
        )
    ).all()
    at_work = set(session.scalars(select(Attempt.worker).where(Attempt.state == "running")))
    free = Counter(
        worker.hardware_class
        for worker in workers
        if worker.state == "idle"
        and worker.held is None
        and worker.name not in at_work
        and pauses.of(worker.hardware_class) is None
    )
    if free:
        free -= _under_way(session, now)  # What falls to zero is left out.
    return Takers(free, {worker.hardware_class for worker in workers}, pauses)


def _under_way(session: Session, now: datetime) -> Counter[str]:
    """Messages that were sent and may still be claimed, by the class they went to."""
    rows = session.execute(
        select(Attempt.sent_to, func.count())
        .where(Attempt.state == "queued", Attempt.sent_to > "", Attempt.send_after > now)
        .group_by(Attempt.sent_to)
    )
    return Counter({str(sent_to): count for sent_to, count in rows})
