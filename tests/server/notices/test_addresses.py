"""Where a stranger's webhook may lead: the table of what it may not, and the name that changes."""

import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from server.base.errors import ContentError
from server.notices import webhooks as addresses
from server.notices.posting import post
from server.notices.webhooks import NoAllowedAddressError, check_url, resolve

NOT_PUBLIC = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "10.1.2.3", "172.16.0.1", "172.31.255.255",  # noqa: S104
    "192.168.0.1", "169.254.169.254", "100.64.0.1", "100.127.255.254", "192.0.0.8", "192.0.2.1",
    "198.18.0.1", "198.51.100.7", "203.0.113.9", "224.0.0.1", "239.1.1.1", "240.0.0.1",
    "255.255.255.255", "168.63.129.16", "100.100.100.200", "192.88.99.1",
    "::", "::1", "::127.0.0.1", "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254",
    "fe80::1", "fec0::1", "fc00::1", "fd00:ec2::254", "ff02::1", "64:ff9b::a00:1",
    "64:ff9b::7f00:1", "64:ff9b:1::1", "2002:7f00:1::", "2002:a00:1::1", "2001:db8::1", "2001::1",
    "3fff::1", "100::1", "5f00::1",
    # An IPv4 address inside: translated (SIIT), of a network's own NAT64, Teredo, ISATAP.
    "::ffff:0:7f00:1", "::ffff:0:a00:1", "::ffff:0:a9fe:a9fe", "::ffff:0:101:101",
    "64:ff9b:1::a00:1", "64:ff9b:1:a00:1::", "2001:0:7f00:1::", "2001:0:101:101::f5ff:fffe",
    "2606:4700::5efe:a00:1", "2606:4700::200:5efe:7f00:1",
]  # fmt: skip
PUBLIC = ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101", "2002:101:101::1",
          "2606:4700::5efe:101:101"]  # fmt: skip
# Where clouds serve their machines: Alibaba, Azure, Oracle, Amazon, Google, Scaleway, Akamai.
NEVER = [
    "169.254.169.254", "100.100.100.200", "168.63.129.16", "192.0.0.192",
    "fe80::1", "fd00:ec2::254", "fd00:ec2::23", "fd20:ce::254", "fd00:c1::a9fe:a9fe",
    "fd00:42::42", "fd00:a9fe:a9fe::1", "fd00:100::100:200",
    "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe", "fe80::1%eth0",
    "::169.254.169.254", "::ffff:0:a9fe:a9fe", "64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::",
    "64:ff9b:1:a9:fe:a9fe::", "64:ff9b:1::a9:fea9:fe00:0", "2002:a9fe:a9fe::1",
    "2001:0:a9fe:a9fe::", "2001:0:101:101::5601:5601", "fd00:1::5efe:a9fe:a9fe",
    "224.0.0.1", "ff02::1", "0.0.0.0", "::",  # noqa: S104
]  # fmt: skip


