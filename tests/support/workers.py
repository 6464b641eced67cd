"""Workers of tests: what a server does before one may claim."""

from datetime import timedelta

from sqlalchemy import select, update

from server.base.database import utc_now
from server.base.models import Attempt, WorkerRow


def latest_attempt(database, verification_id):
    """The id of the latest attempt at a verification."""
    query = select(Attempt.id).where(Attempt.verification_id == verification_id)
    with database.read() as session:
        return session.scalars(query.order_by(Attempt.number.desc())).first() or "none"


def send_to(database, attempt_id, worker):
    """Draw this worker for an attempt that waits and was sent to nobody yet."""
    with database.write() as session:
        session.execute(
            update(Attempt)
            .where(Attempt.id == attempt_id, Attempt.state == "queued", Attempt.sent_to.is_(None))
            .values(sent_to=worker, sends=Attempt.sends + 1)
        )


def greet_as_servers(database, name, hardware_class="cpu-test"):
    """As if the server itself had confirmed a worker of this class, which said hello long ago."""
    now = utc_now() - timedelta(days=1)
    row = WorkerRow(name=name, hardware_class=hardware_class, state="idle", system={})
    row.first_seen_at = row.last_seen_at = row.confirmed_at = now
    with database.write() as session:
        session.merge(row)
