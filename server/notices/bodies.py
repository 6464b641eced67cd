"""What is sent of an event: the body of a post, the subject and text of a mail."""

from typing import Any

import orjson

from server.database import moment_text
from server.models import MailSubscription, NoticeEvent
from server.notices.kinds import CONFIRM, SWITCHED_OFF
from server.notices.links import link_token

Content = dict[str, Any]
STATES = {
    "verification.queued": "waits for a worker",
    "verification.started": "was taken by a worker",
    "verification.lost": "lost its worker",
    "verification.done": "has ended",
    "verification.failed": "ended without an outcome",
    "verification.cancelled": "was cancelled",
    "decision.published": "was published",
}


def post_body(event: NoticeEvent, *, site: str) -> bytes:
    """The JSON of an event: type, timestamp and data, as Standard Webhooks recommends.

    Links are whole where the server's public address is set.
    """
    content = dict(event.content)
    links = content.get("links", {})
    content["links"] = {name: site + path for name, path in links.items()}
    return orjson.dumps(
        {"type": event.kind, "timestamp": moment_text(event.created_at), "data": content}
    )


def mail_subject(event: NoticeEvent) -> str:
    """What a mail is about, in a line."""
    return f"[Finishline] {_sentence(event)}"


def mail_text(event: NoticeEvent, subscription: MailSubscription, *, site: str) -> str:
    """What a mail says."""
    if event.kind == CONFIRM:
        return _confirmation(event, subscription, site=site)
    lines = [_sentence(event) + "."]
    lines += [f"{name}: {value}" for name, value in _figures(event.content)]
    page = event.content.get("links", {}).get("page", "")
    lines += ["", f"{site}{page}", "", "--"]
    ended = unsubscribe_url(subscription, site=site)
    return "\n".join([*lines, f"No more of these: {ended}"]) + "\n"


def _confirmation(event: NoticeEvent, subscription: MailSubscription, *, site: str) -> str:
    link = f"{site}/mail/confirm/{link_token(subscription, 'confirm')}"
    return (
        f"{event.content['user']} of {site} asked for notices to this address.\n\n"
        f"If that was you, confirm it here:\n{link}\n\n"
        "If it was not, do nothing: nothing else is sent.\n"
    )


def unsubscribe_url(subscription: MailSubscription, *, site: str) -> str:
    """Where a subscription is ended without signing in."""
    return f"{site}/mail/unsubscribe/{link_token(subscription, 'unsubscribe')}"


def _sentence(event: NoticeEvent) -> str:
    """What happened, without a full stop."""
    content, kind = event.content, event.kind
    if kind == CONFIRM:
        return "Confirm this address"
    if kind == SWITCHED_OFF:
        return f"Webhook {content['webhook']['id']} is switched off: {content['webhook']['why']}"
    if kind == "record.set":
        own = content["submission"]
        return f"{own['model']} holds the record of {own['benchmark']} ({own['division']})"
    if kind.startswith("submission."):
        own = content["submission"]
        return f"{own['benchmark']}: {own['model']} is {kind.partition('.')[2]}"
    if "verification" in content:
        return _verification_sentence(kind, content["verification"])
    if kind == "calibration.adopted":
        own = content["calibration"]
        return f"{own['benchmark']}: calibration {own['version']} is adopted"
    own = content["worker"]
    return f"Worker {own['name']} is out: {own['why']}"


def _verification_sentence(kind: str, own: Content) -> str:
    outcome = f": {own['outcome'].replace('_', ' ')}" if own["outcome"] else ""
    return f"{own['benchmark']}: {own['kind']} {own['id']} {STATES[kind]}{outcome}"


def _figures(content: Content) -> list[tuple[str, str]]:
    """The lines under the first, in units."""
    own = content.get("submission") or {}
    lines = [("Submission", own["id"]), ("Status", own["status"])] if own else []
    if own.get("tta_seconds") is not None:
        lines.append(("Time to accuracy", f"{own['tta_seconds']:.6g} s"))
    attempt = content.get("attempt")
    if attempt:
        lines.append(("Attempt", f"{attempt['number']} on {attempt['worker'] or 'no worker yet'}"))
    return lines
