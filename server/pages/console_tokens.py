"""Tokens from the console: make, list, revoke."""

from datetime import timedelta
from typing import Annotated, Any

from fastapi import APIRouter, Path
from fastapi.responses import HTMLResponse, Response

from server.accounts.schemas import TokenCreate
from server.accounts.service import create_token, list_tokens, record_new_token, revoke_token
from server.dependencies import Parts, PartsDep
from server.errors import ServerError
from server.pages.console_account import token_row
from server.pages.console_page import console_page, go_on
from server.pages.forms import filled, read_form
from server.sessions.dependencies import ConsoleDep, Fields, FormDep
from server.sessions.schemas import Notice, SignedIn

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/tokens"


@router.get(ADDRESS)
def tokens_page(parts: PartsDep, signed_in: ConsoleDep) -> HTMLResponse:
    """Every token without its secret, and the form that makes one."""
    return _page(parts, signed_in, {"role": "submitter", "expires_in_days": "90"})


@router.post(ADDRESS)
def make(parts: PartsDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Make a token; the next page shows it, once."""
    wanted, errors = read_form(TokenCreate, filled(form))
    if wanted is None:
        return _page(parts, signed_in, form, errors=errors)
    days = wanted.expires_in_days
    with parts.database.write() as session:
        made = create_token(
            session,
            user_name=wanted.user,
            role=wanted.role,
            expires_in=timedelta(days=days) if days is not None else None,
        )
        record_new_token(session, signed_in.caller, made.token)
    told = f"Token {made.token.id} of {wanted.user}, role {wanted.role}, is made."
    return go_on(parts, signed_in, ADDRESS, Notice(told, once_only=made.secret))


@router.post(ADDRESS + "/{token_id}/revoke")
def revoke(
    token_id: Annotated[int, Path(ge=1, le=2**31 - 1)],
    parts: PartsDep,
    signed_in: ConsoleDep,
    _form: FormDep,
) -> Response:
    """End a token now."""
    try:
        with parts.database.write() as session:
            revoke_token(session, signed_in.caller, token_id)
    except ServerError as error:
        return _page(parts, signed_in, {}, refusal=error)
    return go_on(parts, signed_in, ADDRESS, Notice(f"Token {token_id} is revoked."))


def _page(parts: Parts, signed_in: SignedIn, typed: Fields, **wrong: Any) -> HTMLResponse:
    with parts.database.read() as session:
        tokens = [token_row(token) for token in list_tokens(session)]
    return console_page(
        parts,
        signed_in,
        "tokens.html",
        typed=typed,
        tokens=tokens,
        own_token=signed_in.caller.token_id,
        **wrong,
    )
