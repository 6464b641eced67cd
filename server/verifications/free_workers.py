"""Free workers by hardware class, pauses of queues, and attempts that few workers may take."""

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from finishline.rules.verification.purposes import names_where
from server.base.models import Attempt, QueueRow, Verification, WorkerRow
from server.verifications.queueing import NOBODY_YET
from server.verifications.worker_owners import barred_owners, owners_at

EVERY_QUEUE = "*"


@dataclass(frozen=True)
class Pause:
    """A pause: who set it, since when and why."""

    by: str
    since: datetime
    reason: str

    def sentence(self, what: str) -> str:
        """Sentence about the pause, for those who wait."""
        return f"{what} paused by {self.by}: {self.reason}"


@dataclass(frozen=True)
class Pauses:
    """Pauses of hardware classes by name, and of everything."""

    classes: Mapping[str, Pause]
    everything: Pause | None

    def of(self, hardware_class: str | None) -> Pause | None:
        """Pause of a hardware class, None for any; a pause of everything comes first."""
        if self.everything is not None or hardware_class is None:
            return self.everything
        return self.classes.get(hardware_class)

    def why(self, hardware_class: str | None) -> str | None:
        """Sentence that explains why a hardware class is paused; None if it is not."""
        if self.everything is not None:
            return self.everything.sentence("every queue is")
        pause = self.of(hardware_class)
        return None if pause is None else pause.sentence(f"the queue of {hardware_class} is")


def read_pauses(session: Session) -> Pauses:
    """Read every pause."""
    rows = session.execute(
        select(
            QueueRow.hardware_class, QueueRow.paused_by, QueueRow.paused_at, QueueRow.paused_because
        ).where(QueueRow.paused_at.is_not(None))
    )
    paused = {
        row.hardware_class: Pause(row.paused_by, row.paused_at, row.paused_because) for row in rows
    }
    return Pauses(
        {name: pause for name, pause in paused.items() if name != EVERY_QUEUE},
        paused.get(EVERY_QUEUE),
    )


LONGEST_SILENCE_SECONDS = 60.0


@dataclass(frozen=True)
class Takers:
    """Idle workers by hardware class in `free`, less those with a message in flight.

    `present` are the confirmed workers by class that are alive and on their baseline. An attempt
    that wants a present or a paused class waits for it and goes to no other. `witnesses` has the
    free workers with a witness's token, by the submission that they serve.
    """

    free: dict[str, list[str]]
    present: Mapping[str, Sequence[str]]
    pauses: Pauses
    owners: Mapping[str, int] = field(default_factory=dict)
    witnesses: Mapping[str, list[str]] = field(default_factory=dict)

    def only(self, hardware_classes: Set[str]) -> "Takers":
        """Copy with the free workers of some classes only."""
        free = {name: free for name, free in self.free.items() if name in hardware_classes}
        return replace(self, free=free)

    def may_take(self, hardware_class: str, wanted: str | None) -> bool:
        """Whether a worker of one class may take an attempt that wants another, or None for any."""
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
        """Take a random free worker of a class, so that nobody can foresee it.

        `barred` returns the owners, among those of the class's workers, that are drawn only if
        there is no other owner. Returns None if all other owners' workers are busy, or if only
        owners in `never` are left.
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
    """Read the free workers: not unconfirmed, held, busy, off the baseline or silent ones."""
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
    # A held worker may not come back, so no attempt waits for it.
    owners = {one.name: one.user_id for one in workers if one.user_id and one.held is None}
    return Takers(free, present, pauses, owners, witnesses)


def _taken(session: Session, now: datetime) -> set[str | None]:
    """Busy workers, and those with a sent attempt that they may still claim."""
    at_work = session.scalars(select(Attempt.worker).where(Attempt.state == "running"))
    under_way = session.scalars(
        select(Attempt.sent_to).where(
            Attempt.state == "queued", Attempt.sent_to > "", Attempt.send_after > now
        )
    )
    return {*at_work, *under_way}


APART = or_(
    Verification.kind.in_(names_where(lambda purpose: purpose.by_other_owners)),
    Verification.witness_token_id.is_not(None),
)


def waiting_apart(session: Session, now: datetime) -> list[Attempt]:
    """Queued attempts that only certain workers may take, the oldest first."""
    unclaimed = or_(Attempt.sent_to == NOBODY_YET, Attempt.send_after <= now)
    return list(
        session.scalars(
            select(Attempt)
            .join(Verification)
            .where(Attempt.state == "queued", APART, unclaimed)
            .order_by(Attempt.asked_at, Attempt.id)
        )
    )


def draw_apart(session: Session, takers: Takers, attempt: Attempt) -> str | None:
    """Take a free worker of the attempt's class from another owner; None without one.

    A witnessed attempt gets the worker that serves its submission.
    """
    if attempt.verification.witness_token_id is not None:
        serving = takers.witnesses.get(attempt.verification.submission_id or "", [])
        return serving.pop() if serving else None
    return takers.draw(
        attempt.hardware_class or "",
        partial(barred_owners, session, attempt.id),
        never=owners_at(session, attempt.verification.checks_id),
    )


def forget_lost_messages(session: Session, now: datetime) -> None:
    """Clear the worker of attempts sent apart and not claimed in time, to draw again."""
    session.execute(
        update(Attempt)
        .where(
            Attempt.state == "queued",
            Attempt.sent_to > NOBODY_YET,
            Attempt.send_after <= now,
            Attempt.verification_id.in_(select(Verification.id).where(APART)),
        )
        .values(sent_to=NOBODY_YET)
    )
