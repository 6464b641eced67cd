"""Whether a form comes from a page of ours: the browser's word for it, and the session's own."""

import hashlib
import hmac
from urllib.parse import urlsplit

from fastapi import Request

from server.errors import NotAllowedError
from server.sessions.cookies import is_secure
from server.settings import Settings

CSRF_FIELD = "csrf"


def require_same_origin(request: Request, settings: Settings) -> None:
    """Raise NotAllowedError unless the browser says that one of our pages sent this.

    Every browser of today sends Origin with a form; what has neither header is none of them.
    """
    site = request.headers.get("sec-fetch-site")
    origin = request.headers.get("origin")
    if site not in (None, "same-origin"):
        raise NotAllowedError("This form was sent by a page of another site; nothing was changed.")
    if origin is None and site is None:
        raise NotAllowedError(
            "The browser does not say which page sent this form (no Origin); nothing was changed."
        )
    if origin is not None and origin not in own_origins(request, settings):
        raise NotAllowedError(
            f"This form was sent by a page of {origin[:200]}, which is not this server; nothing "
            "was changed. Behind a proxy set FINISHLINE_PUBLIC_URL to the address browsers use."
        )


def own_origins(request: Request, settings: Settings) -> set[str]:
    """The origins of our pages: as the request was addressed, and the public address if named."""
    scheme = "https" if is_secure(request, settings) else request.url.scheme
    own = {f"{scheme}://{request.headers.get('host', '')}"}
    if not settings.public_url:
        return own
    public = urlsplit(settings.public_url)
    return own | {f"{public.scheme}://{public.netloc}"}


def csrf_token(secret: str) -> str:
    """What the forms of a session carry: only who knows the session's secret can make it."""
    return hmac.new(secret.encode(), b"csrf", hashlib.sha256).hexdigest()


def require_csrf(secret: str, given: str) -> None:
    """Raise NotAllowedError unless a form carries its own session's token."""
    if not hmac.compare_digest(csrf_token(secret).encode(), given.encode()):
        raise NotAllowedError(
            "This form belongs to another session; nothing was changed. Open the page again."
        )
