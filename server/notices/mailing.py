"""Compose and send mails, and confirm addresses."""

import smtplib
import ssl
import time
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

import orjson

from server.base.code_version import VERSION
from server.base.database import moment_text
from server.base.models import MailSubscription, NoticeEvent
from server.base.settings import MailServer
from server.notices.announce import CONFIRM, SWITCHED_OFF, TEST, link_token
from server.notices.webhooks import ANSWER_CHARACTERS, Answer, milliseconds_since

LIMIT_SECONDS = 10.0
# RFC 5321: a mail that is refused so is refused for good.
ACCEPTED = 250
SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
DISCORD = ("discord.com", "canary.discord.com", "ptb.discord.com", "discordapp.com")
LONGEST_DISCORD = 2000


def compose(
    *,
    sender: str,
    receiver: str,
    subject: str,
    text: str,
    message_id: str,
    unsubscribe_url: str | None,
) -> EmailMessage:
    """Compose a plain text mail. Retries have the same id, so that a repeated mail shows once.

    With an address to unsubscribe at, mail programs offer a button for it (RFC 8058).
    """
    message = EmailMessage(policy=SMTP.clone(max_line_length=200))
    message["From"] = sender
    message["To"] = Address(addr_spec=receiver)
    message["Subject"] = one_line(subject)
    message["Date"] = formatdate(localtime=False)
    domain = message["From"].addresses[0].domain
    message["Message-ID"] = f"<{message_id}@{domain}>"
    message["Auto-Submitted"] = "auto-generated"
    message["X-Mailer"] = f"Finishline {VERSION}"
    if unsubscribe_url is not None:
        message["List-Unsubscribe"] = f"<{unsubscribe_url}>"
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(text, charset="utf-8", cte="quoted-printable")
    return message


