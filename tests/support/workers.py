"""Workers of tests: what a server does before one may claim."""

from sqlalchemy import select, update

from server.database import Database
from server.models import Attempt


def latest_attempt(database: Database, verification_id: str) -> str:
    """The id of the latest attempt at a verification."""
    query = select(Attempt.id).where(Attempt.verification_id == verification_id)
    with database.read() as session:
        return session.scalars(query.order_by(Attempt.number.desc())).first() or "none"


def send_to(database: Database, attempt_id: str, worker: str) -> None:
    """Draw this worker for an attempt that waits and was sent to nobody yet."""
    with database.write() as session:
        session.execute(
            update(Attempt)
            .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sent_to.is_(None))
            .values(sent_to=worker, sends=Attempt.sends + 1)
        )
