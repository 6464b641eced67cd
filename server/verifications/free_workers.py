"""Free workers by hardware class, and attempts barred from the workers of some owners."""

import secrets
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from sqlalchemy import Connection, or_, select, true
from sqlalchemy.orm import Session

from finishline.rules.verification.purposes import DUEL, PURPOSES
from server.base.models import (
    Attempt,
    Submission,
    TrainingPackage,
    User,
    Verification,
    WorkerRow,
)
from server.submissions.packages import takes_packages_of
from server.verifications.holds import FAILED, read_pause
from server.verifications.workers import is_organisers, is_organisers_worker, owner_of


@dataclass(frozen=True)
class FreeWorkers:
    """Idle workers by hardware class in `free`, less those that may still lease an attempt.

    `present` are the confirmed workers by class that are alive and on their baseline. An attempt
    that wants a present class waits for it and goes to no other. `is_paused` tells that everything
    is. `boxes` has the BoxWord of each worker that trains packages. `polling` are the workers
    without a broker.
    """

    free: dict[str, list[str]]
    present: Mapping[str, Sequence[str]]
    is_paused: bool = False
    owners: Mapping[str, int] = field(default_factory=dict)
    boxes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    polling: Set[str] = frozenset()

    def may_take(self, hardware_class: str, wanted: str | None) -> bool:
        """Whether a worker of one class may take an attempt that wants another, or None for any."""
        if wanted is None or wanted == hardware_class:
            return True
        return wanted not in self.present

    def draw(
        self,
        hardware_class: str,
        barred: Callable[[set[int]], set[int]],
        *,
        never: Set[int | None] = frozenset(),
        may_train: Callable[[str], bool] = lambda _name: True,
    ) -> str | None:
        """Take a random free worker of a class, so that nobody can foresee it.

        `barred` returns the owners, among those of the class's workers, that are drawn only if
        there is no other owner. Returns None if all other owners' workers are busy, if only owners
        in `never` are left, or if no worker `may_train` the attempt.
        """
        named = [
            name
            for name in self.present.get(hardware_class, ())
            if self.owners.get(name) not in never and may_train(name)
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


def read_free_workers(
    session: Session | Connection, *, alive_seconds: float, now: datetime, stopped: bool = False
) -> FreeWorkers:
    """Read the free workers: not unconfirmed, held, busy, off the baseline or silent ones.

    With `stopped`, workers that have stopped are present too.
    """
    is_paused = read_pause(session) is not None
    workers = session.execute(
        select(
            WorkerRow.name,
            WorkerRow.hardware_class,
            WorkerRow.state,
            WorkerRow.held,
            WorkerRow.user_id,
            WorkerRow.box,
            WorkerRow.polls,
        ).where(
            WorkerRow.last_seen_at >= now - timedelta(seconds=alive_seconds),
            true() if stopped else WorkerRow.state != "stopping",
            WorkerRow.drift.is_(None),
            WorkerRow.confirmed_at.is_not(None),
        )
    ).all()
    idle = [
        worker
        for worker in workers
        if worker.state == "idle" and worker.held is None and not is_paused
    ]
    taken = _taken(session, now) if idle else set()
    free: dict[str, list[str]] = {}
    for worker in idle:
        if worker.name not in taken:
            free.setdefault(worker.hardware_class, []).append(worker.name)
    polling = {worker.name for worker in workers if worker.polls}
    present: dict[str, list[str]] = {}
    for worker in workers:
        present.setdefault(worker.hardware_class, []).append(worker.name)
    # A held worker may not come back, so no attempt waits for it.
    owners = {one.name: one.user_id for one in workers if one.user_id and one.held is None}
    boxes = {one.name: one.box for one in workers if one.box}
    return FreeWorkers(free, present, is_paused, owners, boxes, polling)


def _taken(session: Session | Connection, now: datetime) -> set[str | None]:
    """Busy workers, and those that were drawn for an attempt and may still lease it."""
    at_work = session.scalars(select(Attempt.worker).where(Attempt.state == "running"))
    under_way = session.scalars(
        select(Attempt.sent_to).where(
            Attempt.state == "queued", Attempt.sent_to.is_not(None), Attempt.send_after > now
        )
    )
    return {*at_work, *under_way}


def draw_apart(session: Session, idle: FreeWorkers, attempt: Attempt) -> str | None:
    """Take a free worker of the attempt's class from another owner; None without one."""
    return idle.draw(
        attempt.hardware_class or "",
        partial(barred_owners, session, attempt.id),
        never=owners_at(session, attempt.verification.checks_id, seeds=attempt.verification.seeds),
    )


def able_to_train(session: Session, idle: FreeWorkers, attempt_id: str) -> Callable[[str], bool]:
    """Condition on workers that may train an attempt: their class, sandbox and environments.

    A head-to-head goes to an organisers' worker of its class alone. A worker's owner can read what
    it trains, so code under embargo goes to organisers' workers too.
    """
    kind, wanted = session.execute(
        select(Verification.kind, Attempt.hardware_class)
        .join(Verification, Verification.id == Attempt.verification_id)
        .where(Attempt.id == attempt_id)
    ).one()
    sides = (Verification.submission_id, Verification.against_id)
    rows = session.execute(
        select(TrainingPackage.environment_sha256, User, Submission.embargoed)
        .select_from(Attempt)
        .join(Verification, Verification.id == Attempt.verification_id)
        .join(Submission, or_(*(Submission.id == side for side in sides)))
        .join(User, User.id == Submission.user_id)
        .join(TrainingPackage, TrainingPackage.submission_id == Submission.id)
        .where(Attempt.id == attempt_id)
    ).all()
    is_duel = kind == DUEL.name
    if not (rows or is_duel):
        return lambda _name: True
    named = set(idle.present.get(wanted or "", ()))
    needed = {row.environment_sha256 for row in rows}
    if is_duel or any(row.embargoed for row in rows):
        named = {name for name in named if is_organisers_worker(session, name)}

    def may_train(name: str) -> bool:
        box, owner = idle.boxes.get(name, {}), idle.owners.get(name)
        has = needed <= set(box.get("environments", {}).values())
        takes = all(takes_packages_of(box, row.User, owner=owner) for row in rows)
        return name in named and has and takes

    return may_train


def barred_owners(session: Session, attempt_id: str, owners: set[int]) -> set[int]:
    """Find which of these owners should not replay an attempt.

    Barred are owners whose worker failed at an earlier attempt of its verification, and owners with
    an interest: they or a member of their organisation have a submission, not withdrawn, on its
    board, in its division and for its hardware class. If it trains code, all but organisers are
    barred if an organisers' worker is among these.
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
    if PURPOSES[kind].in_box:
        barred |= _beside_organisers(session, owners - barred)
    left = owners - barred
    return barred | _interested(session, str(verification_id), left) if left else barred


def _beside_organisers(session: Session, owners: set[int]) -> set[int]:
    """Owners without an organisers' worker; empty if none of the owners has one."""
    workers = session.execute(
        select(WorkerRow.user_id, WorkerRow.confirmed_at, WorkerRow.confirmed_by, User.role)
        .join(User, User.id == WorkerRow.user_id)
        .where(WorkerRow.user_id.in_(owners))
    )
    trusted = {row.user_id for row in workers if is_organisers(row)}
    return owners - trusted if trusted else set()


def _interested(session: Session, verification_id: str, owners: set[int]) -> set[int]:
    """Owners who submitted a verification's submission, or compete with it."""
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
    """Map each owner to the members of their organisation, themselves included."""
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


def owners_at(
    session: Session, verification_id: str | None, *, seeds: Sequence[int]
) -> set[int | None]:
    """Owners who cannot check a run of a verification, with the members of their organisations.

    Those are the owners of workers that trained the verification, or this run of it again, and its
    submitter. `seeds` has the seed of the run; without one, no owner is out for a cross-check.
    """
    trained = session.execute(
        select(Attempt.worker, Verification)
        .join(Verification)
        .where(
            or_(Verification.id == verification_id, Verification.checks_id == verification_id),
            Attempt.state.in_(("done", "running")),
        )
    )
    workers = [
        worker
        for worker, of in trained
        if worker is not None and (of.checks_id is None or [*of.seeds] == [*seeds])
    ]
    claimant = session.scalars(
        select(Submission.user_id)
        .join(Verification, Verification.submission_id == Submission.id)
        .where(Verification.id == verification_id)
    )
    found = {owner_of(session, name) for name in workers} | set(claimant)
    groups = groups_of(session, {owner for owner in found if owner is not None})
    return found.union(*groups.values())
