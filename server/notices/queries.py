"""Reading one's own webhooks, addresses and deliveries: those of others are not there."""

from sqlalchemy import select
from sqlalchemy.orm import Session

from server.dependencies import Caller
from server.errors import NotFoundError
from server.models import Delivery, MailSubscription, Webhook


def list_webhooks(session: Session, caller: Caller) -> list[Webhook]:
    """The caller's webhooks, newest first."""
    own = Webhook.user_id == caller.user_id
    order = (Webhook.created_at.desc(), Webhook.id)
    return list(session.scalars(select(Webhook).where(own).order_by(*order)))


def find_webhook(session: Session, caller: Caller, webhook_id: str) -> Webhook:
    """A webhook of the caller's. Raises NotFoundError, also for somebody else's."""
    hook = session.get(Webhook, webhook_id)
    if hook is None or hook.user_id != caller.user_id:
        raise NotFoundError(f"You have no webhook {webhook_id!r}.")
    return hook


def list_deliveries(
    session: Session, hook: Webhook, *, state: str | None, limit: int
) -> list[Delivery]:
    """The latest deliveries of a webhook, newest first."""
    query = select(Delivery).where(Delivery.webhook_id == hook.id)
    if state is not None:
        query = query.where(Delivery.state == state)
    return list(session.scalars(query.order_by(Delivery.id.desc()).limit(limit)))


def find_delivery(session: Session, hook: Webhook, delivery_id: int) -> Delivery:
    """A delivery of a webhook. Raises NotFoundError."""
    delivery = session.get(Delivery, delivery_id, with_for_update={"of": Delivery})
    if delivery is None or delivery.webhook_id != hook.id:
        raise NotFoundError(f"Webhook {hook.id} has no delivery {delivery_id}.")
    return delivery


def list_mails(session: Session, caller: Caller) -> list[MailSubscription]:
    """The caller's addresses, newest first."""
    own = (MailSubscription.user_id == caller.user_id, MailSubscription.ended_at.is_(None))
    order = (MailSubscription.created_at.desc(), MailSubscription.id)
    return list(session.scalars(select(MailSubscription).where(*own).order_by(*order)))


def find_mail(session: Session, caller: Caller, mail_id: str) -> MailSubscription:
    """An address of the caller's. Raises NotFoundError, also for somebody else's."""
    found = session.get(MailSubscription, mail_id)
    if found is None or found.user_id != caller.user_id or found.ended_at is not None:
        raise NotFoundError(f"You have no mail subscription {mail_id!r}.")
    return found
