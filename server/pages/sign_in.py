"""Signing in and out, with a token or a provider, and the links that people get by mail."""

import logging
import re
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response

from finishline.rules.text import count_text
from server.base.database import utc_now
from server.base.errors import NotFoundError, NotSignedInError, ServerError, UsedUpError
from server.base.models import Invitation, Token, User
from server.base.services import Services, ServicesDep, site_address
from server.notices.messages import find_by_link
from server.notices.outbox import give_up
from server.pages.declared import PAGES, Console, Errors, read_form
from server.people import tokens
from server.people.accounts import find_token, note_use
from server.people.callers import (
    SIGN_IN,
    SOURCE,
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
    find_invitation,
    invitation_view,
    join,
    require_open,
)
from server.people.openid import claims_of_answer, redirect_to_provider, sign_in_as
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
    if signed_in_or_none(request, services) is not None:
        return RedirectResponse(own_page(following), status_code=303)
    if request.headers.get("sec-fetch-site") == "cross-site":
        # A link on another site led here, and a browser sends no strict cookie along: a page of
        # ours asks again.
        again = urlencode({"next": own_page(following)})
        return HTMLResponse(render("openid.html", address=f"{SIGN_IN}?{again}"))
    response = _sign_in_page(request, services, following, signed_out=out)
    clear_mark(response, request, services.settings)
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
            status, headers = 429, {"Retry-After": str(wait)}
        else:
            log.warning("a sign-in from %s was refused", address)
            why, status, headers = error.detail, 401, {"WWW-Authenticate": "Bearer"}
        page = _sign_in_page(request, services, sent.get("next"), error=why, status=status)
        page.headers.update(headers)
        return page
    note_use(services.database, token)
    begin_session(request, token)
    response = RedirectResponse(own_page(sent.get("next")), status_code=303)
    set_mark(response, request, services.settings, token)
    return response


def _find_token(services: Services, secret: str) -> Token:
    if not secret:
        raise NotSignedInError("Type or paste your token. It begins with fl_.")
    return find_token(services.database, secret)


@router.post("/console/sign-out")
def sign_out(
    request: Request, services: ServicesDep, signed_in: SignedInDep, _form: FormDep
) -> RedirectResponse:
    """End the user's sessions in every browser. With a worker's token this one alone.

    Such a token lies on the host of a stranger, who could sign its user out again and again.
    """
    if signed_in.caller.is_submitter:
        with services.database.write() as session:
            session.get_one(User, signed_in.caller.user_id).end_sessions()
    request.session.clear()
    response = RedirectResponse(f"{SIGN_IN}?out=true", status_code=303)
    clear_mark(response, request, services.settings)
    return response


def _sign_in_page(
    request: Request,
    services: Services,
    following: str | None,
    *,
    signed_out: bool = False,
    error: str | None = None,
    status: int = 200,
) -> HTMLResponse:
    settings = services.settings
    page = render(
        "console/sign_in.html",
        next=own_page(following),
        out=signed_out,
        error=error,
        provider=settings.oidc_name if settings.oidc_issuer is not None else None,
        registers=settings.self_registration,
        is_local=request.url.hostname in ("127.0.0.1", "localhost"),
    )
    return HTMLResponse(page, status_code=status)


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
        raise NotFoundError("This server has no OpenID provider. Sign in with a token.")


JOIN = "/join/{code}"
# The address of this page makes an account, so no referrer gives it to other sites.
UNTOLD = {"Referrer-Policy": "same-origin", "Cache-Control": "no-store"}


@router.get(JOIN)
def join_page(code: str, request: Request, services: ServicesDep) -> HTMLResponse:
    """The form of a link, or the reason why it does not work."""
    try:
        found = _find_open(request, services, code)
    except ServerError as error:
        return _closed(code, error)
    return _join_form(code, found, {"name": found.name or ""})


