"""Addresses and certificates of webhooks, and the signatures as docs/notices.md has them."""

import base64
import inspect
import re
import socket
import ssl
import threading
import time
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
from aiosmtpd.controller import Controller
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from server.base.errors import ContentError
from server.base.settings import parse_smtp_url
from server.notices import messages as addresses
from server.notices.events import ABOUT, KINDS
from server.notices.messages import (
    NoAllowedAddressError,
    check_url,
    new_secret,
    post,
    resolve,
    send_mail,
    signature_headers,
)
from tests.support.processes import free_port

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
    "2606:4700::5efe:a00:1", "2606:4700::200:5efe:7f00:1", "2606:4700::5efe:101:101",
    "2002:101:101::1",
]  # fmt: skip

PUBLIC = ["93.184.215.14", "1.1.1.1", "2606:4700::1111", "64:ff9b::101:101"]
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


def answers(*found):
    return lambda *_args, **_more: [
        (socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, 443)) for address in found
    ]


@pytest.mark.parametrize("address", NOT_PUBLIC)
def test_no_name_leads_to_an_address_that_is_not_public(address, monkeypatch):
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


def test_public_addresses_are_allowed_and_metadata_never(monkeypatch):
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
def test_what_is_no_address_of_a_webhook_is_refused(url):
    with pytest.raises(ContentError, match="url:"):
        check_url(url, private_allowed=False)


def test_ordinary_addresses_are_taken():
    for url in ("https://hooks.example/a?b=c", "https://hooks.example:8443", "https://1.1.1.1/"):
        check_url(url, private_allowed=False)
    check_url("http://10.0.0.1:8080/x", private_allowed=True)


def test_numbers_that_mean_loopback_are_found_out():
    # The system's own resolver reads these as 127.0.0.1.
    for host in ("127.1", "2130706433", "0x7f000001", "localhost"):
        answer = post(f"https://{host}/", {}, b"", private_allowed=False)
        assert answer.error == f"{host} has no public address."


def test_the_connection_goes_to_what_was_checked_and_is_asked_once(receiver, monkeypatch):
    asked = []
    real = socket.getaddrinfo

    def rebinding(host, port, *args, **more):
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
def dripping():
    listener = socket.create_server(("127.0.0.1", 0))
    stop = threading.Event()

    def serve():
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


def test_bytes_that_drip_in_end_at_the_limit(dripping):
    began = time.monotonic()
    answer = post(f"http://127.0.0.1:{dripping}/", {}, b"", private_allowed=True, limit_seconds=0.4)

    assert time.monotonic() - began < 2.0
    assert answer.status is None
    assert answer.error is not None


def test_who_is_not_there_and_who_speaks_no_tls_are_failures(receiver):
    closed = socket.create_server(("127.0.0.1", 0))
    port = closed.getsockname()[1]
    closed.close()
    nobody = post(f"http://127.0.0.1:{port}/", {}, b"", private_allowed=True)
    assert "connection failed" in nobody.error
    plain = receiver.url.replace("http:", "https:")
    refused = post(plain, {}, b"", private_allowed=True)
    assert (refused.status, refused.is_success) == (None, False)
    assert receiver.posts == []


HERE, ELSEWHERE = "localhost", "elsewhere.example"


@dataclass(frozen=True)
class Authority:
    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    def serve_as(self, name):
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        leaf = (
            certificate_of(name, key, self.certificate.subject)
            .add_extension(names, critical=False)
            .add_extension(signer, critical=False)  # Asked for from Python 3.13 on.
        )
        both = self.folder / f"{name}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        both.write_bytes(private + leaf.sign(self.key, SHA256()).public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        return context


