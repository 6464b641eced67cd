"""Owner of a worker, and whether its word counts as the organisers'."""

from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.models import User, WorkerRow
from server.people.accounts import ORGANISERS


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
