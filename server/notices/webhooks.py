"""Webhooks: signatures, allowed addresses, and outcomes of a try."""

import base64
import hashlib
import hmac
import logging
import secrets
import socket
import time
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from sqlalchemy import insert, select, update
from sqlalchemy.orm import Session

from server.base.errors import ContentError
from server.base.models import Delivery, MailSubscription, NoticeEvent, Webhook
from server.notices.announce import SWITCHED_OFF, Subject, new_event
from server.notices.fan_out import waiting_row
from server.notices.subscribers import is_confirmed

PREFIX = "whsec_"
SECRET_BYTES = 32


def new_secret() -> str:
    """Generate a random secret in the form that its receiver is shown."""
    return PREFIX + base64.b64encode(secrets.token_bytes(SECRET_BYTES)).decode()


def signature_headers(
    keys: Iterable[str], message_id: str, *, seconds: int, body: bytes
) -> dict[str, str]:
    """Headers of a message: its id, the second of this try, a signature for each key."""
    signed = [_sign(key, message_id, seconds=seconds, body=body) for key in keys]
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(seconds),
        "webhook-signature": " ".join(signed),
    }


def _sign(key: str, message_id: str, *, seconds: int, body: bytes) -> str:
    raw = base64.b64decode(key.removeprefix(PREFIX))
    content = f"{message_id}.{seconds}.".encode() + body
    return "v1," + base64.b64encode(hmac.digest(raw, content, hashlib.sha256)).decode()


Address = IPv4Address | IPv6Address
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


def _literal(host: str) -> Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


def is_allowed(address: Address, *, private_allowed: bool) -> bool:
    """Whether a webhook may be posted to an address."""
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    places = [address] if isinstance(address, IPv4Address) else _places(address)
    if any(_lies_in(place, METADATA) for place in places):
        return False
    if private_allowed:
        return not address.is_multicast and not address.is_unspecified
    return all(place.is_global and not _lies_in(place, NEVER_PUBLIC) for place in places)


def _lies_in(address: Address, networks: tuple[object, ...]) -> bool:
    return any(address in network for network in networks)  # type: ignore[operator]


def _places(address: IPv6Address) -> list[Address]:
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


ANSWER_CHARACTERS = 500


@dataclass(frozen=True)
class Answer:
    """Outcome of one delivery attempt: a status and the start of the response, or an error."""

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


log = logging.getLogger(__name__)


def switch_off(session: Session, hook: Webhook, why: str, *, now: datetime) -> None:
    """Disable a webhook; waiting deliveries are given up, and can be resent by hand later."""
    hook.disabled_at, hook.disabled_because = now, why
    session.flush()
    session.execute(
        update(Delivery)
        .where(Delivery.webhook_id == hook.id, Delivery.state == "waiting")
        .values(state="failed", ended_at=now)
    )
    log.warning("webhook %s is switched off: %s", hook.id, why)
    _tell_owner(session, hook, why, now=now)


def _tell_owner(session: Session, hook: Webhook, why: str, *, now: datetime) -> None:
    own = MailSubscription.user_id == hook.user_id
    addresses = session.scalars(select(MailSubscription.id).where(own, is_confirmed())).all()
    if not addresses:
        return
    content = {
        "webhook": {"id": hook.id, "url": hook.url, "why": why},
        "links": {"api": f"/api/v1/webhooks/{hook.id}", "page": f"/console/notices/{hook.id}"},
    }
    row = new_event(SWITCHED_OFF, Subject(hook.user_id, None, content)) | {"spread_at": now}
    session.execute(insert(NoticeEvent), [row])
    deliveries = [
        waiting_row(row["id"], now) | {"webhook_id": None, "mail_id": address}
        for address in addresses
    ]
    session.execute(insert(Delivery), deliveries)
