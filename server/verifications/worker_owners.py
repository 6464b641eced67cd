"""Owners of workers: whose word is the organisers', and who may not train an attempt."""

from typing import Any

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from finishline.rules.verification.purposes import PURPOSES
from server.base.models import Attempt, Submission, User, Verification, WorkerRow
from server.people.accounts import ORGANISERS

FAILED = ("failed", "lost")


def owner_of(session: Session, worker_name: str) -> int | None:
    """Find the user a worker belongs to; None for a worker that never said hello."""
    return session.scalar(select(WorkerRow.user_id).where(WorkerRow.name == worker_name))


def is_organisers_worker(session: Session, worker_name: str) -> bool:
    """Whether an organiser owns a worker, or the server process itself confirmed it.

    A confirmation without a user is one of `python -m server.admin`.
    """
    row = session.execute(
        select(User.role, WorkerRow.confirmed_at, WorkerRow.confirmed_by)
        .select_from(WorkerRow)
        .outerjoin(User, User.id == WorkerRow.user_id)
        .where(WorkerRow.name == worker_name)
    ).first()
    if row is None:
        return False
    return is_organisers(row)


def is_organisers(row: Any) -> bool:
    """Whether a worker counts as the organisers', by its owner's role and its confirmation."""
    by_server = row.confirmed_at is not None and row.confirmed_by is None
    return by_server or row.role in ORGANISERS


def barred_owners(session: Session, attempt_id: str, owners: set[int]) -> set[int]:
    """Find which of these owners should not replay an attempt.

    Barred are owners whose worker failed at an earlier attempt of its verification, and owners with
    an interest: they or a member of their organisation have a submission, not withdrawn, on its
    board, in its division and for its hardware class. If its purpose goes to organisers first, all
    but them are barred if an organisers' worker is among these.
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
    if PURPOSES[kind].organisers_first:
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


def owners_at(session: Session, verification_id: str | None) -> set[int | None]:
    """Owners who cannot check a verification, with the members of their organisations.

    Those are the owners of workers that trained it or a cross-check of it, and its submitter.
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
