"""Owners whose workers should not be sent an attempt, while another owner's worker is there."""

from sqlalchemy import or_, select
from sqlalchemy.orm import Session

from server.models import Attempt, Submission, User, Verification, WorkerRow
from server.workers.owners import is_organisers

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