@router.post(JOIN)
def join_with(code: str, request: Request, services: ServicesDep, sent: FieldsDep) -> Response:
    """Make the user and their session. The answer is their account, with the token, shown once.

    No session's token is asked for: the browser's Origin says who sent this.
    """
    require_same_origin(request, services.settings)
    try:
        found = _find_open(request, services, code)
    except ServerError as error:
        return _closed(code, error)
    wanted, errors = read_form(Joining, filled(sent))
    if wanted is None:
        return _join_form(code, found, sent, errors)
    try:
        return _join(request, services, code, wanted)
    except ServerError as error:
        if not error.problems:
            return _closed(code, error)
        return _join_form(code, found, sent, {one["field"]: error.detail for one in error.problems})


def _join(request: Request, services: Services, code: str, wanted: Joining) -> Response:
    with services.database.write() as session:
        made = join(session, code, wanted, source=SOURCE)
    begin_session(request, made.token)
    name = made.token.user.name
    told = f"Welcome, {name}. This is your first token: you sign in and submit with it."
    console = Console(services, get_signed_in(request, services), request)
    response = PAGES[tokens.ACCOUNT].show(console, {}, notice=Notice(told, once_only=made.secret))
    response.headers.update(UNTOLD)
    set_mark(response, request, services.settings, made.token)
    return response


def _find_open(request: Request, services: Services, code: str) -> Invitation:
    """The open link of a code. Raises NotFoundError, ConflictError, UsedUpError for guesses."""
    address = request.client.host if request.client is not None else "unknown"
    try:
        with services.database.read() as session:
            found = find_invitation(session, code)
            require_open(found)
    except NotFoundError as error:
        if wait := services.of(FailedSignIns).wait_seconds(address):
            why = f"Too many unknown links. Try again in {count_text(wait, 'second')}."
            raise UsedUpError(why, measure="links", retry_seconds=wait) from error
        log.warning("an unknown link to join was opened from %s", address)
        raise
    return found


def _join_form(
    code: str, found: Invitation, typed: Fields, errors: Errors | None = None
) -> HTMLResponse:
    link = invitation_view(found).model_dump(mode="json")
    return _join_page(
        422 if errors else 200, code=code, link=link, typed=typed, errors=errors or {}
    )


def _closed(code: str, error: ServerError) -> HTMLResponse:
    page = _join_page(error.status, code=code, link=None, typed={}, errors={}, refusal=error.told)
    if isinstance(error, UsedUpError):
        page.headers["Retry-After"] = str(error.retry_seconds)
    return page


def _join_page(status: int, *, refusal: str | None = None, **context: Any) -> HTMLResponse:
    page = render("join.html", refusal=refusal, **context)
    return HTMLResponse(page, status_code=status, headers=UNTOLD)


@router.get("/mail/{purpose}/{link}")
def mail_page(purpose: str, link: str, services: ServicesDep) -> HTMLResponse:
    """Ask whether notices may be sent to an address, or are to end.

    Mail programs open links too, so only a button acts.
    """
    with services.database.read() as session:
        found = find_by_link(session, link, purpose)
    return _mail_page(found.address, purpose, done=False)


@router.post("/mail/{purpose}/{link}")
def follow_mail(purpose: str, link: str, services: ServicesDep) -> Response:
    """Confirm an address, or end a subscription: also by a mail program's button (RFC 8058)."""
    with services.database.write() as session:
        found = find_by_link(session, link, purpose)
        if purpose == "confirm":
            found.confirmed_at = found.confirmed_at or utc_now()
        else:
            give_up(session, found, None)
    return _mail_page(found.address, purpose, done=True)


def _mail_page(address: str, purpose: str, *, done: bool) -> HTMLResponse:
    page = render("mail_link.html", address=address, purpose=purpose, done=done)
    # The address of this page can end the subscription, so no referrer gives it to other sites.
    return HTMLResponse(
        page, headers={"Referrer-Policy": "no-referrer", "Cache-Control": "no-store"}
    )
