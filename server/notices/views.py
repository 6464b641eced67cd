"""Views of stored webhooks and deliveries."""

from finishline.api.notices import DeliveryView, WebhookView
from server.base.models import Delivery, Webhook


def webhook_view(hook: Webhook) -> WebhookView:
    """View of a stored webhook."""
    return WebhookView.of(
        hook, benchmark=hook.benchmark_id, previous_secret_until=hook.previous_until
    )


def delivery_view(delivery: Delivery) -> DeliveryView:
    """View of a stored delivery."""
    return DeliveryView.of(
        delivery,
        message_id=delivery.event_id,
        kind=delivery.event.kind,
        due_at=delivery.due_at if delivery.state == "waiting" else None,
    )
