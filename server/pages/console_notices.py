"""Notifications of a user: webhooks with their deliveries, and mail subscriptions."""

from sqlalchemy.orm import Session

from server.base.services import Services
from server.notices import subscriptions
from server.notices.events import ABOUT
from server.notices.views import MailView
from server.pages.declared import Context, page
from server.people.callers import Caller

USUAL = ("submission.verified", "submission.rejected", "submission.inconclusive", "record.set")


@page(subscriptions.CONSOLE, "notices.html", role="submitter")
def notices_page(session: Session, services: Services, caller: Caller) -> Context:
    """Webhooks, addresses, and the forms that make them."""
    return {
        "typed": {"scope": "own"} | dict.fromkeys(USUAL, "on"),
        "hooks": subscriptions.get_webhooks(session, caller).webhooks,
        "mails": [MailView.of(each) for each in subscriptions.list_mails(session, caller)],
        "kinds": list(ABOUT.items()),
        "benchmarks": sorted(services.benchmarks),
        "sends_mail": services.settings.smtp_url is not None,
    }


@page(subscriptions.ONE, "webhook.html", role="submitter")
def webhook_page(session: Session, caller: Caller, webhook_id: subscriptions.WebhookId) -> Context:
    """A webhook and its latest deliveries."""
    return {
        "hook": subscriptions.get_webhook(session, caller, webhook_id),
        "deliveries": subscriptions.get_deliveries(session, caller, webhook_id).deliveries,
    }
