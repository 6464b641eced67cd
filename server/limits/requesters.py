"""Who sends a request: a token that proved good, or else an address.

A token counts only once the application has found it good. Otherwise whoever makes up a token for
each request would have limits of their own for each.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from starlette.types import Scope

from server.accounts.roles import ORGANISERS
from server.sessions.cookies import HOST_PREFIX, NAME
from server.sessions.limits import network_of

MOST_KNOWN = 20_000
BEARER = b"bearer "
COOKIES = (f"{HOST_PREFIX}{NAME}=".encode(), f"{NAME}=".encode())


@dataclass(frozen=True, slots=True)
class Requester:
    """Where a request comes from, and the SHA-256 of the secret it carries, if any.

    `role` is None until the secret is known to be good.
    """

    address: str
    secret_sha256: str | None
    role: str | None

    @property
    def key(self) -> str:
        """Whose limits these are: the secret's if it is good, else those of the address."""
        if self.role is None or self.secret_sha256 is None:
            return f"address:{self.address}"
        return f"token:{self.secret_sha256[:32]}"

    @property
    def is_trusted(self) -> bool:
        """Whether this is an organiser, whose requests have room of their own."""
        return self.role in ORGANISERS

    @property
    def is_unproven(self) -> bool:
        """Whether it carries a secret that nobody has found good."""
        return self.secret_sha256 is not None and self.role is None


class KnownSecrets:
    """Hashes of the secrets that proved good in this process, with their roles; the latest stay.

    It runs in the event loop alone, so it needs no lock.
    """

    def __init__(self, most: int = MOST_KNOWN) -> None:
        self._roles: OrderedDict[str, str] = OrderedDict()
        self._most = most

    def requester(self, scope: Scope) -> Requester:
        """Who sent a request."""
        secret = _secret_of(scope)
        client = scope.get("client")
        address = network_of(client[0]) if client else "local"
        if secret is None:
            return Requester(address, None, None)
        digest = hashlib.sha256(secret).hexdigest()
        return Requester(address, digest, self._roles.get(digest))

    def note(self, digest: str, role: str) -> None:
        """A secret proved good."""
        self._roles[digest] = role
        self._roles.move_to_end(digest)
        if len(self._roles) > self._most:
            self._roles.popitem(last=False)

    def forget(self, digest: str) -> None:
        """A secret was refused."""
        self._roles.pop(digest, None)


def _secret_of(scope: Scope) -> bytes | None:
    """The bearer token of a request, else its console cookie."""
    cookie: bytes | None = None
    for name, value in scope["headers"]:
        if name == b"authorization" and value[:7].lower() == BEARER:
            secret: bytes = value[7:].strip()
            return secret
        if name == b"cookie":
            cookie = value
    return None if cookie is None else _session_of(cookie)


def _session_of(cookie: bytes) -> bytes | None:
    for part in cookie.split(b";"):
        for prefix in COOKIES:
            if part.strip().startswith(prefix):
                return part.strip().removeprefix(prefix)
    return None
