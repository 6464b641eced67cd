"""Endpoints of webhooks: each person sees and changes their own."""

from datetime import datetime
from typing import Annotated, Literal

from fastapi import APIRouter, Path, Query

from finishline.api.schema import Schema
from server.base.models import Message, Receiver
from server.base.services import ServicesDep
from server.notices import subscriptions
from server.notices.subscriptions import (
    WebhookCreate,
    find_delivery,
    find_webhook,
    list_deliveries,
    list_webhooks,
)
from server.people.dependencies import SubmitterDep


class WebhookView(Schema):
    """A webhook without its secret."""

    id: str
    url: str
    kinds: list[str]
    scope: str
    benchmark: str | None
    created_at: datetime
    failing_since: datetime | None
    disabled_at: datetime | None
    disabled_because: str | None


class WebhookCreated(WebhookView):
    """A webhook whose secret was just made: the only time it is shown."""

    secret: str


class WebhookList(Schema):
    """One's own webhooks, newest first."""

    webhooks: list[WebhookView]


class TryView(Schema):
    """A delivery attempt: a status and the start of the response, or the error instead."""

    at: datetime
    status: int | None
    milliseconds: float
    answer: str
    error: str | None


class DeliveryView(Schema):
    """A message on its way: `state` is waiting, delivered or failed. `due_at` is the next try."""

    id: int
    message_id: str
    kind: str
    state: str
    created_at: datetime
    due_at: datetime | None
    ended_at: datetime | None
    tries: list[TryView]


class DeliveryList(Schema):
    """The latest deliveries of a webhook, newest first."""

    deliveries: list[DeliveryView]


def webhook_view(hook: Receiver) -> WebhookView:
    """View of a stored webhook."""
    return WebhookView.of(hook, url=hook.address, benchmark=hook.benchmark_id)


def delivery_view(message: Message) -> DeliveryView:
    """View of a stored message."""
    return DeliveryView.of(message, due_at=message.due_at if message.state == "waiting" else None)


router = APIRouter(tags=["notices"])
IdDep = Annotated[str, Path(max_length=20)]
NumberDep = Annotated[int, Path(ge=1, le=2**31 - 1)]
LimitDep = Annotated[int, Query(ge=1, le=200)]
StateDep = Annotated[Literal["waiting", "delivered", "failed"] | None, Query()]


@router.get("/webhooks")
def get_webhooks(services: ServicesDep, caller: SubmitterDep) -> WebhookList:
    """List your webhooks, newest first, without their secrets."""
    with services.database.read() as session:
        return WebhookList(webhooks=[webhook_view(hook) for hook in list_webhooks(session, caller)])


@router.post("/webhooks", status_code=201)
def create_webhook(
    body: WebhookCreate, services: ServicesDep, caller: SubmitterDep
) -> WebhookCreated:
    """Create a webhook. The secret that signs its messages is only in this response."""
    with services.database.write() as session:
        hook = subscriptions.make_webhook(session, services, caller, body)
        return WebhookCreated.of(webhook_view(hook), secret=hook.secret)


@router.get("/webhooks/{webhook_id}")
def get_webhook(webhook_id: IdDep, services: ServicesDep, caller: SubmitterDep) -> WebhookView:
    """Read one of your webhooks."""
    with services.database.read() as session:
        return webhook_view(find_webhook(session, caller, webhook_id))


@router.delete("/webhooks/{webhook_id}", status_code=204)
def delete_webhook(webhook_id: IdDep, services: ServicesDep, caller: SubmitterDep) -> None:
    """Delete a webhook and the log of its deliveries."""
    with services.database.write() as session:
        subscriptions.delete_webhook(session, caller, find_webhook(session, caller, webhook_id))


@router.post("/webhooks/{webhook_id}/secret")
def replace_secret(
    webhook_id: IdDep, services: ServicesDep, caller: SubmitterDep
) -> WebhookCreated:
    """Replace the secret of a webhook. From now on only the new one signs."""
    with services.database.write() as session:
        hook = find_webhook(session, caller, webhook_id)
        secret = subscriptions.replace_secret(hook)
        return WebhookCreated.of(webhook_view(hook), secret=secret)


@router.post("/webhooks/{webhook_id}/enable")
def enable_webhook(webhook_id: IdDep, services: ServicesDep, caller: SubmitterDep) -> WebhookView:
    """Enable a webhook that was disabled."""
    with services.database.write() as session:
        hook = find_webhook(session, caller, webhook_id)
        subscriptions.switch_on(hook)
        return webhook_view(hook)


@router.post("/webhooks/{webhook_id}/test", status_code=202)
def send_test(webhook_id: IdDep, services: ServicesDep, caller: SubmitterDep) -> DeliveryView:
    """Send a message of type webhook.test; the log of deliveries shows its outcome."""
    with services.database.write() as session:
        return delivery_view(subscriptions.ping(session, find_webhook(session, caller, webhook_id)))


@router.get("/webhooks/{webhook_id}/deliveries")
def get_deliveries(
    webhook_id: IdDep,
    services: ServicesDep,
    caller: SubmitterDep,
    state: StateDep = None,
    limit: LimitDep = 50,
) -> DeliveryList:
    """List a webhook's deliveries within 30 days, newest first, with the outcome of each try."""
    with services.database.read() as session:
        hook = find_webhook(session, caller, webhook_id)
        found = list_deliveries(session, hook, state=state, limit=limit)
        return DeliveryList(deliveries=[delivery_view(item) for item in found])


@router.post("/webhooks/{webhook_id}/deliveries/{delivery_id}/resend", status_code=202)
def resend_delivery(
    webhook_id: IdDep, delivery_id: NumberDep, services: ServicesDep, caller: SubmitterDep
) -> DeliveryView:
    """Send a message again, with the same id."""
    with services.database.write() as session:
        hook = find_webhook(session, caller, webhook_id)
        delivery = find_delivery(session, hook, delivery_id)
        return delivery_view(subscriptions.resend(session, hook, delivery))
