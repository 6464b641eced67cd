"""Sign-in with an OpenID provider: the flow of Authlib's client, and users by their identity."""

import logging
import re
import secrets
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from fastapi import Request, Response
from pydantic import TypeAdapter, ValidationError
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.errors import (
    ConflictError,
    ContentError,
    NotAllowedError,
    NotSignedInError,
    UnavailableError,
)
from server.base.models import Token, User
from server.base.settings import Settings
from server.people.accounts import add_token, is_live, require_new_name, require_valid
from server.people.audit import Subject, record
from server.people.callers import SOURCE, caller_of
from server.people.invitations import TOKEN_LIFETIME
from server.people.tokens import record_new_token
from server.people.users import Email, UserName

if TYPE_CHECKING:
    from authlib.integrations.starlette_client import StarletteOAuth2App

log = logging.getLogger(__name__)
GITHUB = "https://github.com"
GITHUB_USER = "https://api.github.com/user"
# Only asymmetric ones: a provider's public key as a shared secret would prove nothing.
ALGORITHMS = [f"{kind}{bits}" for kind in ("RS", "PS", "ES") for bits in (256, 384, 512)]
ALGORITHMS.append("EdDSA")
LEEWAY_SECONDS = 60
ADDRESSES = ("authorization_endpoint", "token_endpoint", "jwks_uri")
# Errors of reading an answer of another form.
WRONG = (ValueError, TypeError, LookupError, RecursionError)
CLIENT: dict[str, Any] = {
    "code_challenge_method": "S256",
    "token_endpoint_auth_method": "client_secret_post",
    "timeout": 10.0,
}
UNREACHABLE = "The sign-in provider does not answer as expected. Try again, or use a token."


async def redirect_to_provider(request: Request, settings: Settings, callback: str) -> Response:
    """Redirect to the provider's sign-in. State, nonce and verifier are in the session."""
    client = await _client(settings)
    redirect: Response = await client.authorize_redirect(request, callback)
    return redirect


async def claims_of_answer(request: Request, settings: Settings) -> dict[str, Any]:
    """Read the verified claims about a person the provider sends back, with `iss` and `sub`."""
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
    """Make a client with the provider's current addresses.

    Keys are read anew for each sign-in too, so that a withdrawn key proves nothing. Raises
    UnavailableError, also if the metadata names another issuer.
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


NOT_IN_A_NAME = re.compile(r"[^\w.@ -]+")
LONGEST_SUBJECT = 255
LABEL = "browser sign-in"
NAME, EMAIL = TypeAdapter[str](UserName), TypeAdapter[str](Email)
Claims = Mapping[str, Any]


def sign_in_as(
    session: Session, claims: Claims, *, connect_to: int | None, may_register: bool
) -> tuple[Token, bool]:
    """Return the token for a session of an identity, and whether its user is new.

    The user `connect_to` gets this identity in place of an earlier one. With `may_register` an
    unknown identity becomes a submitter.
    """
    issuer, subject = str(claims["iss"]), str(claims["sub"])
    if not 0 < len(subject) <= LONGEST_SUBJECT:
        raise NotAllowedError("This identity is longer than any that is taken here.")
    user = session.scalar(select(User).where(User.issuer == issuer, User.subject == subject))
    if user is not None and connect_to not in (None, user.id):
        raise ConflictError("This identity belongs to another user here.")
    action = None
    if user is None and connect_to is not None:
        action, user = "user.connect", session.get_one(User, connect_to)
    elif user is None:
        if not may_register:
            raise NotAllowedError(
                "Nobody here has this identity. Join by a link of an organiser, or sign in with a "
                "token and connect it on your account's page."
            )
        action, user = "user.register", _register(session, claims)
    user.issuer, user.subject = issuer, subject
    own = (Token.user_id == user.id, Token.label == LABEL, Token.role == user.role)
    kept = session.scalars(select(Token).where(*own, is_live())).first()
    expires_at = utc_now() + TOKEN_LIFETIME
    token = (
        kept or add_token(session, user, role=user.role, expires_at=expires_at, label=LABEL).token
    )
    require_valid(token)
    caller, is_new = caller_of(token, source=SOURCE), action == "user.register"
    if action is not None:
        after = {"issuer": issuer, "role": user.role}
        record(session, caller, action, Subject("user", user.name), after=after)
    if kept is None:
        record_new_token(session, caller, token, **({"new_user": True} if is_new else {}))
    return token, is_new


def _register(session: Session, claims: Claims) -> User:
    for name in _names(claims):
        try:
            require_new_name(session, NAME.validate_python(name))
        except (ValidationError, ConflictError, ContentError):
            continue
        break
    else:
        raise ConflictError("No name could be made for this identity. Ask an organiser for a link.")
    email = claims.get("email") if claims.get("email_verified") is True else None
    try:
        EMAIL.validate_python(email)
    except ValidationError:
        email = None
    user = User(name=name, role="submitter", email=email, created_at=utc_now())
    session.add(user)
    session.flush()
    return user


def _names(claims: Claims) -> Iterator[str]:
    for claim in ("preferred_username", "nickname", "name"):
        word = claims.get(claim)
        if isinstance(word, str) and (name := " ".join(NOT_IN_A_NAME.sub(" ", word).split())[:80]):
            yield name
            yield f"{name}-{secrets.randbelow(9000) + 1000}"
    yield f"user-{secrets.randbelow(900_000) + 100_000}"
