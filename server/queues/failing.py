"""An owner whose workers fail too often is paused until an organiser resumes them."""

from sqlalchemy import func, or_, select
from sqlalchemy.orm import Session

from server.models import Attempt, AuditRecord, WorkerRow
from server.queues.barred import FAILED
from server.queues.holds import pause_by_server
from server.workers.owners import is_organisers_worker, owner_of

MOST_FAILED = 3
OF_LAST = 10


def pause_failing(session: Session, worker_name: str) -> None:
    """Pause all workers of a worker's owner when three of their last ten attempts failed.

    Counted are attempts that ended since an organiser last resumed one of them, failed are those
    that say nothing of the claim. Organisers see to their own workers themselves.
    """
    owner = owner_of(session, worker_name)
    if owner is None or is_organisers_worker(session, worker_name):
        return
    owned = select(WorkerRow.name).where(WorkerRow.user_id == owner)
    resumed = (
        select(func.max(AuditRecord.at))
        .where(AuditRecord.action == "worker.resume", AuditRecord.subject_id.in_(owned))
        .scalar_subquery()
    )
    session.flush()
    last = session.scalars(
        select(Attempt.failure)
        .where(
            Attempt.worker.in_(owned),
            Attempt.state.in_((*FAILED, "done")),
            or_(resumed.is_(None), Attempt.ended_at > resumed),
        )
        .order_by(Attempt.ended_at.desc())
        .limit(OF_LAST)
    ).all()
    failed = sum(bool(each) and each["kind"] == "infrastructure" for each in last)
    if failed < MOST_FAILED:
        return
    why = f"{failed} of the last {len(last)} attempts of its owner's workers failed"
    for name in session.scalars(owned.where(WorkerRow.held.is_(None))).all():
        pause_by_server(session, name, by="failures", why=why)
