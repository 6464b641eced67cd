"""Certificates: a trusted one of the right name is taken, any other gets nothing that is sent."""

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
)

from server.base.settings import parse_smtp_url
from server.notices import posting
from server.notices.mailing import send_mail

HERE, ELSEWHERE = "localhost", "elsewhere.example"
MAY_SIGN = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


@dataclass(frozen=True)
class Authority:
    """An authority of one's own: what it signs is believed by whoever has its certificate."""

    folder: Path
    key: ec.EllipticCurvePrivateKey
    certificate: x509.Certificate

    @property
    def file(self) -> Path:
        """Its certificate, as SSL_CERT_FILE names one."""
        return self.folder / "authority.pem"

    def serve_as(self, name: str) -> ssl.SSLContext:
        """What a server of a name shows."""
        key = ec.generate_private_key(ec.SECP256R1())
        names = x509.SubjectAlternativeName([x509.DNSName(name)])
        signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key())
        leaf = (
            _build(name, key, self.certificate.subject)
            .add_extension(names, critical=False)
            .add_extension(signer, critical=False)  # Asked for from Python 3.13 on.
        )
        both = self.folder / f"{name}.pem"
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
        both.write_bytes(private + leaf.sign(self.key, SHA256()).public_bytes(Encoding.PEM))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(both)
        return context


def _build(
    name: str, key: ec.EllipticCurvePrivateKey, issuer: x509.Name
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(_named(name))
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
    )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """One whose certificate nobody has unless it is handed to them."""
    key = ec.generate_private_key(ec.SECP256R1())
    own = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    builder = (
        _build("an authority", key, _named("an authority"))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(MAY_SIGN, critical=True)
        .add_extension(own, critical=False)
    )
    made = Authority(tmp_path, key, builder.sign(key, SHA256()))
    made.file.write_bytes(made.certificate.public_bytes(Encoding.PEM))
    return made


@pytest.fixture
def trusted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], None]]:
    """Has this process believe an authority, and the rest of the tests not."""

    def trust(file: Path) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(file))
        posting._trust.cache_clear()

    posting._trust.cache_clear()
    yield trust
    posting._trust.cache_clear()


def _whole_request(secured: ssl.SSLSocket) -> bytes:
    """A request with its body: closed before all is read, a connection may lose the answer too."""
    found = b""
    while more := secured.recv(65536):
        found += more
        head, _, body = found.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head, re.IGNORECASE)
        if length is not None and len(body) >= int(length[1]):
            break
    return found


@dataclass
class Server:
    """Takes connections one after the other; `read` is what came over encrypted ones."""

    context: ssl.SSLContext
    is_mail: bool
    starts_plain: bool = False
    read: list[bytes] = field(default_factory=list)
    listener: socket.socket = field(default_factory=lambda: socket.create_server(("127.0.0.1", 0)))

    @property
    def port(self) -> int:
        """Where it listens."""
        return int(self.listener.getsockname()[1])

    def serve(self) -> None:
        """Until the listener is closed; a handshake that fails ends its connection."""
        while True:
            try:
                plain, _ = self.listener.accept()
            except OSError:
                return
            with suppress(OSError), plain:  # ssl.SSLError is one.
                plain.settimeout(10)
                self._talk(plain)

    def _talk(self, plain: socket.socket) -> None:
        if self.starts_plain:
            plain.sendall(b"220 here\r\n")
            while not plain.recv(1024).upper().startswith(b"STARTTLS"):
                plain.sendall(b"250-here\r\n250 STARTTLS\r\n")
            plain.sendall(b"220 go on\r\n")
        with self.context.wrap_socket(plain, server_side=True) as secured:
            if self.is_mail:
                self._take_mail(secured)
            else:
                self.read.append(_whole_request(secured))
                secured.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n")

    def _take_mail(self, secured: ssl.SSLSocket) -> None:
        if not self.starts_plain:
            secured.sendall(b"220 here\r\n")
        while line := secured.recv(1024):
            self.read.append(line)
            if line.upper().startswith(b"DATA"):
                secured.sendall(b"354 go on\r\n")
                content = b""
                while not content.endswith(b"\r\n.\r\n"):
                    content += secured.recv(65536)
                self.read.append(content)
            if line.upper().startswith(b"QUIT"):
                secured.sendall(b"221 bye\r\n")
                return
            secured.sendall(b"250 fine\r\n")


@pytest.fixture
def serve() -> Iterator[Callable[..., Server]]:
    """Starts servers, and stops them."""
    started: list[tuple[Server, threading.Thread]] = []

    def start(context: ssl.SSLContext, *, is_mail: bool, starts_plain: bool = False) -> Server:
        server = Server(context, is_mail, starts_plain)
        thread = threading.Thread(target=server.serve, daemon=True)
        thread.start()
        started.append((server, thread))
        return server

    yield start
    for server, thread in started:
        server.listener.shutdown(socket.SHUT_RDWR)
        server.listener.close()
        thread.join(timeout=10)


def deliver(server: Server, scheme: str) -> tuple[int | None, str]:
    """Post or mail something to a server at localhost: the status, and what went wrong."""
    if scheme == "https":
        address = f"https://{HERE}:{server.port}/"
        answer = posting.post(address, {"Content-Length": "2"}, b"{}", private_allowed=True)
    else:
        mail = EmailMessage()
        mail["From"], mail["To"] = "a@finishline.example", "ada@example.org"
        mail.set_content("a secret of yours")
        address = f"{scheme}://{HERE}:{server.port}"
        answer = send_mail(parse_smtp_url(address), mail)
    return answer.status, answer.error or ""


@pytest.mark.parametrize("scheme", ["https", "smtps", "starttls"])
def test_only_a_trusted_certificate_of_the_right_name_gets_what_is_sent(
    scheme: str, authority: Authority, trusted: Callable[[Path], None], serve: Callable[..., Server]
) -> None:
    kind = {"is_mail": scheme != "https", "starts_plain": scheme == "starttls"}
    right = serve(authority.serve_as(HERE), **kind)
    of_another = serve(authority.serve_as(ELSEWHERE), **kind)

    status, error = deliver(right, scheme)
    assert (status, right.read) == (None, [])
    assert "CERTIFICATE_VERIFY_FAILED" in error

    trusted(authority.file)
    status, error = deliver(of_another, scheme)
    assert (status, of_another.read) == (None, [])
    assert "Hostname mismatch" in error

    status, error = deliver(right, scheme)
    assert (status, error) == (250 if kind["is_mail"] else 200, "")
    assert any((b"secret" if kind["is_mail"] else b"POST /") in piece for piece in right.read)
