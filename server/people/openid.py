"""Sign-in with an OpenID provider, by the authorization code flow of Authlib's client."""

import logging
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response

from server.base.errors import NotSignedInError, UnavailableError
from server.base.settings import Settings

if TYPE_CHECKING:
    from authlib.integrations.starlette_client import StarletteOAuth2App

log = logging.getLogger(__name__)
GITHUB = "https://github.com"
GITHUB_USER = "https://api.github.com/user"
# Asymmetric alone: a key of the provider is public, so it proves nothing as a shared secret.
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)] + [
    "EdDSA"
]
LEEWAY_SECONDS = 60
ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Errors of reading an answer of any other form.
WRONG = (ValueError, TypeError, LookupError, RecursionError)
CLIENT: dict[str, Any] = {
    "code_challenge_method": "S256",
    "token_endpoint_auth_method": "client_secret_post",
    "timeout": 10.0,
}
UNREACHABLE = "The sign-in provider does not answer as expected. Try again, or use a token."


async def redirect_to_provider(request: Request, settings: Settings, callback: str) -> Response:
    """Redirect to where somebody signs in. State, nonce and verifier are in the session."""
    client = await _client(settings)
    redirect: Response = await client.authorize_redirect(request, callback)
    return redirect


async def claims_of_answer(request: Request, settings: Settings) -> dict[str, Any]:
    """Verified claims about whoever the provider sends back, with `iss` and `sub`."""
    # At the first sign-in: loading these takes a third of a second.
    from authlib.common.errors import AuthlibBaseError
    from httpx2 import HTTPError
    from joserfc.errors import JoseError

    client = await _client(settings)
    rules = {
        "iss": {"essential": True, "value": settings.oidc_issuer},
        "aud": {"essential": True, "value": settings.oidc_client_id},
    }
    try:
        token = await client.authorize_access_token(
            request, claims_options=rules, leeway=LEEWAY_SECONDS
        )
        if settings.oidc_issuer == GITHUB:
            user = (await client.get(GITHUB_USER, token=token)).raise_for_status().json()
            return {"iss": GITHUB, "sub": str(user["id"]), "preferred_username": user.get("login")}
        return dict(token["userinfo"])
    except HTTPError as error:
        raise UnavailableError(UNREACHABLE, cause=error) from error
    except (AuthlibBaseError, JoseError, *WRONG) as error:
        log.warning("a sign-in with the provider was refused: %s", str(error)[:200])
        raise NotSignedInError("The provider's answer is not valid. Begin again.") from error


async def _client(settings: Settings) -> "StarletteOAuth2App":
    """A client with the provider's addresses as they are now.

    Raises UnavailableError, also where the metadata names another issuer. Keys are read anew for
    each sign-in too, so that one which the provider withdraws proves nothing.
    """
    from authlib.integrations.starlette_client import OAuth
    from httpx2 import HTTPError

    issuer, secret = settings.oidc_issuer or "", settings.oidc_client_secret
    where = {"server_metadata_url": f"{issuer.rstrip('/')}/.well-known/openid-configuration"}
    if issuer == GITHUB:
        where = {
            "authorize_url": f"{GITHUB}/login/oauth/authorize",
            "access_token_url": f"{GITHUB}/login/oauth/access_token",
        }
    client: StarletteOAuth2App = OAuth().register(
        "provider",
        client_id=settings.oidc_client_id,
        client_secret=secret.get_secret_value() if secret is not None else "",
        client_kwargs=CLIENT | {"scope": settings.oidc_scopes},
        **where,
    )
    try:
        metadata = await client.load_server_metadata()
    except (HTTPError, *WRONG) as error:
        raise UnavailableError(UNREACHABLE, cause=error) from error
    known = metadata.get("issuer") == issuer and all(metadata.get(name) for name in ADDRESSES)
    if issuer != GITHUB and not known:
        raise UnavailableError(UNREACHABLE, cause=f"issuer {metadata.get('issuer')!r}")
    metadata["id_token_signing_alg_values_supported"] = ALGORITHMS
    return client