def one_line(text: str) -> str:
    """Remove line ends and other control characters, and shorten for a header."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:150]


def send_mail(server: MailServer, message: EmailMessage) -> Answer:
    """Send one mail over SMTP; returns the outcome, never raises for a failure to send."""
    began = time.monotonic()
    try:
        with _connect(server) as connection:
            connection.send_message(message)
        return Answer(ACCEPTED, milliseconds_since(began))
    except smtplib.SMTPResponseException as error:
        said = _said(error.smtp_error)
        return Answer(error.smtp_code, milliseconds_since(began), text=said, error="It refused.")
    except smtplib.SMTPRecipientsRefused as error:
        code, words = next(iter(error.recipients.values()))
        return Answer(code, milliseconds_since(began), text=_said(words), error="It refused.")
    except (smtplib.SMTPException, OSError) as error:
        return Answer(None, milliseconds_since(began), error=str(error)[:ANSWER_CHARACTERS])


def _said(words: bytes | str) -> str:
    text = words.decode(errors="replace") if isinstance(words, bytes) else words
    return text.replace("\0", "\ufffd")[:ANSWER_CHARACTERS]


def _connect(server: MailServer) -> smtplib.SMTP:
    """Connect, with encryption and sign-in as the settings say. The caller closes it."""
    context = ssl.create_default_context()
    if server.scheme == "smtps":
        connection: smtplib.SMTP = smtplib.SMTP_SSL(
            server.host, server.port, timeout=LIMIT_SECONDS, context=context
        )
    else:
        connection = smtplib.SMTP(server.host, server.port, timeout=LIMIT_SECONDS)
    try:
        _prepare(connection, server, context)
    except BaseException:
        connection.close()
        raise
    return connection


def _prepare(connection: smtplib.SMTP, server: MailServer, context: ssl.SSLContext) -> None:
    connection.ehlo()
    is_secure = server.scheme == "smtps"
    if server.scheme == "starttls" or (server.scheme == "smtp" and connection.has_extn("starttls")):
        connection.starttls(context=context)
        connection.ehlo()
        is_secure = True
    if server.user is None:
        return
    if not is_secure and not server.is_loopback:
        raise smtplib.SMTPNotSupportedError(
            "The mail server offers no encryption, so the password was not sent."
        )
    connection.login(server.user, server.password or "")


Content = dict[str, Any]
STATES = {
    "verification.queued": "waits for a worker",
    "verification.started": "was leased by a worker",
    "verification.lost": "lost its worker",
    "verification.done": "has ended",
    "verification.failed": "ended without an outcome",
    "verification.cancelled": "was cancelled",
    "decision.published": "was published",
}


def post_body(url: str, event: NoticeEvent, *, site: str) -> bytes:
    """JSON of an event: type, timestamp and data, as Standard Webhooks recommends.

    Links are whole where the server's public address is set. Webhooks of Slack and Discord get
    the event as a message, and nobody is called by a name in it.
    """
    host = urlsplit(url).hostname
    if host in SLACK:
        return orjson.dumps({"text": _escaped(_message(event, site=site))})
    if host in DISCORD:
        text = _message(event, site=site)[:LONGEST_DISCORD]
        return orjson.dumps({"content": text, "allowed_mentions": {"parse": []}})
    content = dict(event.content)
    links = content.get("links", {})
    content["links"] = {name: site + path for name, path in links.items()}
    return orjson.dumps(
        {"type": event.kind, "timestamp": moment_text(event.created_at), "data": content}
    )


def _message(event: NoticeEvent, *, site: str) -> str:
    lines = [_sentence(event), *(f"{name}: {value}" for name, value in _figures(event.content))]
    page = event.content.get("links", {}).get("page")
    return "\n".join([*lines, f"{site}{page}"] if page else lines)


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def mail_subject(event: NoticeEvent) -> str:
    """Subject line of a mail."""
    return f"[Finishline] {_sentence(event)}"


def mail_text(event: NoticeEvent, subscription: MailSubscription, *, site: str) -> str:
    """Text of a mail."""
    if event.kind == CONFIRM:
        return _confirmation(subscription, site=site)
    lines = [_sentence(event) + "."]
    lines += [f"{name}: {value}" for name, value in _figures(event.content)]
    page = event.content.get("links", {}).get("page", "")
    lines += ["", f"{site}{page}", "", "--"]
    ended = unsubscribe_url(subscription, site=site)
    return "\n".join([*lines, f"Unsubscribe: {ended}"]) + "\n"


def _confirmation(subscription: MailSubscription, *, site: str) -> str:
    link = f"{site}/mail/confirm/{link_token(subscription, 'confirm')}"
    return (
        "Somebody asked Finishline to send notices to this address.\n\n"
        f"If that was you, confirm it here:\n{link}\n\n"
        "If it was not, do nothing. You get no other mail.\n"
    )


def unsubscribe_url(subscription: MailSubscription, *, site: str) -> str:
    """URL that ends a subscription without signing in."""
    return f"{site}/mail/unsubscribe/{link_token(subscription, 'unsubscribe')}"


def _sentence(event: NoticeEvent) -> str:
    content, kind = event.content, event.kind
    if kind == CONFIRM:
        return "Confirm this address"
    if kind == TEST:
        return "A test of this webhook"
    if kind == SWITCHED_OFF:
        return f"Webhook {content['webhook']['id']} is disabled: {content['webhook']['why']}"
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
    if kind == "audit.head":
        own = content["head"]
        return f"Audit log at the end of {own['at'][:10]}: record {own['id']}, {own['sha256']}"
    own = content["worker"]
    return f"Worker {own['name']} gets no work: {own['why']}"


def _verification_sentence(kind: str, own: Content) -> str:
    outcome = f": {own['outcome'].replace('_', ' ')}" if own["outcome"] else ""
    return f"{own['benchmark']}: {own['kind']} {own['id']} {STATES[kind]}{outcome}"


def _figures(content: Content) -> list[tuple[str, str]]:
    own = content.get("submission") or {}
    lines = [("Submission", own["id"]), ("Status", own["status"])] if own else []
    if own.get("tta_seconds") is not None:
        lines.append(("Time to accuracy", f"{own['tta_seconds']:.6g} s"))
    attempt = content.get("attempt")
    if attempt:
        lines.append(("Attempt", f"{attempt['number']} on {attempt['worker'] or 'no worker yet'}"))
    return lines
