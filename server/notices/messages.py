"""How a message goes out: as a signed post to an allowed address, or as a mail."""

import asyncio
import base64
import hashlib
import hmac
import secrets
import smtplib
import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from functools import cache, partial
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

import orjson
from sqlalchemy.orm import Session
from standardwebhooks import Webhook

from server.base.database import moment_text, utc_now
from server.base.errors import ContentError, NotFoundError
from server.base.models import Message, Receiver
from server.base.places import VERSION
from server.base.settings import MailServer, Settings, parse_smtp_url
from server.notices.events import CONFIRM, Content

SECRET_BYTES = 32
LIMIT_SECONDS = 10.0
ANSWER_BYTES, ANSWER_CHARACTERS = 4096, 500


def new_secret() -> str:
    """Generate a random secret in the form shown to its receiver."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature_headers(
    secret: str, message_id: str, body: bytes, *, now: datetime
) -> dict[str, str]:
    """Make a message's headers: its id, the second of this try, their and the body's signature."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, now, body.decode()),
    }


IpAddress = IPv4Address | IPv6Address
LONGEST_URL = 2000
# Refused even in private networks: clouds serve a machine's credentials there, or the last part is
# an IPv4 address that a gateway unpacks (6to4, Teredo, compatible, translated, local NAT64).
NEVER = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
        "fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128",
        "fd00:42::42/128", "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128",
        "2002::/16", "2001::/32", "::/96", "::ffff:0:0:0/96", "64:ff9b:1::/48",
    )
)  # fmt: skip
# Public by is_global, but refused: multicast, relays, documents' and routers' addresses.
NEVER_PUBLIC = tuple(
    ip_network(text)
    for text in (
        "192.0.0.0/24", "192.88.99.0/24", "224.0.0.0/4", "3fff::/20", "5f00::/16", "fec0::/10",
        "ff00::/8",
    )
)  # fmt: skip
NAT64 = ip_network("64:ff9b::/96")  # The well-known one, by which IPv6 reaches all of IPv4.
ISATAP = (0x00005EFE, 0x02005EFE)  # Bits 64 to 95 of an address ending in an IPv4 address.


class NoAllowedAddressError(Exception):
    """A host without an allowed address."""


def check_url(url: str, *, private_allowed: bool) -> None:
    """Raise ContentError unless a webhook may have this URL, as far as its text shows."""
    if len(url) > LONGEST_URL or not url.isascii() or not url.isprintable() or " " in url:
        raise ContentError(
            f"url: expected at most {LONGEST_URL} ASCII characters without a blank; write a name "
            "in other letters as its xn-- form."
        )
    try:
        parts = urlsplit(url)
        port, host = parts.port, parts.hostname
    except ValueError as error:
        raise ContentError(f"url: {error}.") from error
    schemes = ("https", "http") if private_allowed else ("https",)
    if parts.scheme not in schemes or not host or port == 0:
        raise ContentError(
            f"url: expected {' or '.join(schemes)}, a host and a path, as in "
            "https://hooks.example.org/finishline."
        )
    if parts.username is not None or parts.password is not None:
        raise ContentError("url: expected no user name or password; use the secret to check posts.")
    if parts.fragment:
        raise ContentError("url: expected no fragment (#).")
    with suppress(ValueError):  # A name says nothing about its address.
        if not is_allowed(ip_address(host), private_allowed=private_allowed):
            raise ContentError(f"url: {host} is not a public address.")


def is_allowed(address: IpAddress, *, private_allowed: bool) -> bool:
    """Return whether a webhook may be posted to an address."""
    if isinstance(address, IPv6Address):
        inside = IPv4Address(int(address) & 0xFFFFFFFF)
        address = address.ipv4_mapped or (inside if address in NAT64 else address)
    if address.is_loopback:
        return private_allowed
    if _lies_in(address, NEVER) or (int(address) >> 32) & 0xFFFFFFFF in ISATAP:
        return False
    if private_allowed:
        return not address.is_multicast and not address.is_unspecified
    return address.is_global and not _lies_in(address, NEVER_PUBLIC)


def _lies_in(address: IpAddress, networks: tuple[object, ...]) -> bool:
    return any(address in network for network in networks)  # type: ignore[operator]


