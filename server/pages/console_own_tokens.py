"""A person's own tokens from their account page: make, rotate, revoke."""

from typing import Annotated

from fastapi import APIRouter, Path
from fastapi.responses import Response

from server.base.errors import ServerError
from server.base.services import ServicesDep
from server.pages.console_account import ADDRESS, account_page, revoked_words
from server.pages.console_page import filled, go_on, read_form
from server.people import token_issue
from server.people.accounts import SCOPES
from server.people.schemas import OwnTokenCreate, TokenRotate
from server.people.sessions import Notice, go_on_with
from server.people.signed_in import AccountDep, Fields, FormDep

router = APIRouter(include_in_schema=False)
TOKENS = ADDRESS + "/tokens"
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.post(TOKENS)
def make(services: ServicesDep, signed_in: AccountDep, form: FormDep) -> Response:
    """Make a token for oneself; the next page shows it, once."""
    wanted, errors = read_form(OwnTokenCreate, _asked(form))
    if wanted is None:
        return account_page(services, signed_in, typed=form, errors=errors)
    caller = signed_in.caller
    try:
        with services.database.write() as session:
            made = token_issue.make_own_token(session, caller, wanted.wanted(caller.role))
    except ServerError as error:
        return account_page(services, signed_in, typed=form, refusal=error)
    told = f"Token {made.token.id}, role {made.token.role}, is made."
    return go_on(services, signed_in, ADDRESS, Notice(told, once_only=made.secret))


def _asked(form: Fields) -> dict[str, object]:
    """A form's fields as the API takes them: each scope is a box of its own."""
    scopes = [scope for scope in SCOPES if f"scopes_{scope}" in form]
    named = {name: form[name] for name in form if not name.startswith("scopes_")}
    return filled(named) | {"scopes": scopes}


@router.post(TOKENS + "/{token_id}/rotate")
def rotate(
    token_id: TokenId, services: ServicesDep, signed_in: AccountDep, form: FormDep
) -> Response:
    """Have a fresh token take over; a session of the old one goes on with it."""
    wanted, errors = read_form(TokenRotate, filled(form))
    if wanted is None:
        return account_page(services, signed_in, errors=errors)
    caller = signed_in.caller
    try:
        with services.database.write() as session:
            made = token_issue.rotate_own_token(session, caller, token_id, wanted.rotation())
            if token_id == caller.token_id:
                go_on_with(session, signed_in.secret, made.token.id)
    except ServerError as error:
        return account_page(services, signed_in, refusal=error)
    told = f"Token {made.token.id} takes over from {token_id}."
    return go_on(services, signed_in, ADDRESS, Notice(told, once_only=made.secret))


@router.post(TOKENS + "/{token_id}/revoke")
def revoke(
    token_id: TokenId, services: ServicesDep, signed_in: AccountDep, _form: FormDep
) -> Response:
    """End one of one's own tokens now."""
    try:
        with services.database.write() as session:
            ended = token_issue.revoke_own_token(session, signed_in.caller, token_id)
    except ServerError as error:
        return account_page(services, signed_in, refusal=error)
    return go_on(services, signed_in, ADDRESS, Notice(revoked_words(token_id, ended)))
