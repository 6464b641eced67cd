"""Addresses: asked for, confirmed by a link in the first mail, ended by one in each other."""

import secrets
from datetime import datetime, timedelta

from sqlalchemy import func, insert, select, update
from sqlalchemy.orm import Session

from server.database import after_commit, utc_now
from server.dependencies import Caller, Parts
from server.errors import ConflictError
from server.models import Delivery, MailSubscription, NoticeEvent
from server.notices.announce import Subject, new_event
from server.notices.kinds import CONFIRM
from server.notices.listeners import is_confirmed
from server.notices.queries import list_mails
from server.notices.schemas import MailCreate
from server.notices.service import new_id, require_wanted
from server.notices.spread import waiting_row
from server.notices.waking import waking_of

MOST_ADDRESSES = 5
# Nobody is written to more often by people who only claim to have an address.
CONFIRMATIONS_PER_DAY = 3


def subscribe(
    session: Session, parts: Parts, caller: Caller, wanted: MailCreate
) -> MailSubscription:
    """Ask to be written to. Unless the caller has confirmed this address before, a mail asks.

    Raises ConflictError if this server sends no mail, or for too many addresses or mails.
    """
    if parts.settings.smtp_url is None:
        raise ConflictError("This server sends no mail; a webhook is told of the same events.")
    require_wanted(parts, caller, wanted)
    if len(list_mails(session, caller)) >= MOST_ADDRESSES:
        raise ConflictError(f"You have {MOST_ADDRESSES} mail subscriptions; end one first.")
    now = utc_now()
    subscription = MailSubscription(
        id=new_id(),
        user_id=caller.user_id,
        address=wanted.address,
        kinds=sorted(set(wanted.kinds)),
        scope=wanted.scope,
        benchmark_id=wanted.benchmark,
        secret=secrets.token_hex(32),
        created_at=now,
        verified_at=now if _has_confirmed(session, caller, wanted.address) else None,
    )
    session.add(subscription)
    session.flush()
    if subscription.verified_at is None:
        _ask_to_confirm(session, caller, subscription, now=now)
    return subscription


def _has_confirmed(session: Session, caller: Caller, address: str) -> bool:
    same = (MailSubscription.user_id == caller.user_id, MailSubscription.address == address)
    found = select(MailSubscription.id).where(*same, is_confirmed()).limit(1)
    return session.scalar(found) is not None


def _ask_to_confirm(
    session: Session, caller: Caller, subscription: MailSubscription, *, now: datetime
) -> None:
    asked = session.scalar(
        select(func.count())
        .select_from(Delivery)
        .join(NoticeEvent, NoticeEvent.id == Delivery.event_id)
        .join(MailSubscription, MailSubscription.id == Delivery.mail_id)
        .where(
            func.lower(MailSubscription.address) == subscription.address.lower(),
            NoticeEvent.kind == CONFIRM,
            Delivery.created_at > now - timedelta(days=1),
        )
    )
    if (asked or 0) >= CONFIRMATIONS_PER_DAY:
        raise ConflictError(
            f"{subscription.address} was asked {asked} times within a day to confirm; look for "
            "those mails, or try again tomorrow."
        )
    row = new_event(CONFIRM, Subject(subscription.user_id, None, {"user": caller.name}))
    session.execute(insert(NoticeEvent), [row | {"spread_at": now}])
    session.add(Delivery(**waiting_row(row["id"], now), mail=subscription))
    after_commit(session, waking_of(session).set)


def confirm(subscription: MailSubscription) -> None:
    """From this moment on the address is told of events. Confirming twice changes nothing."""
    subscription.verified_at = subscription.verified_at or utc_now()


def end_subscription(session: Session, subscription: MailSubscription) -> None:
    """Write no more to this address for this subscription; what waits is not sent."""
    now = utc_now()
    subscription.ended_at = now
    session.execute(
        update(Delivery)
        .where(Delivery.mail_id == subscription.id, Delivery.state == "waiting")
        .values(state="failed", ended_at=now)
    )
