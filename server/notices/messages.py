"""What a message says to programs, chats and people, and the mails that carry it."""

import hashlib
import hmac
import smtplib
import ssl
import time
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from urllib.parse import urlsplit

import orjson
from sqlalchemy.orm import Session

from server.base.database import moment_text
from server.base.errors import NotFoundError
from server.base.models import Message, Receiver
from server.base.places import VERSION
from server.base.settings import MailServer
from server.notices.events import CONFIRM, SWITCHED_OFF, TEST, Content
from server.notices.webhooks import ANSWER_CHARACTERS, Answer, milliseconds_since

SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
DISCORD = ("discord.com", "canary.discord.com", "ptb.discord.com", "discordapp.com")
LONGEST_DISCORD = 2000
STATES = {
    "verification.queued": "waits for a worker",
    "verification.started": "was leased by a worker",
    "verification.lost": "lost its worker",
    "verification.done": "has ended",
    "verification.failed": "ended without an outcome",
    "verification.cancelled": "was cancelled",
    "decision.published": "was published",
}


def post_body(url: str, message: Message, *, site: str) -> bytes:
    """JSON of a message: type, timestamp and data, as Standard Webhooks recommends.

    Links are whole where the server's public address is set. Webhooks of Slack and Discord get
    the event as text, and nobody is called by a name in it.
    """
    host = urlsplit(url).hostname
    links = {name: site + path for name, path in message.content.get("links", {}).items()}
    if host in SLACK or host in DISCORD:
        text = "\n".join([sentence(message), *_figures(message.content)])
        text += f"\n{links['page']}" if "page" in links else ""
        if host in DISCORD:
            quiet = {"content": text[:LONGEST_DISCORD], "allowed_mentions": {"parse": []}}
            return orjson.dumps(quiet)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return orjson.dumps({"text": escaped})
    at, data = moment_text(message.created_at), message.content | {"links": links}
    return orjson.dumps({"type": message.kind, "timestamp": at, "data": data})


def sentence(message: Message) -> str:
    """What happened, in one sentence without its full stop."""
    content, kind = message.content, message.kind
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
        own = content["verification"]
        outcome = f": {own['outcome'].replace('_', ' ')}" if own["outcome"] else ""
        return f"{own['benchmark']}: {own['kind']} {own['id']} {STATES[kind]}{outcome}"
    if kind == "calibration.adopted":
        own = content["calibration"]
        return f"{own['benchmark']}: calibration {own['version']} is adopted"
    if kind == "audit.head":
        own = content["head"]
        return f"Audit log at the end of {own['at'][:10]}: record {own['id']}, {own['sha256']}"
    own = content["worker"]
    return f"Worker {own['name']} gets no work: {own['why']}"


def _figures(content: Content) -> list[str]:
    own, attempt = content.get("submission") or {}, content.get("attempt")
    lines = [f"Submission: {own['id']}", f"Status: {own['status']}"] if own else []
    if own.get("tta_seconds") is not None:
        lines.append(f"Time to accuracy: {own['tta_seconds']:.6g} s")
    if attempt:
        lines.append(f"Attempt: {attempt['number']} on {attempt['worker'] or 'no worker yet'}")
    return lines


def compose_mail(message: Message, receiver: Receiver, *, sender: str, site: str) -> EmailMessage:
    """Compose the mail of a message. Retries have the same id, so a repeated mail shows once.

    Mail programs offer a button for its `List-Unsubscribe` (RFC 8058).
    """
    mail = EmailMessage(policy=SMTP.clone(max_line_length=200))
    mail["From"], mail["To"] = sender, Address(addr_spec=receiver.address)
    mail["Subject"] = one_line(f"[Finishline] {sentence(message)}")
    mail["Date"] = formatdate(localtime=False)
    domain = mail["From"].addresses[0].domain
    mail["Message-ID"] = f"<{message.message_id}.{receiver.id}@{domain}>"
    mail["Auto-Submitted"] = "auto-generated"
    mail["X-Mailer"] = f"Finishline {VERSION}"
    if message.kind == CONFIRM:
        text = (
            "Somebody asked Finishline to send notices to this address.\n\n"
            "If that was you, confirm it here:\n"
            f"{site}/mail/confirm/{link_token(receiver, 'confirm')}\n\n"
            "If it was not, do nothing. You get no other mail.\n"
        )
    else:
        ends = f"{site}/mail/unsubscribe/{link_token(receiver, 'unsubscribe')}"
        mail["List-Unsubscribe"] = f"<{ends}>"
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
        page = site + message.content.get("links", {}).get("page", "")
        lines = [f"{sentence(message)}.", *_figures(message.content)]
        text = "\n".join([*lines, "", page, "", "--", f"Unsubscribe: {ends}", ""])
    mail.set_content(text, charset="utf-8", cte="quoted-printable")
    return mail


def one_line(text: str) -> str:
    """Remove line ends and other control characters, and shorten for a header."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:150]


def send_mail(server: MailServer, mail: EmailMessage, *, limit_seconds: float = 10.0) -> Answer:
    """Send one mail over SMTP; returns the outcome, never raises for a failure to send."""
    began = time.monotonic()
    context = ssl.create_default_context()
    try:
        if server.scheme == "smtps":
            connection: smtplib.SMTP = smtplib.SMTP_SSL(
                server.host, server.port, timeout=limit_seconds, context=context
            )
        else:
            connection = smtplib.SMTP(server.host, server.port, timeout=limit_seconds)
        try:
            _sign_in(connection, server, context)
            connection.send_message(mail)
        finally:
            connection.close()
        return Answer(250, milliseconds_since(began))
    except smtplib.SMTPResponseException as error:
        status, said = error.smtp_code, error.smtp_error
    except smtplib.SMTPRecipientsRefused as error:
        status, said = next(iter(error.recipients.values()))
    except (smtplib.SMTPException, OSError) as error:
        return Answer(None, milliseconds_since(began), error=str(error)[:ANSWER_CHARACTERS])
    words = said.decode(errors="replace") if isinstance(said, bytes) else said
    text = words.replace("\0", "\ufffd")[:ANSWER_CHARACTERS]
    return Answer(status, milliseconds_since(began), text=text, error="It refused.")


def _sign_in(connection: smtplib.SMTP, server: MailServer, context: ssl.SSLContext) -> None:
    """Encrypt and sign in as the settings say. A password goes in clear to this machine only."""
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


def link_token(receiver: Receiver, purpose: str) -> str:
    """Token of a mail's link to "confirm" or "unsubscribe": the receiver's id and a signature."""
    # The address is part of it: a link confirms the one it was sent to.
    content = f"{purpose}.{receiver.id}.{receiver.address}".encode()
    signature = hmac.new(receiver.secret.encode(), content, hashlib.sha256).hexdigest()[:40]
    return f"{receiver.id}.{signature}"


def find_by_link(session: Session, token: str, purpose: str) -> Receiver:
    """Find the mail address of a link. Raises NotFoundError, also for an invalid signature."""
    found = session.get(Receiver, token.partition(".")[0])
    if (
        found is None
        or (found.channel, found.disabled_at) != ("mail", None)
        or not hmac.compare_digest(link_token(found, purpose).encode(), token.encode())
    ):
        raise NotFoundError(
            "This link has expired or is incomplete. Copy the whole link, or subscribe again."
        )
    return found
