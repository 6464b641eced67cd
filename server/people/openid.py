"""Authorization code flow with an OpenID provider: addresses, code exchange, id_token."""

import base64
import hashlib
import json
import logging
import secrets
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import partial
from threading import Lock
from typing import Any
from urllib.parse import urlencode

from pydantic import TypeAdapter

from server.base.errors import NotSignedInError, UnavailableError
from server.base.settings import Settings

log = logging.getLogger(__name__)
TIMEOUT_SECONDS = 10.0
KEPT_SECONDS = 3600.0
GITHUB = "https://github.com"
GITHUB_ADDRESSES = {
    "issuer": GITHUB,
    "authorization_endpoint": f"{GITHUB}/login/oauth/authorize",
    "token_endpoint": f"{GITHUB}/login/oauth/access_token",
    "userinfo_endpoint": "https://api.github.com/user",
}
UNREACHABLE = "The sign-in provider does not answer as expected. Try again, or use a token."


@dataclass(frozen=True)
class Flow:
    """One sign-in under way, kept in a cookie of the browser that began it."""

    following: str
    links: bool = False
    state: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    nonce: str = field(default_factory=lambda: secrets.token_urlsafe(24))
    verifier: str = field(default_factory=lambda: secrets.token_urlsafe(48))

    def cookie(self) -> str:
        """The value of its cookie."""
        return base64.urlsafe_b64encode(json.dumps(asdict(self)).encode()).decode()

    @classmethod
    def read(cls, cookie: str | None) -> "Flow | None":
        """The flow of a cookie; None for one that is none."""
        try:
            return TypeAdapter(cls).validate_json(base64.urlsafe_b64decode(cookie or ""))
        except ValueError:
            return None


class Provider:
    """Addresses and keys of the provider, read at their first use and once an hour."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._read: dict[str, tuple[float, Any]] = {}

    def addresses(self, issuer: str) -> Mapping[str, str]:
        """Its metadata. Raises UnavailableError, also where it names another issuer."""
        if issuer == GITHUB:
            return GITHUB_ADDRESSES
        found = self._get(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != issuer:
            raise UnavailableError(UNREACHABLE, cause=f"issuer {found.get('issuer')!r}")
        addresses: Mapping[str, str] = found
        return addresses

    def keys(self, addresses: Mapping[str, str], *, fresh: bool = False) -> Any:
        """Its public keys as a JWKS, read again if `fresh`."""
        return self._get(addresses["jwks_uri"], fresh=fresh)

    def _get(self, url: str, *, fresh: bool = False) -> Any:
        with self._lock:
            read_at, value = self._read.get(url, (0.0, None))
            if value is None or fresh or read_at < time.monotonic() - KEPT_SECONDS:
                value = _answer("GET", url)
                self._read[url] = time.monotonic(), value
            return value


def authorization_url(provider: Provider, settings: Settings, flow: Flow, redirect_uri: str) -> str:
    """Address at the provider where somebody signs in."""
    challenge = hashlib.sha256(flow.verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.oidc_client_id,
        "redirect_uri": redirect_uri,
        "scope": settings.oidc_scopes,
        "state": flow.state,
        "nonce": flow.nonce,
        "code_challenge": base64.urlsafe_b64encode(challenge).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    address = provider.addresses(settings.oidc_issuer or "")["authorization_endpoint"]
    return f"{address}{'&' if '?' in address else '?'}{urlencode(query)}"


def claims_of_code(
    provider: Provider, settings: Settings, flow: Flow, code: str, redirect_uri: str
) -> dict[str, Any]:
    """Verified claims about whoever signed in, with `iss` and `sub`."""
    issuer, client_id = settings.oidc_issuer or "", settings.oidc_client_id or ""
    secret = settings.oidc_client_secret
    addresses = provider.addresses(issuer)
    sent = {
        "grant_type": "authorization_code",
        "code": code,
        "redirect_uri": redirect_uri,
        "client_id": client_id,
        "client_secret": secret.get_secret_value() if secret is not None else "",
        "code_verifier": flow.verifier,
    }
    answer = _answer("POST", addresses["token_endpoint"], data=sent)
    if issuer == GITHUB:
        return _github_claims(addresses, answer)
    from server.people.id_tokens import verified_claims  # Loading it takes a tenth of a second.

    return verified_claims(
        str(answer.get("id_token") or ""),
        partial(provider.keys, addresses),
        issuer=issuer,
        client_id=client_id,
        nonce=flow.nonce,
    )


def _github_claims(addresses: Mapping[str, str], answer: Mapping[str, Any]) -> dict[str, Any]:
    """Claims of GitHub's user: it has no id_token, so they are read with the access token."""
    bearer = {"Authorization": f"Bearer {answer.get('access_token')}"}
    user = _answer("GET", addresses["userinfo_endpoint"], headers=bearer)
    if not isinstance(user.get("id"), int):
        raise NotSignedInError("GitHub names nobody for this sign-in. Begin again.")
    return {"iss": GITHUB, "sub": str(user["id"]), "preferred_username": user.get("login")}


def _answer(method: str, url: str, **options: Any) -> Any:
    import httpx2  # At the first sign-in: loading it takes a fifth of a second.

    headers = {"Accept": "application/json"} | options.pop("headers", {})
    try:
        response = httpx2.request(method, url, timeout=TIMEOUT_SECONDS, headers=headers, **options)
        value = response.json()
    except (httpx2.HTTPError, ValueError) as error:
        raise UnavailableError(UNREACHABLE, cause=error) from error
    if isinstance(value, dict) and "error" in value:
        log.warning("the sign-in provider refused: %s", str(value["error"])[:100])
        raise NotSignedInError("The provider refused this sign-in. Begin again.")
    if response.is_error or not isinstance(value, dict):
        raise UnavailableError(UNREACHABLE, cause=f"{url} {response.status_code}")
    return value
