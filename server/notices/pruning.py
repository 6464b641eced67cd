"""Delete deliveries that ended long ago, and events without deliveries."""

from collections.abc import Sequence
from datetime import timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from server.base.database import Database, utc_now
from server.base.models import Delivery, MailSubscription, NoticeEvent

KEEP = timedelta(days=30)
PRUNE_EVERY = timedelta(hours=1)
BATCH = 1000
UNSYNCHRONISED = {"synchronize_session": False}


def prune(database: Database) -> int:
    """Delete a batch of deliveries older than the log keeps; returns their number."""
    before = utc_now() - KEEP
    with database.write() as session:
        old = session.execute(
            select(Delivery.id, Delivery.event_id)
            .where(Delivery.created_at < before, Delivery.state != "waiting")
            .limit(BATCH)
        ).all()
        chosen = Delivery.id.in_([row.id for row in old])
        session.execute(delete(Delivery).where(chosen), execution_options=UNSYNCHRONISED)
        forget_events(session, [row.event_id for row in old])
        mailed = select(Delivery.id).where(Delivery.mail_id == MailSubscription.id)
        session.execute(
            delete(MailSubscription).where(MailSubscription.ended_at < before, ~mailed.exists()),
            execution_options=UNSYNCHRONISED,
        )
    return len(old)


def forget_events(session: Session, event_ids: Sequence[str]) -> None:
    """Delete those of the events that have no delivery left."""
    left = select(Delivery.id).where(Delivery.event_id == NoticeEvent.id)
    session.execute(
        delete(NoticeEvent).where(NoticeEvent.id.in_(event_ids), ~left.exists()),
        execution_options=UNSYNCHRONISED,
    )
