"""Endpoints of the caller, their own tokens, and those of others."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from finishline.api.people import MeView
from server.base.models import Token
from server.base.services import ServicesDep
from server.people import token_issue, users
from server.people.accounts import NewToken, list_own_tokens
from server.people.dependencies import CallerDep, OrganiserDep, SubmitterDep
from server.people.views import (
    MeChange,
    OwnTokenCreate,
    TokenCreate,
    TokenCreated,
    TokenList,
    TokensRevoked,
    me_view,
    token_view,
)

router = APIRouter(tags=["accounts"])
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/me")
def get_me(services: ServicesDep, caller: CallerDep) -> MeView:
    """Read the user, role and expiry of this request's token."""
    with services.database.read() as session:
        return me_view(session.get_one(Token, caller.token_id))


@router.patch("/me")
def change_me(services: ServicesDep, caller: SubmitterDep, body: MeChange) -> MeView:
    """Change the name that readers see beside my results; null for that of the account."""
    with services.database.write() as session:
        users.change_me(session, caller, body.display_name)
        return me_view(session.get_one(Token, caller.token_id))


@router.get("/me/tokens")
def list_my_tokens(services: ServicesDep, caller: CallerDep) -> TokenList:
    """List my tokens without their secrets, newest first."""
    with services.database.read() as session:
        found = list_own_tokens(session, caller.user_id)
        return TokenList(tokens=[token_view(token) for token in found])


@router.post("/me/tokens", status_code=201)
def create_my_token(
    services: ServicesDep, caller: SubmitterDep, body: OwnTokenCreate
) -> TokenCreated:
    """Make a token for myself, no wider than the one of this request. Its secret is shown once."""
    with services.database.write() as session:
        return _created(token_issue.make_own_token(session, caller, body))


@router.delete("/me/tokens/{token_id}")
def revoke_my_token(
    token_id: TokenId, services: ServicesDep, caller: SubmitterDep
) -> TokensRevoked:
    """Revoke one of my tokens, and every token that was made with it."""
    with services.database.write() as session:
        return TokensRevoked(revoked=token_issue.revoke_own_token(session, caller, token_id))


@router.post("/tokens", status_code=201)
def create_token(body: TokenCreate, services: ServicesDep, caller: OrganiserDep) -> TokenCreated:
    """Make a token for any user. One of an organiser or admin needs an admin. Shown only once."""
    with services.database.write() as session:
        return _created(token_issue.give_token(session, caller, body))


@router.get("/tokens")
def list_tokens(
    services: ServicesDep,
    caller: OrganiserDep,
    user: Annotated[str | None, Query(max_length=100)] = None,
) -> TokenList:
    """List the tokens that the caller may revoke, without their secrets, newest first."""
    with services.database.read() as session:
        found = token_issue.list_visible_tokens(session, caller, user_name=user)
        return TokenList(tokens=[token_view(token) for token in found])


@router.delete("/tokens/{token_id}")
def revoke_token(token_id: TokenId, services: ServicesDep, caller: OrganiserDep) -> TokensRevoked:
    """Revoke a token, and every token that was made with it."""
    with services.database.write() as session:
        return TokensRevoked(revoked=token_issue.revoke_token(session, caller, token_id))


def _created(made: NewToken) -> TokenCreated:
    return TokenCreated(**token_view(made.token).model_dump(), token=made.secret)
