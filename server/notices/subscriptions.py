"""Subscriptions: webhooks and mails that a user adds, tests and ends."""

import secrets
from datetime import datetime, timedelta
from typing import Any

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.errors import (
    ConflictError,
    NotAllowedError,
    NotFoundError,
    no_such,
)
from server.base.events import NoticeWakeup, wake_after_commit
from server.base.models import Delivery, MailSubscription, NoticeEvent, Webhook
from server.base.services import Services
from server.benchmarks.queries import find_benchmark
from server.notices.announce import CONFIRM, TEST, Subject, new_event
from server.notices.fan_out import waiting_row
from server.notices.pruning import forget_events
from server.notices.subscribers import ALL, is_confirmed
from server.notices.views import MailCreate, Wanted, WebhookCreate
from server.notices.webhooks import check_url, new_secret
from server.people.audit import Subject as AuditSubject
from server.people.audit import record
from server.people.dependencies import Caller


def list_webhooks(session: Session, caller: Caller) -> list[Webhook]:
    """List the caller's webhooks, newest first."""
    own = Webhook.user_id == caller.user_id
    order = (Webhook.created_at.desc(), Webhook.id)
    return list(session.scalars(select(Webhook).where(own).order_by(*order)))


def find_webhook(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    """Find a webhook of the caller's. Raises NotFoundError, also for somebody else's."""
    hook = session.get(Webhook, webhook_id)
    if hook is None or hook.user_id != caller.user_id:
        raise no_such("webhook", webhook_id, of="You have no")
    return hook


def list_deliveries(
    session: Session, hook: Webhook, *, state: str | None, limit: int
) -> list[Delivery]:
    """List the latest deliveries of a webhook, newest first."""
    query = select(Delivery).where(Delivery.webhook_id == hook.id)
    if state is not None:
        query = query.where(Delivery.state == state)
    return list(session.scalars(query.order_by(Delivery.id.desc()).limit(limit)))


def find_delivery(session: Session, hook: Webhook, delivery_id: int) -> Delivery:
    """Find a delivery of a webhook. Raises NotFoundError."""
    delivery = session.get(Delivery, delivery_id)
    if delivery is None or delivery.webhook_id != hook.id:
        raise no_such("delivery", delivery_id, of=f"Webhook {hook.id} has no")
    return delivery


def list_mails(session: Session, caller: Caller) -> list[MailSubscription]:
    """List the caller's addresses, newest first."""
    own = (MailSubscription.user_id == caller.user_id, MailSubscription.ended_at.is_(None))
    order = (MailSubscription.created_at.desc(), MailSubscription.id)
    return list(session.scalars(select(MailSubscription).where(*own).order_by(*order)))


def find_mail(session: Session, caller: Caller, mail_id: str) -> MailSubscription:
    """Find an address of the caller's. Raises NotFoundError, also for somebody else's."""
    found = session.get(MailSubscription, mail_id)
    if found is None or found.user_id != caller.user_id or found.ended_at is not None:
        raise NotFoundError(f"You have no mail subscription {mail_id!r}.")
    return found


MOST_WEBHOOKS = 20
BOTH_VALID = timedelta(days=1)


def new_id() -> str:
    """A short random id for a URL: 60 bits."""
    return secrets.token_hex(8)[:15]


def require_wanted(services: Services, caller: Caller, wanted: Wanted) -> None:
    """Raise unless the caller may subscribe to these events.

    Notices include submissions under embargo that the caller may read, and go on after the token
    has ended.
    """
    if wanted.scope == ALL and not caller.is_organiser:
        raise NotAllowedError("Only an organiser may subscribe to all events; name a benchmark.")
    if wanted.benchmark is not None:
        find_benchmark(services.benchmarks, wanted.benchmark)


def make_webhook(
    session: Session, services: Services, caller: Caller, wanted: WebhookCreate
) -> Webhook:
    """Create a webhook of the caller's, with a secret that its response shows once."""
    require_wanted(services, caller, wanted)
    check_url(wanted.url, private_allowed=services.settings.webhook_private_addresses)
    if len(list_webhooks(session, caller)) >= MOST_WEBHOOKS:
        raise ConflictError(f"You have {MOST_WEBHOOKS} webhooks; delete one first.")
    hook = Webhook(
        id=new_id(),
        user_id=caller.user_id,
        url=wanted.url,
        kinds=sorted(set(wanted.kinds)),
        scope=wanted.scope,
        benchmark_id=wanted.benchmark,
        secret=new_secret(),
        created_at=utc_now(),
    )
    session.add(hook)
    _record(session, caller, "webhook.create", hook)
    return hook


def _record(session: Session, caller: Caller, action: str, hook: Webhook) -> None:
    """Write a subscription to everything to the audit log; others are private and left out."""
    if hook.scope != ALL:
        return
    told: dict[str, Any] = {"url": hook.url, "kinds": hook.kinds, "scope": hook.scope}
    is_new = action == "webhook.create"
    record(
        session,
        caller,
        action,
        AuditSubject("webhook", hook.id),
        reason=None,
        before=None if is_new else told,
        after=told if is_new else None,
    )


def replace_secret(hook: Webhook) -> str:
    """Generate a new secret; for a day the earlier one signs as well."""
    hook.previous_secret, hook.previous_until = hook.secret, utc_now() + BOTH_VALID
    hook.secret = new_secret()
    return hook.secret


def switch_on(hook: Webhook) -> None:
    """Enable a disabled webhook."""
    hook.disabled_at = hook.disabled_because = hook.failing_since = None


def delete_webhook(session: Session, caller: Caller, hook: Webhook) -> None:
    """Delete a webhook with its deliveries; a try under way is finished."""
    of_hook = Delivery.webhook_id == hook.id
    events = session.scalars(select(Delivery.event_id).where(of_hook)).all()
    session.execute(delete(Delivery).where(of_hook))
    forget_events(session, events)
    session.delete(hook)
    _record(session, caller, "webhook.delete", hook)


def ping(session: Session, hook: Webhook) -> Delivery:
    """Send a test message. Raises ConflictError while one is queued, or if it is disabled."""
    _require_on(hook)
    on_its_way = (
        select(Delivery.id)
        .join(NoticeEvent, NoticeEvent.id == Delivery.event_id)
        .where(
            Delivery.webhook_id == hook.id,
            Delivery.state == "waiting",
            NoticeEvent.kind == TEST,
        )
    )
    if session.scalar(on_its_way) is not None:
        raise ConflictError("A test of this webhook is already queued; wait for it.")
    content = {"webhook": {"id": hook.id}, "links": {"api": f"/api/v1/webhooks/{hook.id}"}}
    return send_now(session, new_event(TEST, Subject(hook.user_id, None, content)), hook=hook)


def send_now(session: Session, row: dict[str, Any], *, hook: Webhook) -> Delivery:
    """Create a delivery of an event for one webhook only."""
    now = utc_now()
    session.flush()
    session.execute(insert(NoticeEvent), [row | {"spread_at": now}])
    delivery = Delivery(**waiting_row(row["id"], now), webhook=hook)
    session.add(delivery)
    session.flush()
    wake_after_commit(session, NoticeWakeup)
    return delivery


def resend(session: Session, hook: Webhook, delivery: Delivery) -> Delivery:
    """Retry an ended delivery from the start, with the same id, whatever its outcome."""
    _require_on(hook)
    if delivery.state == "waiting":
        raise ConflictError(
            f"Delivery {delivery.id} is on its way; its next try is at "
            f"{delivery.due_at:%Y-%m-%d %H:%M:%S} UTC."
        )
    delivery.state, delivery.ended_at = "waiting", None
    delivery.failures, delivery.due_at = 0, utc_now()
    wake_after_commit(session, NoticeWakeup)
    return delivery


def _require_on(hook: Webhook) -> None:
    if hook.disabled_at is not None:
        raise ConflictError(
            f"Webhook {hook.id} is disabled ({hook.disabled_because}); enable it first."
        )


MOST_ADDRESSES = 5
# Limits on unwanted mail to addresses that somebody else entered: to one mailbox, from one user.
CONFIRMATIONS_PER_DAY = 3
CONFIRMATIONS_BY_USER = 10


def subscribe(
    session: Session, services: Services, caller: Caller, wanted: MailCreate
) -> MailSubscription:
    """Create a mail subscription. Unless confirmed before, its address gets a mail to confirm it.

    Raises ConflictError if this server sends no mail, or for too many addresses or mails.
    """
    if services.settings.smtp_url is None:
        raise ConflictError("This server sends no mail; use a webhook for the same events.")
    require_wanted(services, caller, wanted)
    if len(list_mails(session, caller)) >= MOST_ADDRESSES:
        raise ConflictError(f"You have {MOST_ADDRESSES} mail subscriptions; end one first.")
    now = utc_now()
    subscription = MailSubscription(
        id=new_id(),
        user_id=caller.user_id,
        address=wanted.address,
        mailbox=mailbox_of(wanted.address),
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


def mailbox_of(address: str) -> str:
    """The mailbox of an address: in small letters, without a tag behind a plus sign."""
    local, _, domain = address.lower().rpartition("@")
    return f"{local.partition('+')[0]}@{domain}"


def _ask_to_confirm(
    session: Session, caller: Caller, subscription: MailSubscription, *, now: datetime
) -> None:
    today = (
        select(func.count())
        .select_from(Delivery)
        .join(NoticeEvent, NoticeEvent.id == Delivery.event_id)
        .join(MailSubscription, MailSubscription.id == Delivery.mail_id)
        .where(NoticeEvent.kind == CONFIRM, Delivery.created_at > now - timedelta(days=1))
    )
    by_user = session.scalar(today.where(MailSubscription.user_id == caller.user_id)) or 0
    if by_user >= CONFIRMATIONS_BY_USER:
        raise ConflictError(
            f"You asked for {by_user} confirmation mails within a day, which is the most. Try "
            "again tomorrow."
        )
    asked = session.scalar(today.where(MailSubscription.mailbox == subscription.mailbox)) or 0
    if asked >= CONFIRMATIONS_PER_DAY:
        raise ConflictError(
            f"{subscription.address} got {asked} confirmation mails within a day; look for "
            "those, or try again tomorrow."
        )
    row = new_event(CONFIRM, Subject(subscription.user_id, None, {}))
    session.execute(insert(NoticeEvent), [row | {"spread_at": now}])
    session.add(Delivery(**waiting_row(row["id"], now), mail=subscription))
    wake_after_commit(session, NoticeWakeup)


def confirm(subscription: MailSubscription) -> None:
    """Confirm the address, which starts its mails. Confirming twice changes nothing."""
    subscription.verified_at = subscription.verified_at or utc_now()


def end_subscription(session: Session, subscription: MailSubscription) -> None:
    """End a mail subscription; its waiting deliveries are not sent."""
    now = utc_now()
    subscription.ended_at = now
    session.execute(
        update(Delivery)
        .where(Delivery.mail_id == subscription.id, Delivery.state == "waiting")
        .values(state="failed", ended_at=now)
    )
