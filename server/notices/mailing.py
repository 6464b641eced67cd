"""One mail: written so that nothing a stranger named can become a header, and handed in."""

import smtplib
import ssl
import time
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from importlib.metadata import version

from server.mail_settings import MailServer
from server.notices.answers import ANSWER_CHARACTERS, Answer

LIMIT_SECONDS = 10.0
# RFC 5321: a mail that is refused so is refused for good.
ACCEPTED = 250


def compose(
    *,
    sender: str,
    receiver: str,
    subject: str,
    text: str,
    message_id: str,
    unsubscribe_url: str | None,
) -> EmailMessage:
    """A plain text mail. The id is the same at each try, so that a mail that came twice shows once.

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
    message["X-Mailer"] = f"Finishline {version('finishline')}"
    if unsubscribe_url is not None:
        message["List-Unsubscribe"] = f"<{unsubscribe_url}>"
        message["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"
    message.set_content(text, charset="utf-8", cte="quoted-printable")
    return message


def one_line(text: str) -> str:
    """A text without line ends or other control characters, and short enough for a header."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:150]


def send_mail(server: MailServer, message: EmailMessage) -> Answer:
    """Hand a mail in; what came of it, also if nothing did."""
    began = time.monotonic()
    try:
        with _connect(server) as connection:
            connection.send_message(message)
        return Answer(ACCEPTED, _milliseconds_since(began))
    except smtplib.SMTPResponseException as error:
        said = _said(error.smtp_error)
        return Answer(error.smtp_code, _milliseconds_since(began), text=said, error="It refused.")
    except smtplib.SMTPRecipientsRefused as error:
        code, words = next(iter(error.recipients.values()))
        return Answer(code, _milliseconds_since(began), text=_said(words), error="It refused.")
    except (smtplib.SMTPException, OSError) as error:
        return Answer(None, _milliseconds_since(began), error=str(error)[:ANSWER_CHARACTERS])


def _said(words: bytes | str) -> str:
    text = words.decode(errors="replace") if isinstance(words, bytes) else words
    return text.replace("\0", "\ufffd")[:ANSWER_CHARACTERS]


def _milliseconds_since(began: float) -> float:
    return round((time.monotonic() - began) * 1000, 1)


def _connect(server: MailServer) -> smtplib.SMTP:
    """A connection that is encrypted as the settings say, and signed in. The caller closes it."""
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