def certificate_of(name, key, issuer):
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(named(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def named(name):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


@pytest.fixture
def authority(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    uses = dict.fromkeys(inspect.signature(x509.KeyUsage).parameters, False)
    may_sign = x509.KeyUsage(**uses | {"key_cert_sign": True, "crl_sign": True})
    builder = (
        certificate_of("an authority", key, named("an authority"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(may_sign, critical=True)
        .add_extension(own, critical=False)
    )
    return Authority(tmp_path, key, builder.sign(key, SHA256()))


@pytest.fixture
def trust(monkeypatch, tmp_path):
    """Has this process believe an authority, and the rest of the tests not."""

    def trust(authority):
        file = tmp_path / "authority.pem"
        file.write_bytes(authority.certificate.public_bytes(Encoding.PEM))
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        addresses._trust.cache_clear()

    addresses._trust.cache_clear()
    yield trust
    addresses._trust.cache_clear()


class Mails:
    def __init__(self):
        self.read = []

    async def handle_DATA(self, _server, _session, envelope):
        self.read.append(envelope.content)
        return "250 fine"


@pytest.fixture
def serve(make_receiver):
    started = []

    def start(scheme, context):
        if scheme == "https":
            receiver = make_receiver(context)
            return int(receiver.url.split(":")[2].split("/")[0]), receiver.posts
        mails, port = Mails(), free_port()
        secured = {"smtps": {"ssl_context": context},
                   "starttls": {"tls_context": context, "require_starttls": True}}  # fmt: skip
        started.append(Controller(mails, hostname="127.0.0.1", port=port, **secured[scheme]))
        started[-1].start()
        return port, mails.read

    yield start
    for controller in started:
        controller.stop()


def deliver(port, scheme):
    address = f"{scheme}://{HERE}:{port}"
    if scheme == "https":
        answer = post(f"{address}/", {"Content-Length": "2"}, b"{}", private_allowed=True)
    else:
        mail = EmailMessage()
        mail["From"], mail["To"] = "a@finishline.example", "ada@example.org"
        mail.set_content("a secret of yours")
        answer = send_mail(parse_smtp_url(address), mail)
    return answer.status, answer.error or ""


@pytest.mark.parametrize(("scheme", "taken"), [("https", 200), ("smtps", 250), ("starttls", 250)])
def test_only_a_trusted_certificate_gets_what_is_sent(scheme, taken, authority, trust, serve):
    right, read = serve(scheme, authority.serve_as(HERE))
    of_another, misread = serve(scheme, authority.serve_as(ELSEWHERE))

    status, error = deliver(right, scheme)
    assert (status, read) == (None, [])
    assert "CERTIFICATE_VERIFY_FAILED" in error

    trust(authority)
    status, error = deliver(of_another, scheme)
    assert (status, misread) == (None, [])
    assert "Hostname mismatch" in error

    assert deliver(right, scheme) == (taken, "")
    assert len(read) == 1


PAGE = (Path(__file__).parents[3] / "docs" / "notices.md").read_text()

# The key, id, second and body of an example that was signed with `openssl dgst -sha256 -hmac`.
SECRET = "whsec_" + base64.b64encode(b"a key of thirty-two bytes it is!").decode()
BODY = b'{"type":"webhook.test"}'
SECONDS = 1_800_000_000
SIGNATURE = "v1,2hLWQ3+V0DlgH8ESTeLq1hpWwhDTtseuBxeu7gz1aa4="


@pytest.fixture
def is_ours(monkeypatch):
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    names = {}
    exec(code, names)  # noqa: S102  It is our own page.
    monkeypatch.setattr(names["time"], "time", lambda: SECONDS + 10.0)
    return names["is_ours"]


def test_the_function_of_the_page_tells_our_posts_from_others(is_ours):
    second = datetime.fromtimestamp(SECONDS, UTC)
    headers = signature_headers(SECRET, "msg_1", BODY, now=second)

    assert headers["webhook-signature"] == SIGNATURE
    assert is_ours(SECRET, headers, BODY)
    other = "whsec_" + base64.b64encode(b"another").decode()
    assert not is_ours(other, headers, BODY)
    assert not is_ours(SECRET, headers, BODY + b" ")
    assert not is_ours(SECRET, headers | {"webhook-id": "msg_2"}, BODY)
    late = signature_headers(SECRET, "msg_1", BODY, now=second - timedelta(seconds=400))
    assert not is_ours(SECRET, late, BODY)


def test_the_page_lists_every_event_and_no_other():
    events = PAGE.partition("## Events\n")[2].partition("\n## ")[0]

    assert re.findall(r"`([a-z]+\.[a-z]+)`", events) == list(KINDS) == list(ABOUT)


def test_a_secret_has_as_many_random_bytes_as_the_specification_asks_for():
    """Standard Webhooks 1.0.0: between 24 and 64 bytes, in base64 after the prefix."""
    first, second = (base64.b64decode(new_secret().removeprefix("whsec_")) for _ in range(2))

    assert first != second
    assert 24 <= len(first) <= 64
