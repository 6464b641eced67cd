"""Disable a webhook, and notify its owner."""

import logging
from datetime import datetime

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from server.base.models import Delivery, MailSubscription, NoticeEvent, Webhook
from server.notices.announce import SWITCHED_OFF, Subject, new_event
from server.notices.fan_out import waiting_row
from server.notices.subscribers import is_confirmed

log = logging.getLogger(__name__)


def switch_off(session: Session, hook: Webhook, why: str, *, now: datetime) -> None:
    """Disable a webhook; waiting deliveries are given up, and can be resent by hand later."""
    hook.disabled_at, hook.disabled_because = now, why
    session.flush()
    session.execute(
        update(Delivery)
        .where(Delivery.webhook_id == hook.id, Delivery.state == "waiting")
        .values(state="failed", ended_at=now)
    )
    log.warning("webhook %s is switched off: %s", hook.id, why)
    _tell_owner(session, hook, why, now=now)


def _tell_owner(session: Session, hook: Webhook, why: str, *, now: datetime) -> None:
    """Queue a mail to each confirmed address of the owner, whatever its filter of events."""
    own = MailSubscription.user_id == hook.user_id
    addresses = session.scalars(select(MailSubscription.id).where(own, is_confirmed())).all()
    if not addresses:
        return
    content = {
        "webhook": {"id": hook.id, "url": hook.url, "why": why},
        "links": {"api": f"/api/v1/webhooks/{hook.id}", "page": f"/console/notices/{hook.id}"},
    }
    row = new_event(SWITCHED_OFF, Subject(hook.user_id, None, content)) | {"spread_at": now}
    session.execute(insert(NoticeEvent), [row])
    deliveries = [
        waiting_row(row["id"], now) | {"webhook_id": None, "mail_id": address}
        for address in addresses
    ]
    session.execute(insert(Delivery), deliveries)
