"""Tokens of others from the console: make, list, revoke."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Path, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, Field
from sqlalchemy.orm import Session

from server.pages.console_account import revoked_words, token_row
from server.pages.console_page import Console, Done, OrganiserDep, filled, read_query
from server.people import token_issue
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep
from server.people.views import TokenCreate

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/tokens"
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]


class TokenFilter(BaseModel):
    """Filter of the tokens by user."""

    user: str | None = Field(default=None, max_length=100)


@router.get(ADDRESS)
def tokens_page(request: Request, console: OrganiserDep) -> HTMLResponse:
    """Tokens without their secrets, those of one user if asked to, and the form that makes one."""
    only = read_query(TokenFilter, request)
    proposed = {"role": "submitter", "expires_in_days": "90", "user": only.user or ""}
    return _page(console, proposed, only=only)


@router.post(ADDRESS)
def make(console: OrganiserDep, form: FormDep) -> Response:
    """Make a token; the answer shows it, once."""

    def give(session: Session, wanted: TokenCreate) -> Done:
        made = token_issue.give_token(session, console.caller, wanted)
        told = f"Token {made.token.id} of {wanted.user}, role {wanted.role}, is made."
        return ADDRESS, Notice(told, once_only=made.secret)

    return console.submit(TokenCreate, filled(form), give, partial(_page, console, form))


@router.post(ADDRESS + "/{token_id}/revoke")
def revoke(token_id: TokenId, console: OrganiserDep, _form: FormDep) -> Response:
    """End a token now."""

    def end(session: Session) -> Done:
        ended = token_issue.revoke_token(session, console.caller, token_id)
        return ADDRESS, Notice(revoked_words(token_id, ended))

    return console.change(end, partial(_page, console, {}))


def _page(
    console: Console, typed: Fields, *, only: TokenFilter | None = None, **wrong: Any
) -> HTMLResponse:
    caller = console.caller
    filters = (only or TokenFilter()).model_dump(exclude_none=True)
    with console.services.database.read() as session:
        found = token_issue.list_visible_tokens(session, caller, user_name=filters.get("user"))
        tokens = [token_row(token) for token in found]
    return console.page(
        "tokens.html",
        typed=typed,
        tokens=tokens,
        own_token=caller.token_id,
        roles=[(role, role) for role in token_issue.may_give(caller)],
        filters=filters,
        **wrong,
    )
