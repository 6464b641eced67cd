"""What a message says, and how it goes out: signed posts to allowed addresses, and mails."""

import base64
import hashlib
import hmac
import secrets
import smtplib
import socket
import ssl
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import formatdate
from functools import cache
from http.client import HTTPConnection, HTTPException, HTTPResponse
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

import orjson
from sqlalchemy.orm import Session
from standardwebhooks import Webhook

from server.base.database import moment_text
from server.base.errors import ContentError, NotFoundError
from server.base.models import Message, Receiver
from server.base.places import VERSION
from server.base.settings import MailServer
from server.notices.events import CONFIRM, SWITCHED_OFF, TEST, Content

SECRET_BYTES = 32
LIMIT_SECONDS = 10.0
ANSWER_BYTES, ANSWER_CHARACTERS = 4096, 500


def new_secret() -> str:
    """Generate a random secret in the form that its receiver is shown."""
    return "whsec_" + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature_headers(
    secret: str, message_id: str, body: bytes, *, now: datetime
) -> dict[str, str]:
    """Headers of a message: its id, the second of this try, and the signature of both and body."""
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Webhook(secret).sign(message_id, now, body.decode()),
    }


IpAddress = IPv4Address | IPv6Address
LONGEST_URL = 2000
# Networks that is_global allows: multicast, relays, and addresses of clouds' metadata services.
NEVER_PUBLIC = tuple(
    ip_network(text)
    for text in (
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "224.0.0.0/4", "::/96",
        "::ffff:0:0:0/96", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10", "ff00::/8",
    )
)  # fmt: skip
# Not even in a network of one's own: credentials of the machine are served there.
METADATA = tuple(
    ip_network(text)
    for text in (
        "169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32",
        "fe80::/10", "fd00:ec2::/32", "fd20:ce::254/128", "fd00:c1::a9fe:a9fe/128",
        "fd00:42::42/128", "fd00:a9fe:a9fe::1/128", "fd00:100::100:200/128",
    )
)  # fmt: skip
# The last 32 bits are an IPv4 address: compatible, translated (SIIT), NAT64.
ENDS_IN_IPV4 = tuple(
    ip_network(text) for text in ("::/96", "::ffff:0:0:0/96", "64:ff9b::/96", "64:ff9b:1::/48")
)
# Of a network's own choice: where an IPv4 address begins is its choice too (RFC 6052, section 2.2).
LOCAL_NAT64 = ip_network("64:ff9b:1::/48")
LOCAL_NAT64_LENGTHS = (48, 56, 64)
ISATAP = (0x00005EFE, 0x02005EFE)


class NoAllowedAddressError(Exception):
    """A host without an address that webhooks may connect to."""


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
    literal = _literal(host)
    if literal is not None and not is_allowed(literal, private_allowed=private_allowed):
        raise ContentError(f"url: {host} is not a public address.")


def _literal(host: str) -> IpAddress | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_allowed(address: IpAddress, *, private_allowed: bool) -> bool:
    """Whether a webhook may be posted to an address."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    places = [address] if isinstance(address, IPv4Address) else _places(address)
    if any(_lies_in(place, METADATA) for place in places):
        return False
    if private_allowed:
        return not address.is_multicast and not address.is_unspecified
    return all(place.is_global and not _lies_in(place, NEVER_PUBLIC) for place in places)


def _lies_in(address: IpAddress, networks: tuple[object, ...]) -> bool:
    return any(address in network for network in networks)  # type: ignore[operator]


def _places(address: IPv6Address) -> list[IpAddress]:
    value = int(address)
    inside: list[IPv4Address] = []
    if address.sixtofour is not None:
        inside.append(address.sixtofour)
    if address.teredo is not None:
        inside.extend(address.teredo)
    if _lies_in(address, ENDS_IN_IPV4) or (value >> 32) & 0xFFFFFFFF in ISATAP:
        inside.append(_ipv4(value))
    if address in LOCAL_NAT64:
        # Bits 64 to 71 are zero and belong to no address.
        joined = value >> 64 << 56 | value & (1 << 56) - 1
        inside.extend(_ipv4(joined >> 88 - length) for length in LOCAL_NAT64_LENGTHS)
    return [IPv6Address(value), *inside]  # Without the name of an interface.


def _ipv4(value: int) -> IPv4Address:
    return IPv4Address(value & 0xFFFFFFFF)


def resolve(host: str, port: int, *, private_allowed: bool) -> str:
    """Resolve a host to an address that webhooks may connect to.

    Raises NoAllowedAddressError if it has none, or any that is not allowed, as in DNS rebinding.
    The error does not tell the cases apart, to hide the names of an internal network.
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

    status: int | None
    milliseconds: float
    text: str = ""
    error: str | None = None
    retry_after_seconds: float | None = None

    @property
    def is_success(self) -> bool:
        """Whether the receiver accepted it: 200 to 299, and nothing else."""
        return self.status is not None and 200 <= self.status < 300


