"""Sign in and out, with a token or a provider, and follow the links that people get by mail."""

import logging
import re
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Depends, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from server.base.database import Services, ServicesDep, services_of, site_address, utc_now
from server.base.errors import NotFoundError, NotSignedInError, ServerError, UsedUpError
from server.base.models import Invitation, User
from server.notices.messages import find_by_link
from server.notices.outbox import give_up
from server.pages.declared import PAGES, Console, Errors, read_form
from server.people import tokens
from server.people.accounts import find_token, note_use
from server.people.callers import (
    SIGN_IN,
    FailedSignIns,
    Fields,
    FieldsDep,
    FormDep,
    Notice,
    SignedInDep,
    begin_session,
    clear_mark,
    get_signed_in,
    leave_notice,
    require_same_origin,
    set_mark,
    signed_in_or_none,
)
from server.people.declared import filled
from server.people.invitations import (
    Joining,
    find_open,
    invitation_view,
    join,
)
from server.people.openid import claims_of_answer, redirect_to_provider, sign_in_as
from web.render import render

log = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False)
HOME = "/console"
# A page of ours: no host, no backslash, no step up or second slash, so it stays on this site.
OWN_PAGE = re.compile(r"(?!/api/)(?:/(?![/.])[A-Za-z0-9_%.~@-]*)+(\?[A-Za-z0-9_=&%+.,:-]*)?")


def own_page(address: str | None) -> str:
    """Return the requested page after the sign-in, if it is a page of ours."""
    return address if address is not None and OWN_PAGE.fullmatch(address) else HOME


@router.get(SIGN_IN, response_class=HTMLResponse)
def sign_in_page(
    request: Request,
    following: Annotated[str | None, Query(alias="next")] = None,
    out: bool = False,
) -> Response:
    """Show the form for a token."""
    if signed_in_or_none(request) is not None:
        return RedirectResponse(own_page(following), status_code=303)
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A link on another site led here, and a browser sends no strict cookie along: a page of
        # ours asks again.
        again = urlencode({"next": own_page(following)})
        return HTMLResponse(render("openid.html", address=f"{SIGN_IN}?{again}"))
    response = _sign_in_page(request, following, signed_out=out)
    clear_mark(response, request)
    return response


@router.get("/sign-in")
def guessed_sign_in() -> RedirectResponse:
    """Redirect the address that people type to the form."""
    return RedirectResponse(SIGN_IN, status_code=303)


@router.post(SIGN_IN, response_class=HTMLResponse)
def sign_in(request: Request, services: ServicesDep, sent: FieldsDep) -> Response:
    """Start a session. The browser's Origin says who sent this, so no CSRF token is needed."""
    require_same_origin(request)
    secret, following = sent.get("token", "").strip(), sent.get("next")
    try:
        if not secret:
            raise NotSignedInError("Type or paste your token. It begins with fl_.")
        token = find_token(services.database, secret)
    except NotSignedInError as error:
        try:
            address = services.of(FailedSignIns).count(request, "tokens were refused")
        except UsedUpError as refused:
            return _sign_in_page(request, following, error=refused)
        log.warning("a sign-in from %s was refused", address)
        return _sign_in_page(request, following, error=error)
    note_use(services.database, token)
    begin_session(request, token)
    response = RedirectResponse(own_page(following), status_code=303)
    set_mark(response, request, token)
    return response


@router.post("/console/sign-out")
def sign_out(
    request: Request, services: ServicesDep, caller: SignedInDep, _form: FormDep
) -> RedirectResponse:
    """End the user's sessions in every browser. With a worker's token only this session.

    A stranger's host may hold a worker's token, and could sign its user out again and again.
    """
    if caller.is_submitter:
        with services.database.write() as session:
            session.get_one(User, caller.user_id).end_sessions()
    request.session.clear()
    response = RedirectResponse(f"{SIGN_IN}?out=true", status_code=303)
    clear_mark(response, request)
    return response


def _sign_in_page(
    request: Request,
    following: str | None,
    *,
    signed_out: bool = False,
    error: ServerError | None = None,
) -> HTMLResponse:
    settings = services_of(request).settings
    page = render(
        "console/sign_in.html",
        next=own_page(following),
        out=signed_out,
        error=error and error.detail,
        provider=settings.oidc_name if settings.oidc_issuer is not None else None,
        registers=settings.self_registration,
        is_local=request.url.hostname in ("127.0.0.1", "localhost"),
    )
    if error is None:
        return HTMLResponse(page)
    return HTMLResponse(page, status_code=error.status, headers=error.headers)


BEGIN = SIGN_IN + "/with"
CALLBACK = SIGN_IN + "/callback"
BEGUN = "provider"
LONGEST_SECONDS = 600


def require_provider(services: ServicesDep) -> None:
    """Raise NotFoundError if the settings name no provider."""
    if services.settings.oidc_issuer is None:
        raise NotFoundError("This server has no OpenID provider. Sign in with a token.")


WITH_PROVIDER = [Depends(require_provider)]


@router.get(BEGIN, dependencies=WITH_PROVIDER)
async def begin(
    request: Request,
    services: ServicesDep,
    following: Annotated[str, Query(alias="next", max_length=500)] = "/account",
    connect: bool = False,
) -> Response:
    """Go to the provider. A link leads here, because the CSP blocks a redirected form."""
    callback = site_address(request) + CALLBACK
    response = await redirect_to_provider(request, services.settings, callback)
    begun = {"at": utc_now().timestamp(), "next": own_page(following), "connects": connect}
    request.session[BEGUN] = begun
    return response