def resolve(host: str, port: int, *, private_allowed: bool) -> str:
    """Resolve a host to an address open to webhooks.

    Raises NoAllowedAddressError if a host has no address, or any forbidden one, as in DNS
    rebinding. Both have one error, to hide the names of an internal network.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = []
    addresses = [ip_address(str(entry[4][0])) for entry in found]
    allowed = [is_allowed(address, private_allowed=private_allowed) for address in addresses]
    if not addresses or not all(allowed):
        raise NoAllowedAddressError(f"{host} has no public address.")
    return str(addresses[0])


@dataclass(frozen=True)
class Answer:
    """Outcome of one try: a status and the start of the response, or an error."""

    status: int | None = None
    text: str = ""
    error: str | None = None
    retry_after_seconds: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the receiver accepted it, by 200 to 299."""
        return self.status is not None and 200 <= self.status < 300


@cache
def _trust() -> ssl.SSLContext:
    return ssl.create_default_context()


def post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    *,
    private_allowed: bool,
    limit_seconds: float = LIMIT_SECONDS,
) -> Answer:
    """Post a body. Returns the outcome, also of a failed connection. Follows no redirects."""
    return asyncio.run(_post(url, headers, body, private_allowed, limit_seconds))


async def _post(
    url: str,
    headers: Mapping[str, str],
    body: bytes,
    private_allowed: bool,
    limit_seconds: float,
) -> Answer:
    """Post to the checked address, with the host's name in the header and the TLS handshake."""
    from httpx2 import URL, AsyncClient, HTTPError, InvalidURL

    parts, status, content, wanted = urlsplit(url), None, b"", ""
    host, port = parts.hostname or "", parts.port or (443 if parts.scheme == "https" else 80)
    why: str | None = None
    try:
        address = URL(url).copy_with(host=resolve(host, port, private_allowed=private_allowed))
        own = {"Host": parts.netloc, "Accept-Encoding": "identity", **headers}
        names = {"sni_hostname": host}
        async with (
            asyncio.timeout(limit_seconds),
            AsyncClient(verify=_trust(), trust_env=False, timeout=None) as client,
            client.stream("POST", address, content=body, headers=own, extensions=names) as response,
        ):
            status, wanted = response.status_code, response.headers.get("Retry-After", "")
            async for piece in response.aiter_raw():
                content += piece
                if len(content) >= ANSWER_BYTES:
                    break
    except NoAllowedAddressError as error:
        why = str(error)
    except TimeoutError:
        why = f"No response within {limit_seconds:g} s."
    except (HTTPError, InvalidURL, OSError, ValueError) as error:
        why = f"The connection failed: {error}"[:ANSWER_CHARACTERS]
    if status is None:
        return Answer(error=why)
    seconds = float(wanted) if wanted.isdecimal() and len(wanted) < 7 else None
    return Answer(status, _plain(content[:ANSWER_BYTES]), retry_after_seconds=seconds)


def _plain(content: bytes) -> str:
    return content.decode(errors="replace").replace("\0", "\ufffd")[:ANSWER_CHARACTERS]


SLACK = ("hooks.slack.com", "hooks.slack-gov.com")
DISCORD = ("discord.com", "canary.discord.com", "ptb.discord.com", "discordapp.com")
LONGEST_DISCORD = 2000


def post_body(url: str, message: Message, *, site: str) -> bytes:
    """Write a message as JSON: type, timestamp and data, as Standard Webhooks recommends.

    Slack and Discord get text, in which names notify nobody.
    """
    host = urlsplit(url).hostname
    links = {name: site + path for name, path in message.content.get("links", {}).items()}
    if host in SLACK or host in DISCORD:
        lines = [message.content["sentence"], *_figures(message.content)]
        text = "\n".join([*lines, links["page"]] if "page" in links else lines)
        if host in DISCORD:
            quiet = {"content": text[:LONGEST_DISCORD], "allowed_mentions": {"parse": []}}
            return orjson.dumps(quiet)
        escaped = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
        return orjson.dumps({"text": escaped})
    at, data = moment_text(message.created_at), message.content | {"links": links}
    return orjson.dumps({"type": message.kind, "timestamp": at, "data": data})