def milliseconds_since(began: float) -> float:
    """Milliseconds since a moment of the monotonic clock, with one decimal."""
    return round((time.monotonic() - began) * 1000, 1)


class _CheckedConnection(HTTPConnection):
    """Connection to the checked address. The name stays in Host and in the TLS handshake."""

    def __init__(self, url: str, *, private_allowed: bool, limit_seconds: float) -> None:
        parts = urlsplit(url)
        self._is_secure = parts.scheme == "https"
        self.default_port = 443 if self._is_secure else 80
        port = parts.port or self.default_port  # Else the end of an IPv6 address is read as one.
        super().__init__(parts.hostname or "", port, timeout=limit_seconds)
        self._private_allowed = private_allowed

    def connect(self) -> None:
        address = resolve(self.host, self.port, private_allowed=self._private_allowed)
        self.sock = socket.create_connection((address, self.port), self.timeout)
        if self._is_secure:
            self.sock = _trust().wrap_socket(
                self.sock, server_hostname=self.host, do_handshake_on_connect=False
            )
            self.sock.do_handshake()

    def abort(self) -> None:
        """End a read or a write that another thread waits in."""
        with suppress(OSError, AttributeError):  # It may be closed, or not open yet.
            socket.socket.shutdown(self.sock, socket.SHUT_RDWR)


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
    began = time.monotonic()
    parts = urlsplit(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    connection = _CheckedConnection(
        url, private_allowed=private_allowed, limit_seconds=limit_seconds
    )
    # Bytes that drip in one by one keep no limit of a single read.
    limit = threading.Timer(limit_seconds, connection.abort)
    limit.start()
    try:
        connection.request("POST", target, body, dict(headers))
        response = connection.getresponse()
        text, wanted = _start_of(response), response.headers.get("Retry-After", "")
        seconds = float(wanted) if wanted.isdecimal() and len(wanted) < 7 else None
        took = milliseconds_since(began)
        return Answer(response.status, took, text=text, retry_after_seconds=seconds)
    except NoAllowedAddressError as error:
        return Answer(None, milliseconds_since(began), error=str(error))
    except (HTTPException, OSError, ValueError) as error:
        why = f"The connection failed: {error}"
        if time.monotonic() - began >= limit_seconds:
            why = f"No response within {limit_seconds:g} s."
        return Answer(None, milliseconds_since(began), error=why[:ANSWER_CHARACTERS])
    finally:
        limit.cancel()
        connection.close()


def _start_of(response: HTTPResponse) -> str:
    """Read the start of a response. One that breaks off keeps its status."""
    content = b""
    with suppress(HTTPException, OSError, ValueError):
        while len(content) < ANSWER_BYTES and (piece := response.read1(ANSWER_BYTES)):
            content += piece
    text = content[:ANSWER_BYTES].decode(errors="replace").replace("\0", "\ufffd")
    return text[:ANSWER_CHARACTERS]


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
    """Send one mail over SMTP. Returns the outcome, never raises for a failure to send."""
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
