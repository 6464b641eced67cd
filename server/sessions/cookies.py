"""The console's cookie: for this host alone, out of reach of scripts, sent by our own pages.

Beside it goes a mark with the name of who is signed in, which opens nothing. Public pages are kept
ready, the same bytes for everybody, so a script of theirs reads the name from there.
"""

from urllib.parse import quote

from fastapi import Request, Response

from server.settings import Settings

NAME = "finishline_console"
# A browser takes a cookie of this prefix only if it is Secure, of Path=/ and without a Domain, so
# a neighbour under the same domain can plant none.
HOST_PREFIX = "__Host-"
MARK = "finishline_signed_in"


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


def set_cookie(
    response: Response, request: Request, settings: Settings, secret: str, *, user_name: str
) -> None:
    """Give a browser its session until it is closed; the server ends it sooner or later."""
    response.set_cookie(
        cookie_name(request, settings),
        secret,
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )
    secure = is_secure(request, settings)
    response.set_cookie(MARK, quote(user_name, safe=""), path="/", secure=secure, samesite="strict")


def clear_cookie(response: Response, request: Request, settings: Settings) -> None:
    """Have a browser forget its session."""
    response.delete_cookie(
        cookie_name(request, settings),
        path="/",
        secure=is_secure(request, settings),
        httponly=True,
        samesite="strict",
    )
    clear_mark(response, request, settings)


def clear_mark(response: Response, request: Request, settings: Settings) -> None:
    """Have a browser forget who was signed in; also where a session has ended by itself."""
    if MARK in request.cookies:
        secure = is_secure(request, settings)
        response.delete_cookie(MARK, path="/", secure=secure, samesite="strict")