def _figures(content: Content) -> list[str]:
    own, attempt = content.get("submission") or {}, content.get("attempt")
    lines = [f"Submission: {own['id']}", f"Status: {own['status']}"] if own else []
    if (quality := content.get("record", {}).get("quality")) is not None:
        lines.append(f"Quality: {quality:.6g}")
    elif own.get("ranks_by") != "quality" and own.get("tta_seconds") is not None:
        lines.append(f"Time to accuracy: {own['tta_seconds']:.6g} s")
    if attempt:
        lines.append(f"Attempt: {attempt['number']} on {attempt['worker'] or 'no worker yet'}")
    return lines


def compose_mail(message: Message, receiver: Receiver, *, sender: str, site: str) -> EmailMessage:
    """Compose the mail of a message. Retries have the same id, so a repeated mail shows once."""
    mail = EmailMessage(policy=SMTP.clone(max_line_length=200))
    mail["From"], mail["To"] = sender, Address(addr_spec=receiver.address)
    mail["Subject"] = one_line("[Finishline] " + message.content["sentence"])
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
        mail["List-Unsubscribe-Post"] = "List-Unsubscribe=One-Click"  # RFC 8058: a button.
        page = site + message.content.get("links", {}).get("page", "")
        lines = [message.content["sentence"] + ".", *_figures(message.content)]
        text = "\n".join([*lines, "", page, "", "--", f"Unsubscribe: {ends}", ""])
    mail.set_content(text, charset="utf-8", cte="quoted-printable")
    return mail


def one_line(text: str) -> str:
    """Remove line ends and other control characters, and shorten for a header."""
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())[:150]


def send_mail(server: MailServer, mail: EmailMessage, *, limit_seconds: float = 10.0) -> Answer:
    """Send one mail over SMTP. Returns the outcome, also of a failure."""
    context = ssl.create_default_context()
    is_secure = server.scheme == "smtps"
    connect = partial(smtplib.SMTP_SSL, context=context) if is_secure else smtplib.SMTP
    try:
        connection = connect(server.host, server.port, timeout=limit_seconds)
        try:
            _sign_in(connection, server, context)
            connection.send_message(mail)
        finally:
            connection.close()
        return Answer(250)
    except smtplib.SMTPResponseException as error:
        status, said = error.smtp_code, error.smtp_error
    except smtplib.SMTPRecipientsRefused as error:
        status, said = next(iter(error.recipients.values()))
    except (smtplib.SMTPException, OSError) as error:
        return Answer(error=str(error)[:ANSWER_CHARACTERS])
    words = said if isinstance(said, bytes) else said.encode()
    return Answer(status, _plain(words), error="It refused.")


def _sign_in(connection: smtplib.SMTP, server: MailServer, context: ssl.SSLContext) -> None:
    """Encrypt and sign in as the settings say. A password goes in clear to this machine only."""
    connection.ehlo()
    if server.scheme == "starttls" or (server.scheme == "smtp" and connection.has_extn("starttls")):
        connection.starttls(context=context)
        connection.ehlo()
    if server.user is None:
        return
    if not isinstance(connection.sock, ssl.SSLSocket) and not server.is_loopback:
        raise smtplib.SMTPNotSupportedError(
            "The mail server offers no encryption, so the password was not sent."
        )
    connection.login(server.user, server.password or "")


def send(message: Message, receiver: Receiver, settings: Settings) -> Answer:
    """Try once to send a message, as the settings say. Returns the outcome."""
    site = (settings.public_url or "").rstrip("/")
    if receiver.channel == "mail":
        if settings.smtp_url is None or settings.mail_from is None:
            return Answer(error="This server sends no mail.")
        mail = compose_mail(message, receiver, sender=settings.mail_from, site=site)
        return send_mail(parse_smtp_url(settings.smtp_url.get_secret_value()), mail)
    private_allowed = settings.webhook_private_addresses
    try:
        check_url(receiver.address, private_allowed=private_allowed)
    except ContentError as error:  # Its address may not be allowed any more.
        return Answer(error=error.detail)
    body = post_body(receiver.address, message, site=site)
    headers = {
        **signature_headers(receiver.secret, message.message_id, body, now=utc_now()),
        "Content-Type": "application/json",
        "User-Agent": f"Finishline/{VERSION}",
    }
    return post(receiver.address, headers, body, private_allowed=private_allowed)


def link_token(receiver: Receiver, purpose: str) -> str:
    """Make the token of a mail's link, to "confirm" or "unsubscribe": receiver's id, signature."""
    # The address is signed too: a link confirms only the address it was sent to.
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
