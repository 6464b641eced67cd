"""Free workers by hardware class, and the attempts that some owners' workers may not take."""

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from functools import partial

from sqlalchemy import or_, select, update
from sqlalchemy.orm import Session

from server.base.models import Attempt, Submission, User, Verification, WorkerRow
from server.verifications.pauses import Pauses, read_pauses
from server.verifications.queueing import NOBODY_YET
from server.verifications.worker_owners import is_organisers, owner_of

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


FAILED = ("failed", "lost")


def barred_owners(session: Session, attempt_id: str, owners: set[int]) -> set[int]:
    """Find which of these owners should not replay an attempt.

    Those whose worker failed at an earlier attempt of its verification, and those with an interest:
    they or a member of their organisation have a submission that was not withdrawn on its board,
    in its division and for its hardware class. Of a duel all but the organisers, where they have a
    worker among these: nobody else's duel decides about a record.
    """
    verification_id, kind = session.execute(
        select(Attempt.verification_id, Verification.kind)
        .join(Verification)
        .where(Attempt.id == attempt_id)
    ).one()
    failed = session.scalars(
        select(WorkerRow.user_id)
        .join(Attempt, Attempt.worker == WorkerRow.name)
        .where(Attempt.verification_id == verification_id, Attempt.state.in_(FAILED))
    )
    barred = owners.intersection(failed)
    if kind == "duel":
        barred |= _beside_organisers(session, owners - barred)
    left = owners - barred
    return barred | _interested(session, str(verification_id), left) if left else barred


def _beside_organisers(session: Session, owners: set[int]) -> set[int]:
    """The owners who are not the organisers, where a worker of these counts as the organisers'."""
    workers = session.execute(
        select(WorkerRow.user_id, WorkerRow.confirmed_at, WorkerRow.confirmed_by, User.role)
        .join(User, User.id == WorkerRow.user_id)
        .where(WorkerRow.user_id.in_(owners))
    )
    trusted = {row.user_id for row in workers if is_organisers(row)}
    return owners - trusted if trusted else set()


def _interested(session: Session, verification_id: str, owners: set[int]) -> set[int]:
    """The owners who compete with a verification's submission, or handed it in."""
    replayed = session.execute(
        select(Submission.benchmark_id, Submission.division, Submission.system)
        .join(Verification, Verification.submission_id == Submission.id)
        .where(Verification.id == verification_id)
    ).first()
    if replayed is None:  # A calibration is nobody's.
        return set()
    groups = groups_of(session, owners)
    rivals = session.scalars(
        select(Submission.user_id)
        .where(
            Submission.user_id.in_({member for group in groups.values() for member in group}),
            Submission.benchmark_id == replayed.benchmark_id,
            Submission.division == replayed.division,
            Submission.system["hardware_class"].as_string() == replayed.system["hardware_class"],
            Submission.withdrawn_at.is_(None),
        )
        .distinct()
    )
    competing = set(rivals)
    return {owner for owner, group in groups.items() if group & competing}


def groups_of(session: Session, owners: set[int]) -> dict[int, set[int]]:
    """Each owner with the members of their organisation."""
    belongs = select(User.id, User.organisation_id).where(User.id.in_(owners))
    organisations = {row.id: row.organisation_id for row in session.execute(belongs)}
    named = {one for one in organisations.values() if one is not None}
    members = session.execute(
        select(User.id, User.organisation_id).where(
            or_(User.id.in_(owners), User.organisation_id.in_(named))
        )
    ).all()
    return {
        owner: {owner}
        | {row.id for row in members if organisation and row.organisation_id == organisation}
        for owner, organisation in organisations.items()
    }


APART = or_(Verification.kind == "cross_check", Verification.witness_token_id.is_not(None))


def waiting_apart(session: Session, now: datetime) -> list[Attempt]:
    """Attempts that wait for a worker of their own, the oldest first."""
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
    """Take out a free worker of the attempt's class that another owner has; None without one.

    What is witnessed has the worker that serves its submission.
    """
    if attempt.verification.witness_token_id is not None:
        serving = takers.witnesses.get(attempt.verification.submission_id or "", [])
        return serving.pop() if serving else None
    return takers.draw(
        attempt.hardware_class or "",
        partial(barred_owners, session, attempt.id),
        never=owners_at(session, attempt.verification.checks_id),
    )


def owners_at(session: Session, verification_id: str | None) -> set[int | None]:
    """The owners who cannot check a verification, with the members of their organisations.

    Those whose workers have trained it, or a cross-check of it, and whoever handed its claim in.
    """
    workers = session.scalars(
        select(Attempt.worker)
        .join(Verification)
        .where(
            or_(Verification.id == verification_id, Verification.checks_id == verification_id),
            Attempt.worker.is_not(None),
            Attempt.state.in_(("done", "running")),
        )
    )
    claimant = session.scalars(
        select(Submission.user_id)
        .join(Verification, Verification.submission_id == Submission.id)
        .where(Verification.id == verification_id)
    )
    found = {owner_of(session, name) for name in workers if name is not None} | set(claimant)
    groups = groups_of(session, {owner for owner in found if owner is not None})
    return found.union(*groups.values())


def forget_lost_messages(session: Session, now: datetime) -> None:
    """Let what was sent apart and not claimed in time be drawn for again."""
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
