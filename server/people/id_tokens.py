"""Verification of an id_token with the keys of its issuer."""

import logging
from collections.abc import Callable
from typing import Any

from joserfc import jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from server.base.errors import NotSignedInError

log = logging.getLogger(__name__)
LEEWAY_SECONDS = 60
# Asymmetric alone: a key of the provider is public, so it proves nothing as a shared secret.
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)] + [
    "EdDSA"
]
# Returns the JWKS, read again if `fresh`.
ReadKeys = Callable[..., Any]


def verified_claims(
    id_token: str, read_keys: ReadKeys, *, issuer: str, client_id: str, nonce: str
) -> dict[str, Any]:
    """Claims of an id_token that its issuer made for this client and flow."""
    rules = jwt.JWTClaimsRegistry(
        leeway=LEEWAY_SECONDS,
        iss={"essential": True, "value": issuer},
        aud={"essential": True, "value": client_id},
        sub={"essential": True},
        exp={"essential": True},
        iat={"essential": True},
        nonce={"essential": True, "value": nonce},
    )
    try:
        claims = _decoded(id_token, read_keys).claims
        rules.validate(claims)
    except (JoseError, ValueError, RecursionError) as error:
        log.warning("an id_token was refused: %s", error)
        raise NotSignedInError("The provider's answer is not valid. Begin again.") from error
    several = isinstance(claims["aud"], list) and len(claims["aud"]) > 1
    if claims.get("azp", client_id) != client_id or (several and "azp" not in claims):
        raise NotSignedInError("The provider's answer is for another program. Begin again.")
    return dict(claims)


def _decoded(id_token: str, read_keys: ReadKeys) -> jwt.Token:
    """Decode an id_token; a key that is not known may be a fresh one of the provider."""
    try:
        return _decode(id_token, read_keys())
    except (JoseError, ValueError):
        return _decode(id_token, read_keys(fresh=True))


def _decode(id_token: str, jwks: Any) -> jwt.Token:
    try:
        return jwt.decode(id_token, KeySet.import_key_set(jwks), algorithms=ALGORITHMS)
    except (KeyError, TypeError) as error:
        raise ValueError("the provider's keys are no JWKS") from error
