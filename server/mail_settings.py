"""Where mail is handed in, from a URL."""

from dataclasses import dataclass
from ipaddress import ip_address
from urllib.parse import unquote, urlsplit

PORTS = {"smtp": 25, "starttls": 587, "smtps": 465}


@dataclass(frozen=True)
class MailServer:
    """A mail server. `scheme` is smtp (STARTTLS if it is offered), starttls or smtps (always)."""

    scheme: str
    host: str
    port: int
    user: str | None
    password: str | None

    @property
    def is_loopback(self) -> bool:
        """Whether a password that is not encrypted stays on this machine."""
        try:
            return ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"


def parse_smtp_url(url: str) -> MailServer:
    """The mail server of a URL. Raises ValueError saying what was expected."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS or not parts.hostname or parts.path not in ("", "/"):
        raise ValueError(
            "expected smtp://, starttls:// or smtps://, as in smtps://user:pw@host:465"
        )
    return MailServer(
        scheme=parts.scheme,
        host=parts.hostname,
        port=parts.port or PORTS[parts.scheme],
        user=unquote(parts.username) if parts.username else None,
        password=unquote(parts.password) if parts.password else None,
    )
