"""Views of stored webhooks and deliveries."""

from typing import Any

from finishline.api.notices import DeliveryView, WebhookView
from server.base.models import Delivery, Webhook


def webhook_fields(hook: Webhook) -> dict[str, Any]:
    """Fields of a stored webhook by the names of its view."""
    return {
        "id": hook.id,
        "url": hook.url,
        "kinds": hook.kinds,
        "scope": hook.scope,
        "benchmark": hook.benchmark_id,
        "created_at": hook.created_at,
        "failing_since": hook.failing_since,
        "disabled_at": hook.disabled_at,
        "disabled_because": hook.disabled_because,
        "previous_secret_until": hook.previous_until,
    }


def webhook_view(hook: Webhook) -> WebhookView:
    """View of a stored webhook."""
    return WebhookView(**webhook_fields(hook))


def delivery_view(delivery: Delivery) -> DeliveryView:
    """View of a stored delivery."""
    return DeliveryView.of(
        delivery,
        message_id=delivery.event_id,
        kind=delivery.event.kind,
        due_at=delivery.due_at if delivery.state == "waiting" else None,
    )
