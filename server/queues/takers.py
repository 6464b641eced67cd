"""The workers that could be sent an attempt this moment, by hardware class."""

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from server.models import Attempt, WorkerRow
from server.queues.pauses import Pauses, read_pauses

LONGEST_SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Takers:
    """`free` has the names of free workers by hardware class, less those with a message under way.

    `present` are the confirmed workers that are alive and on their baseline, by class; what waits
    for one of them, or for one that is paused, waits for that class and goes to no other.
    `witnesses` has the free workers with a witness's token, by the submission that they serve.
    """

    free: dict[str, list[str]]
    present: Mapping[str, Sequence[str]]
    pauses: Pauses
    owners: Mapping[str, int] = field(default_factory=dict)
    witnesses: Mapping[str, list[str]] = field(default_factory=dict)

    def only(self, hardware_classes: Set[str]) -> "Takers":
        """The same with the free workers of some classes alone."""
        free = {name: free for name, free in self.free.items() if name in hardware_classes}
        return replace(self, free=free)

    def may_take(self, hardware_class: str, wanted: str | None) -> bool:
        """Whether a worker of one class may be given what wants another, or None for any."""
        if wanted is None or wanted == hardware_class:
            return True
        return wanted not in self.present and self.pauses.of(wanted) is None

    def draw(
        self,
        hardware_class: str,
        barred: Callable[[set[int]], set[int]],
        *,
        never: Set[int | None] = frozenset(),
    ) -> str | None:
        """Take one of the free workers of a class out, at random, so that nobody can foresee it.

        `barred` says of the owners of the class's workers which should not be drawn: theirs are
        only where there is no other. None where the others are at work, or all are those of owners
        that are `never` drawn.
        """
        named = [
            name
            for name in self.present.get(hardware_class, ())
            if self.owners.get(name) not in never
        ]
        owners = {self.owners[name] for name in named if name in self.owners}
        out = barred(owners) if len(owners) > 1 else set()
        free = self.free.get(hardware_class, [])
        able = [
            name
            for name in free
            if name in named and (owners <= out or self.owners.get(name) not in out)
        ]
        if not able:
            return None
        drawn = able[secrets.randbelow(len(able))]
        free.remove(drawn)
        return drawn


def read_takers(session: Session, *, alive_seconds: float, now: datetime) -> Takers:
    """Who could take work: not who is unconfirmed, held, at work, off its baseline or silent."""
    pauses = read_pauses(session)
    silence = min(alive_seconds, LONGEST_SILENCE_SECONDS)
    workers = session.execute(
        select(
            WorkerRow.name,
            WorkerRow.hardware_class,
            WorkerRow.state,
            WorkerRow.held,
            WorkerRow.user_id,
            WorkerRow.witness_for,
        ).where(
            WorkerRow.last_seen_at >= now - timedelta(seconds=silence),
            WorkerRow.state != "stopping",
            WorkerRow.drift.is_(None),
            or_(WorkerRow.confirmed_at.is_not(None), WorkerRow.witness_for.is_not(None)),
        )
    ).all()
    taken = _taken(session, now) if workers else set()
    free: dict[str, list[str]] = {}
    witnesses: dict[str, list[str]] = {}
    for worker in workers:
        if (
            worker.state == "idle"
            and worker.held is None
            and worker.name not in taken
            and pauses.of(worker.hardware_class) is None
        ):
            own = witnesses.setdefault(worker.witness_for, []) if worker.witness_for else None
            (free.setdefault(worker.hardware_class, []) if own is None else own).append(worker.name)
    workers = [worker for worker in workers if worker.witness_for is None]
    present: dict[str, list[str]] = {}
    for worker in workers:
        present.setdefault(worker.hardware_class, []).append(worker.name)
    # One that is held may not come back: nobody waits for it.
    owners = {one.name: one.user_id for one in workers if one.user_id and one.held is None}
    return Takers(free, present, pauses, owners, witnesses)


def _taken(session: Session, now: datetime) -> set[str | None]:
    """Workers at an attempt, and those that were sent one and may still claim it."""
    at_work = session.scalars(select(Attempt.worker).where(Attempt.state == "running"))
    under_way = session.scalars(
        select(Attempt.sent_to).where(
            Attempt.state == "queued", Attempt.sent_to > "", Attempt.send_after > now
        )
    )
    return {*at_work, *under_way}
