"""One try of one delivery, from its rows to what came of it."""

import time
from importlib.metadata import version

from server.database import Database, utc_now
from server.errors import ContentError
from server.mail_settings import MailServer, parse_smtp_url
from server.models import Delivery, MailSubscription, NoticeEvent, Webhook
from server.notices.addresses import check_url
from server.notices.answers import Answer
from server.notices.bodies import mail_subject, mail_text, post_body, unsubscribe_url
from server.notices.deliveries import Claimed, settle
from server.notices.kinds import CONFIRM
from server.notices.mailing import compose, send_mail
from server.notices.signature import signature_headers
from server.settings import Settings


def mail_server(settings: Settings) -> MailServer | None:
    """Where mail is handed in; None where this server sends none."""
    url = settings.smtp_url
    return None if url is None else parse_smtp_url(url.get_secret_value())


def deliver(database: Database, settings: Settings, claimed: Claimed) -> Answer | None:
    """Send what was claimed and keep what came of it; None if it is not wanted any more."""
    with database.read() as session:
        delivery = session.get(Delivery, claimed.id)
        if delivery is None or delivery.state != "waiting":
            return None
        event, hook, subscription = delivery.event, delivery.webhook, delivery.mail
    answer = _send(settings, event, hook, subscription)
    with database.write() as session:
        settle(session, claimed.id, answer, claims=claimed.claims + 1)
    return answer


def _send(
    settings: Settings,
    event: NoticeEvent,
    hook: Webhook | None,
    subscription: MailSubscription | None,
) -> Answer:
    if hook is not None:
        return _post(settings, event, hook)
    if subscription is not None:
        return _mail(settings, event, subscription)
    raise ValueError(f"event {event.id} is on its way to nobody")


def _post(settings: Settings, event: NoticeEvent, hook: Webhook) -> Answer:
    # The client is imported by the first message: most servers start without sending one.
    from server.notices.posting import post

    private_allowed = settings.webhook_private_addresses
    try:
        check_url(hook.url, private_allowed=private_allowed)
    except ContentError as error:  # What was allowed when it was made may not be any more.
        return Answer(None, 0.0, error=error.detail)
    body = post_body(event, site=site_of(settings))
    signed = signature_headers(valid_secrets(hook), event.id, seconds=int(time.time()), body=body)
    headers = signed | {
        "Content-Type": "application/json",
        "Content-Length": str(len(body)),
        "User-Agent": f"Finishline/{version('finishline')}",
    }
    return post(hook.url, headers, body, private_allowed=private_allowed)


def valid_secrets(hook: Webhook) -> list[str]:
    """The secrets that sign, the latest first: two while one is being replaced."""
    until = hook.previous_until
    if hook.previous_secret is None or until is None or until <= utc_now():
        return [hook.secret]
    return [hook.secret, hook.previous_secret]


def _mail(settings: Settings, event: NoticeEvent, subscription: MailSubscription) -> Answer:
    server, sender, site = mail_server(settings), settings.mail_from, site_of(settings)
    if server is None or sender is None:
        return Answer(None, 0.0, error="This server sends no mail.")
    ends = None if event.kind == CONFIRM else unsubscribe_url(subscription, site=site)
    message = compose(
        sender=sender,
        receiver=subscription.address,
        subject=mail_subject(event),
        text=mail_text(event, subscription, site=site),
        message_id=f"{event.id}.{subscription.id}",
        unsubscribe_url=ends,
    )
    return send_mail(server, message)


def site_of(settings: Settings) -> str:
    """The public address without a slash at its end; empty if it is not set."""
    return (settings.public_url or "").rstrip("/")
