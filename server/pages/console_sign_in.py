"""Signing in to the console with an API token, and out again."""

import logging
import re
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from finishline.rules.text import count_text
from server.base.errors import NotSignedInError
from server.base.models import Token, User
from server.base.services import Services, ServicesDep
from server.base.settings import Settings
from server.people.accounts import find_token, note_use
from server.people.callers import (
    SIGN_IN,
    FailedSignIns,
    FieldsDep,
    FormDep,
    SignedInDep,
    begin_session,
    clear_mark,
    require_same_origin,
    set_mark,
    signed_in_or_none,
)
from web.render import render

log = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False)
HOME = "/console"
# A page of ours: no host, no backslash, no step up or second slash, so it leads nowhere else.
OWN_PAGE = re.compile(r"(?!/api/)(?:/(?![/.])[A-Za-z0-9_%.~@-]*)+(\?[A-Za-z0-9_=&%+.,:-]*)?")


def own_page(address: str | None) -> str:
    """Address to redirect to after the sign-in: the requested page, if it is one of ours."""
    return address if address is not None and OWN_PAGE.fullmatch(address) else HOME


@router.get(SIGN_IN, response_class=HTMLResponse)
def sign_in_page(
    request: Request,
    services: ServicesDep,
    following: Annotated[str | None, Query(alias="next")] = None,
    out: bool = False,
) -> Response:
    """The form that asks for a token."""
    settings = services.settings
    if signed_in_or_none(request, services) is not None:
        return RedirectResponse(own_page(following), status_code=303)
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A link on another site led here, and a browser sends no strict cookie along: a page of
        # ours asks again.
        again = urlencode({"next": own_page(following)})
        return HTMLResponse(render("openid.html", address=f"{SIGN_IN}?{again}"))
    response = _page(settings, following, signed_out=out)
    clear_mark(response, request, settings)
    return response


@router.post(SIGN_IN, response_class=HTMLResponse)
def sign_in(request: Request, services: ServicesDep, sent: FieldsDep) -> Response:
    """Start a session. No session's token is asked for: the browser's Origin says who sent this."""
    require_same_origin(request, services.settings)
    address = request.client.host if request.client is not None else "unknown"
    try:
        token = _find_token(services, sent.get("token", "").strip())
    except NotSignedInError as error:
        if wait := services.of(FailedSignIns).wait_seconds(address):
            why = f"Too many tokens were refused. Try again in {count_text(wait, 'second')}."
            again = {"Retry-After": str(wait)}
            return _page(services.settings, sent.get("next"), error=why, status=429, headers=again)
        log.warning("a sign-in from %s was refused", address)
        headers = {"WWW-Authenticate": "Bearer"}
        return _page(
            services.settings, sent.get("next"), error=error.detail, status=401, headers=headers
        )
    note_use(services.database, token)
    begin_session(request, token)
    response = RedirectResponse(own_page(sent.get("next")), status_code=303)
    set_mark(response, request, services.settings, token)
    return response


def _find_token(services: Services, secret: str) -> Token:
    if not secret:
        raise NotSignedInError("Type or paste your token; it begins with fl_.")
    return find_token(services.database, secret)


@router.post("/console/sign-out")
def sign_out(
    request: Request, services: ServicesDep, signed_in: SignedInDep, _form: FormDep
) -> RedirectResponse:
    """End the user's sessions in every browser; with a worker's token this one alone.

    Such a token lies on the host of a stranger, who could sign its user out again and again.
    """
    if signed_in.caller.is_submitter:
        with services.database.write() as session:
            session.get_one(User, signed_in.caller.user_id).end_sessions()
    request.session.clear()
    response = RedirectResponse(f"{SIGN_IN}?out=true", status_code=303)
    clear_mark(response, request, services.settings)
    return response


def _page(
    settings: Settings,
    following: str | None,
    *,
    signed_out: bool = False,
    error: str | None = None,
    status: int = 200,
    headers: dict[str, str] | None = None,
) -> HTMLResponse:
    context: dict[str, Any] = {
        "next": own_page(following),
        "out": signed_out,
        "error": error,
        "provider": settings.oidc_name if settings.oidc_issuer is not None else None,
        "registers": settings.self_registration,
    }
    page = render("console/sign_in.html", **context)
    return HTMLResponse(page, status_code=status, headers=headers)
