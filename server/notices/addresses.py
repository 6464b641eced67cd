"""Which addresses a stranger's webhook may lead to: public ones, looked up once and connected to.

A name is resolved here and the connection goes to what was checked, so a name that answers
differently the second time leads nowhere else.
"""

import socket
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from urllib.parse import urlsplit

from server.errors import ContentError

Address = IPv4Address | IPv6Address
LONGEST_URL = 2000
# What is_global leaves in: multicast, relays, and addresses at which clouds serve their machines.
NEVER_PUBLIC = tuple(
    ip_network(text)
    for text in (
        "192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "224.0.0.0/4",
        "::/96", "64:ff9b:1::/48", "3fff::/20", "5f00::/16", "fec0::/10", "ff00::/8",
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
NAT64 = ip_network("64:ff9b::/96")
SIX_TO_FOUR = ip_network("2002::/16")


class NoAllowedAddressError(Exception):
    """A host has no address that may be connected to."""


def check_url(url: str, *, private_allowed: bool) -> None:
    """Raise ContentError unless a webhook may have this URL as far as it can be told by reading."""
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
    meant = _meant(address)
    if any(_lies_in(meant, METADATA)):
        return False
    if private_allowed:
        return not meant.is_multicast and not meant.is_unspecified
    return meant.is_global and not any(_lies_in(meant, NEVER_PUBLIC))


def _lies_in(address: Address, networks: tuple[object, ...]) -> list[bool]:
    return [address in network for network in networks]  # type: ignore[operator]


def _meant(address: Address) -> Address:
    """The IPv4 address inside an IPv6 one that leads to it, else the address itself."""
    if isinstance(address, IPv4Address):
        return address
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address in SIX_TO_FOUR:
        return IPv4Address((int(address) >> 80) & 0xFFFFFFFF)
    if address in NAT64:
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return IPv6Address(int(address))  # Without the name of an interface.


def resolve(host: str, port: int, *, private_allowed: bool) -> str:
    """An address of a host that may be connected to.

    Raises NoAllowedAddressError if it has none, or one that may not: then somebody plays with its
    name. The reason is not told apart: names of an internal network are nobody's to find out.
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
