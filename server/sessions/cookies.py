"""The console's cookie: for this host alone, out of reach of scripts, sent by our own pages."""

from fastapi import Request, Response

from server.settings import Settings

NAME = "finishline_console"
# A browser takes a cookie of this prefix only if it is Secure, of Path=/ and without a Domain, so
# a neighbour under the same domain can plant none.
HOST_PREFIX = "__Host-"


def is_secure(request: Request, settings: Settings) -> bool:
    """Whether the cookie is for https alone: as the settings say, else as the request came."""
    if settings.secure_cookies is not None:
        return settings.secure_cookies
    return request.url.scheme == "https"


def cookie_name(request: Request, settings: Settings) -> str:
    """The name the cookie has for this request."""
    return f"{HOST_PREFIX}{NAME}" if is_secure(request, settings) else NAME


def read_cookie(request: Request, settings: Settings) -> str | None:
    """The session's secret that came with a request."""
    return request.cookies.get(cookie_name(request, settings))


def set_cookie(response: Response, request: Request, settings: Settings, secret: str) -> None:
    """Give a browser its session until it is closed; the server ends it sooner or later."""
    response.set_cookie(
        cookie_name(request, settings),
        secret,
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )


def clear_cookie(response: Response, request: Request, settings: Settings) -> None:
    """Have a browser forget its session."""
    response.delete_cookie(
        cookie_name(request, settings),
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )
