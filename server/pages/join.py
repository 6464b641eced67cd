"""Joining by a link: choose a name, and be signed in with the first token, which is shown once."""

import logging
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response

from finishline.rules.text import count_text
from server.base.errors import NotFoundError, ServerError, UsedUpError
from server.base.models import Invitation
from server.base.services import Services, ServicesDep
from server.pages.console_page import Console, Errors, read_form
from server.pages.declared import PAGES
from server.people import tokens
from server.people.callers import (
    SOURCE,
    FailedSignIns,
    Fields,
    FieldsDep,
    Notice,
    begin_session,
    get_signed_in,
    require_same_origin,
    set_mark,
)
from server.people.declared import filled
from server.people.invitations import (
    Joining,
    find_invitation,
    invitation_view,
    join,
    require_open,
)
from web.render import render

log = logging.getLogger(__name__)
router = APIRouter(include_in_schema=False)
ADDRESS = "/join/{code}"
# The address of this page makes an account, so no referrer gives it to other sites.
UNTOLD = {"Referrer-Policy": "same-origin", "Cache-Control": "no-store"}


@router.get(ADDRESS)
def join_page(code: str, request: Request, services: ServicesDep) -> HTMLResponse:
    """The form of a link, or the reason why it does not work."""
    try:
        found = _find_open(request, services, code)
    except ServerError as error:
        return _closed(code, error)
    return _form(code, found, {"name": found.name or ""})


@router.post(ADDRESS)
def join_with(code: str, request: Request, services: ServicesDep, sent: FieldsDep) -> Response:
    """Make the user and their session; the answer is their account, with the token, shown once.

    No session's token is asked for: the browser's Origin says who sent this.
    """
    require_same_origin(request, services.settings)
    try:
        found = _find_open(request, services, code)
    except ServerError as error:
        return _closed(code, error)
    wanted, errors = read_form(Joining, filled(sent))
    if wanted is None:
        return _form(code, found, sent, errors)
    try:
        return _join(request, services, code, wanted)
    except ServerError as error:
        if not error.problems:
            return _closed(code, error)
        return _form(code, found, sent, {one["field"]: error.detail for one in error.problems})


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


def _form(
    code: str, found: Invitation, typed: Fields, errors: Errors | None = None
) -> HTMLResponse:
    link = invitation_view(found).model_dump(mode="json")
    return _page(422 if errors else 200, code=code, link=link, typed=typed, errors=errors or {})


def _closed(code: str, error: ServerError) -> HTMLResponse:
    page = _page(error.status, code=code, link=None, typed={}, errors={}, refusal=error.told)
    if isinstance(error, UsedUpError):
        page.headers["Retry-After"] = str(error.retry_seconds)
    return page


def _page(status: int, *, refusal: str | None = None, **context: Any) -> HTMLResponse:
    page = render("join.html", refusal=refusal, **context)
    return HTMLResponse(page, status_code=status, headers=UNTOLD)