def answers(*found: str) -> Any:
    """What the system's resolver answers, as getaddrinfo does."""
    return lambda *_args, **_more: [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in found
    ]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_no_name_leads_to_an_address_that_is_not_public(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(addresses.socket, "getaddrinfo", answers(address))
    with pytest.raises(NoAllowedAddressError):
        resolve("hooks.example", 443, private_allowed=False)
    # One public address among the others makes it no better.
    monkeypatch.setattr(addresses.socket, "getaddrinfo", answers("1.1.1.1", address))
    with pytest.raises(NoAllowedAddressError):
        resolve("hooks.example", 443, private_allowed=False)
    host = f"[{address}]" if ":" in address else address
    with pytest.raises(ContentError):
        check_url(f"https://{host}/", private_allowed=False)


def test_public_addresses_are_allowed_and_metadata_never(monkeypatch: pytest.MonkeyPatch) -> None:
    for address in PUBLIC:
        monkeypatch.setattr(addresses.socket, "getaddrinfo", answers(address))
        assert resolve("hooks.example", 443, private_allowed=False) == address
    for address in ("127.0.0.1", "10.0.0.1", "::1"):
        monkeypatch.setattr(addresses.socket, "getaddrinfo", answers(address))
        assert resolve("hooks.example", 443, private_allowed=True) == address
    for address in NEVER:
        monkeypatch.setattr(addresses.socket, "getaddrinfo", answers(address))
        with pytest.raises(NoAllowedAddressError):
            resolve("hooks.example", 443, private_allowed=True)


@pytest.mark.parametrize(
    "url",
    [
        "http://hooks.example/", "ftp://hooks.example/", "https://", "https:///x", "//a.example/",
        "https://user@hooks.example/", "https://u:p@hooks.example/", "https://hooks.example/#x",
        "https://hooks.example:99999/", "https://hooks.example:0/", "https://[::1", "https://a b/",
        "https://hooks.example/\r\nHost: b", "https://bücher.example/", "javascript:alert(1)",
        "https://hooks.example/" + "x" * 2000,
    ],
)  # fmt: skip
def test_what_is_no_address_of_a_webhook_is_refused(url: str) -> None:
    with pytest.raises(ContentError, match="url:"):
        check_url(url, private_allowed=False)


def test_ordinary_addresses_are_taken() -> None:
    for url in ("https://hooks.example/a?b=c", "https://hooks.example:8443", "https://1.1.1.1/"):
        check_url(url, private_allowed=False)
    check_url("http://10.0.0.1:8080/x", private_allowed=True)


def test_numbers_that_mean_loopback_are_found_out() -> None:
    # The system's own resolver reads these as 127.0.0.1.
    for host in ("127.1", "2130706433", "0x7f000001", "localhost"):
        answer = post(f"https://{host}/", {}, b"", private_allowed=False)
        assert answer.error == f"{host} has no public address."


def test_the_connection_goes_to_what_was_checked_and_is_asked_once(
    receiver: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    real = socket.getaddrinfo

    def rebinding(host: str, port: int, *args: Any, **more: Any) -> Any:
        """A name that leads to the receiver first, and to nowhere ever after."""
        if host != "rebinding.example":
            return real(host, port, *args, **more)
        asked.append(host)
        return real("127.0.0.1" if len(asked) == 1 else "192.0.2.1", port, *args, **more)

    monkeypatch.setattr(socket, "getaddrinfo", rebinding)
    url = receiver.url.replace("127.0.0.1", "rebinding.example")
    body = b'{"a":1}'
    answer = post(url, {"Content-Length": str(len(body))}, body, private_allowed=True)

    assert (answer.status, len(asked)) == (200, 1)
    assert receiver.posts[0].headers["host"] == url.split("/")[2]


@pytest.fixture
def dripping() -> Iterator[int]:
    """The port of a receiver that answers a byte at a time, for ever."""
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while not stop.wait(0.05):
                try:
                    connection.sendall(b"H")
                except OSError:
                    return

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    yield listener.getsockname()[1]
    stop.set()
    thread.join(timeout=5)
    listener.close()


def test_bytes_that_drip_in_end_at_the_limit(dripping: int) -> None:
    began = time.monotonic()
    answer = post(f"http://127.0.0.1:{dripping}/", {}, b"", private_allowed=True, limit_seconds=0.4)

    assert time.monotonic() - began < 2.0
    assert answer.status is None
    assert answer.error is not None


def test_who_is_not_there_and_who_speaks_no_tls_are_failures(receiver: Any) -> None:
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    nobody = post(f"http://127.0.0.1:{port}/", {}, b"", private_allowed=True)
    assert nobody.error is not None
    assert "connection failed" in nobody.error
    plain = receiver.url.replace("http:", "https:")
    refused = post(plain, {}, b"", private_allowed=True)
    assert (refused.status, refused.is_success) == (None, False)
    assert receiver.posts == []
