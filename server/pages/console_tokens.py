"""Tokens of others from the console: make, list, rotate, revoke."""

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field

from server.base.errors import ServerError
from server.base.services import Services, ServicesDep
from server.pages.console_account import revoked_words, token_row
from server.pages.console_page import console_page, filled, go_on, read_form, read_query
from server.people import token_issue
from server.people.schemas import TokenCreate, TokenRotate
from server.people.sessions import Notice, SignedIn, go_on_with
from server.people.signed_in import ConsoleDep, Fields, FormDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/tokens"
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]


class TokenFilter(BaseModel):
    """Filter of the tokens by user."""

    user: str | None = Field(default=None, max_length=100)


@router.get(ADDRESS)
def tokens_page(request: Request, services: ServicesDep, signed_in: ConsoleDep) -> HTMLResponse:
    """Tokens without their secrets, those of one user if asked to, and the form that makes one."""
    only = read_query(TokenFilter, request)
    proposed = {"role": "submitter", "expires_in_days": "90", "user": only.user or ""}
    return _page(services, signed_in, proposed, only=only)


@router.post(ADDRESS)
def make(services: ServicesDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Make a token; the next page shows it, once."""
    wanted, errors = read_form(TokenCreate, filled(form))
    if wanted is None:
        return _page(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            made = token_issue.give_token(session, signed_in.caller, wanted.user, wanted.wanted())
    except ServerError as error:
        return _page(services, signed_in, form, refusal=error)
    told = f"Token {made.token.id} of {wanted.user}, role {wanted.role}, is made."
    return go_on(services, signed_in, ADDRESS, Notice(told, once_only=made.secret))


@router.post(ADDRESS + "/{token_id}/rotate")
def rotate(
    token_id: TokenId, services: ServicesDep, signed_in: ConsoleDep, form: FormDep
) -> Response:
    """Have a fresh token take over; the next page shows it, once."""
    wanted, errors = read_form(TokenRotate, filled(form))
    if wanted is None:
        return _page(services, signed_in, {}, errors=errors)
    try:
        with services.database.write() as session:
            made = token_issue.rotate_token(session, signed_in.caller, token_id, wanted.rotation())
            if token_id == signed_in.caller.token_id:
                go_on_with(session, signed_in.secret, made.token.id)
    except ServerError as error:
        return _page(services, signed_in, {}, refusal=error)
    told = f"Token {made.token.id} of {made.token.user.name} takes over from {token_id}."
    return go_on(services, signed_in, ADDRESS, Notice(told, once_only=made.secret))


@router.post(ADDRESS + "/{token_id}/revoke")
def revoke(
    token_id: TokenId, services: ServicesDep, signed_in: ConsoleDep, _form: FormDep
) -> Response:
    """End a token now."""
    try:
        with services.database.write() as session:
            ended = token_issue.revoke_token(session, signed_in.caller, token_id)
    except ServerError as error:
        return _page(services, signed_in, {}, refusal=error)
    return go_on(services, signed_in, ADDRESS, Notice(revoked_words(token_id, ended)))


def _page(
    services: Services,
    signed_in: SignedIn,
    typed: Fields,
    *,
    only: TokenFilter | None = None,
    **wrong: Any,
) -> HTMLResponse:
    caller = signed_in.caller
    filters = (only or TokenFilter()).model_dump(exclude_none=True)
    with services.database.read() as session:
        found = token_issue.list_visible_tokens(session, caller, user_name=filters.get("user"))
        tokens = [token_row(token) for token in found]
    return console_page(
        services,
        signed_in,
        "tokens.html",
        typed=typed,
        tokens=tokens,
        own_token=caller.token_id,
        roles=[(role, role) for role in token_issue.may_give(caller)],
        filters=filters,
        may_change=caller.may("organise"),
        **wrong,
    )
