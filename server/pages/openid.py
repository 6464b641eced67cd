"""Sign-in with an OpenID provider: the link that begins it, and the page it comes back to."""

from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from server.base.database import utc_now
from server.base.errors import NotFoundError, NotSignedInError
from server.base.services import Services, ServicesDep, site_address
from server.pages.console_sign_in import own_page
from server.people.callers import (
    SIGN_IN,
    Notice,
    begin_session,
    leave_notice,
    set_mark,
    signed_in_or_none,
)
from server.people.openid import claims_of_answer, redirect_to_provider, sign_in_as
from web.render import render

router = APIRouter(include_in_schema=False)
BEGIN = SIGN_IN + "/with"
CALLBACK = SIGN_IN + "/callback"
BEGUN = "provider"
LONGEST_SECONDS = 600


@router.get(BEGIN)
async def begin(
    request: Request,
    services: ServicesDep,
    following: Annotated[str, Query(alias="next", max_length=500)] = "/account",
    connect: bool = False,
) -> Response:
    """Go to the provider. A link leads here: a form that is redirected is blocked by the CSP."""
    _require_provider(services)
    callback = site_address(request, services.settings) + CALLBACK
    response = await redirect_to_provider(request, services.settings, callback)
    begun = {"at": utc_now().timestamp(), "next": own_page(following), "connects": connect}
    request.session[BEGUN] = begun
    return response


@router.get(CALLBACK)
async def come_back(request: Request, services: ServicesDep, here: bool = False) -> Response:
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
    begun = request.session.get(BEGUN)
    if begun is None or utc_now().timestamp() - begun["at"] > LONGEST_SECONDS:
        raise NotSignedInError("This sign-in was not begun in this browser, or too long ago.")
    if not request.query_params.get("code"):
        raise NotSignedInError("The provider did not let you in. Begin again, or use a token.")
    claims = await claims_of_answer(request, services.settings)
    del request.session[BEGUN]
    return await run_in_threadpool(_sign_in, request, services, begun, claims)


def _sign_in(
    request: Request, services: Services, begun: dict[str, Any], claims: dict[str, Any]
) -> Response:
    settings = services.settings
    present = signed_in_or_none(request, services) if begun["connects"] else None
    if begun["connects"] and present is None:
        raise NotSignedInError("You are no longer signed in, so nothing was connected.")
    with services.database.write() as session:
        token, is_new = sign_in_as(
            session,
            claims,
            connect_to=present.caller.user_id if present is not None else None,
            may_register=settings.self_registration,
        )
    response = RedirectResponse("/account" if is_new else begun["next"], status_code=303)
    words = f"You can sign in with {settings.oidc_name} from now on."
    if present is None:
        begin_session(request, token)
        set_mark(response, request, settings, token)
        words = f"Welcome, {token.user.name}. Make a token below to submit from a terminal."
    if is_new or present is not None:
        leave_notice(request, Notice(words))
    return response


def _require_provider(services: Services) -> None:
    if services.settings.oidc_issuer is None:
        raise NotFoundError("This server has no OpenID provider; sign in with a token.")
