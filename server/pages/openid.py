"""Sign-in with an OpenID provider: the link that begins it, and the page it comes back to."""

import hmac
from typing import Annotated

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from server.base.addresses import site_address
from server.base.errors import NotFoundError, NotSignedInError
from server.base.services import Services, ServicesDep
from server.pages.console_sign_in import own_page
from server.people.accounts import holder_of
from server.people.identities import sign_in_as
from server.people.openid import Flow, Provider, authorization_url, claims_of_code
from server.people.sessions import (
    HOST_PREFIX,
    Notice,
    begin_session,
    is_secure,
    leave_notice,
    set_mark,
)
from server.people.signed_in import SIGN_IN, signed_in_or_none
from web.render import render

router = APIRouter(include_in_schema=False)
BEGIN = SIGN_IN + "/with"
CALLBACK = SIGN_IN + "/callback"
COOKIE = "finishline_sign_in"
COOKIE_SECONDS = 600
TextDep = Annotated[str, Query(max_length=4000)]


@router.get(BEGIN)
def begin(
    request: Request,
    services: ServicesDep,
    following: Annotated[str, Query(alias="next", max_length=500)] = "/account",
    connect: bool = False,
) -> Response:
    """Go to the provider. A link leads here: a form that is redirected is blocked by the CSP."""
    _require_provider(services)
    flow = Flow(own_page(following), links=connect)
    provider = services.of(Provider)
    address = authorization_url(provider, services.settings, flow, _callback(request, services))
    response = RedirectResponse(address, status_code=303)
    secure = is_secure(request, services.settings)
    response.set_cookie(
        _cookie(request, services),
        flow.cookie(),
        max_age=COOKIE_SECONDS,
        path="/",
        secure=secure,
        httponly=True,
        samesite="strict",
    )
    return response


@router.get(CALLBACK)
def come_back(
    request: Request,
    services: ServicesDep,
    code: TextDep = "",
    state: TextDep = "",
    here: bool = False,
) -> Response:
    """Sign in with the provider's code.

    A browser sends no strict cookie with a request that another site began: the first answer is a
    page of ours that asks again.
    """
    _require_provider(services)
    if not here:
        again = f"{CALLBACK}?{request.url.query}&here=true"
        page = render("openid.html", address=again)
        return HTMLResponse(
            page, headers={"Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}
        )
    flow = Flow.read(request.cookies.get(_cookie(request, services)))
    if flow is None or not hmac.compare_digest(flow.state.encode(), state.encode()):
        raise NotSignedInError("This sign-in was not begun in this browser, or too long ago.")
    if not code:
        raise NotSignedInError("The provider did not let you in. Begin again, or use a token.")
    response = _sign_in(request, services, flow, code)
    response.delete_cookie(
        _cookie(request, services),
        path="/",
        secure=is_secure(request, services.settings),
        httponly=True,
        samesite="strict",
    )
    return response


def _sign_in(request: Request, services: Services, flow: Flow, code: str) -> Response:
    settings = services.settings
    present = signed_in_or_none(request, services) if flow.links else None
    if flow.links and present is None:
        raise NotSignedInError("You are no longer signed in, so nothing was connected.")
    claims = claims_of_code(
        services.of(Provider), settings, flow, code, _callback(request, services)
    )
    with services.database.write() as session:
        token, is_new = sign_in_as(
            session,
            claims,
            connect_to=present.caller.user_id if present is not None else None,
            may_register=settings.self_registration,
        )
    holder = holder_of(token)
    words = f"You can sign in with {settings.oidc_name} from now on."
    response = RedirectResponse("/account" if is_new else flow.following, status_code=303)
    if present is None:
        begin_session(request, holder)
        set_mark(response, request, settings, holder)
        words = f"Welcome, {holder.name}. Make a token below to submit from a terminal."
    if is_new or present is not None:
        leave_notice(request, Notice(words))
    return response


def _require_provider(services: Services) -> None:
    if services.settings.oidc_issuer is None:
        raise NotFoundError("This server has no OpenID provider; sign in with a token.")


def _callback(request: Request, services: Services) -> str:
    return site_address(request, services.settings) + CALLBACK


def _cookie(request: Request, services: Services) -> str:
    return f"{HOST_PREFIX}{COOKIE}" if is_secure(request, services.settings) else COOKIE