@router.get(CALLBACK, dependencies=WITH_PROVIDER)
async def come_back(request: Request, services: ServicesDep, here: bool = False) -> Response:
    """Sign in with the provider's code.

    A browser sends no strict cookie with a request that another site began. So the first answer is
    a page of ours that asks again.
    """
    if not here:
        page = render("openid.html", address=f"{CALLBACK}?{request.url.query}&here=true")
        return HTMLResponse(page, headers=SECRET)
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
    present = signed_in_or_none(request) if begun["connects"] else None
    if begun["connects"] and present is None:
        raise NotSignedInError("You are no longer signed in, so nothing was connected.")
    with services.database.write() as session:
        token, is_new = sign_in_as(
            session,
            claims,
            connect_to=present.user_id if present is not None else None,
            may_register=settings.self_registration,
        )
    response = RedirectResponse("/account" if is_new else begun["next"], status_code=303)
    if present is not None:
        leave_notice(request, f"You can sign in with {settings.oidc_name} from now on.")
        return response
    begin_session(request, token)
    set_mark(response, request, token)
    if is_new:
        welcome = f"Welcome, {token.user.name}. Make a token below to submit from a terminal."
        leave_notice(request, welcome)
    return response


JOIN = "/join/{code}"
# The address of such a page can act, so no referrer gives it to other sites. A browser without a
# referrer also leaves the Origin out of a form.
SECRET = {"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
SECRET_FORM = SECRET | {"Referrer-Policy": "same-origin"}


@router.get(JOIN)
def join_page(code: str, request: Request, services: ServicesDep) -> HTMLResponse:
    """Show the form of a link, or the reason why it does not work."""
    try:
        found = _find_open(request, services, code)
    except ServerError as error:
        return _join_page(code, None, refusal=error)
    return _join_page(code, found, {"name": found.name or ""})


@router.post(JOIN)
def join_with(code: str, request: Request, services: ServicesDep, sent: FieldsDep) -> Response:
    """Make the user and their session. The answer is their account, with the token, shown once.

    The browser's Origin says who sent this, so no CSRF token is needed.
    """
    require_same_origin(request)
    found = None
    try:
        found = _find_open(request, services, code)
        wanted, errors = read_form(Joining, filled(sent))
        if wanted is None:
            return _join_page(code, found, sent, errors)
        with services.database.write() as session:
            made = join(session, code, wanted)
    except ServerError as error:
        if error.problems:
            errors = {one["field"]: error.detail for one in error.problems}
            return _join_page(code, found, sent, errors)
        return _join_page(code, None, refusal=error)
    begin_session(request, made.token)
    told = f"Welcome, {wanted.name}. This is your first token: you sign in and submit with it."
    console = Console(services, get_signed_in(request), request)
    response = PAGES[tokens.ACCOUNT].show(console, {}, notice=Notice(told, once_only=made.secret))
    response.headers.update(SECRET_FORM)
    set_mark(response, request, made.token)
    return response


def _find_open(request: Request, services: Services, code: str) -> Invitation:
    """Find a code's open link. Raises NotFoundError, ConflictError, UsedUpError for guesses."""
    try:
        with services.database.read() as session:
            return find_open(session, code)
    except NotFoundError:
        address = services.of(FailedSignIns).count(request, "unknown links")
        log.warning("an unknown link to join was opened from %s", address)
        raise


def _join_page(
    code: str,
    found: Invitation | None,
    typed: Fields | None = None,
    errors: Errors | None = None,
    refusal: ServerError | None = None,
) -> HTMLResponse:
    page = render(
        "join.html",
        code=code,
        link=found and invitation_view(found).model_dump(mode="json"),
        typed=typed or {},
        errors=errors or {},
        refusal=refusal and refusal.told,
    )
    if refusal is not None:
        return HTMLResponse(page, refusal.status, SECRET_FORM | refusal.headers)
    return HTMLResponse(page, 422 if errors else 200, SECRET_FORM)


@router.get("/mail/{purpose}/{link}")
def mail_page(purpose: str, link: str, services: ServicesDep) -> HTMLResponse:
    """Ask whether to confirm an address, or to end a subscription.

    Mail programs open links too, so only a button acts.
    """
    with services.database.read() as session:
        found = find_by_link(session, link, purpose)
    return _mail_page(found.address, purpose, done=False)


@router.post("/mail/{purpose}/{link}")
def follow_mail(purpose: str, link: str, services: ServicesDep) -> Response:
    """Confirm an address, or end a subscription, also by a mail program's button (RFC 8058)."""
    with services.database.write() as session:
        found = find_by_link(session, link, purpose)
        if purpose == "confirm":
            found.confirmed_at = found.confirmed_at or utc_now()
        else:
            give_up(session, found, None)
    return _mail_page(found.address, purpose, done=True)


def _mail_page(address: str, purpose: str, *, done: bool) -> HTMLResponse:
    page = render("mail_link.html", address=address, purpose=purpose, done=done)
    return HTMLResponse(page, headers=SECRET)
