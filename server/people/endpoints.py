"""Who am I, my own tokens, and those of others."""

from typing import Annotated

from fastapi import APIRouter, Path, Query

from server.base.models import Token
from server.people import token_issue
from server.people.accounts import NewToken, list_own_tokens
from server.people.dependencies import CallerDep, OrganiserDep, OwnTokensDep, PartsDep
from server.people.schemas import (
    MeView,
    OwnTokenCreate,
    TokenCreate,
    TokenCreated,
    TokenList,
    TokenRotate,
    TokensRevoked,
    me_view,
    token_view,
)

router = APIRouter(tags=["accounts"])
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get("/me")
def me(parts: PartsDep, caller: CallerDep) -> MeView:
    """Who the token of this request belongs to, and what it may do until when."""
    with parts.database.read() as session:
        return me_view(session.get_one(Token, caller.token_id))


@router.get("/me/tokens")
def list_my_tokens(parts: PartsDep, caller: OwnTokensDep) -> TokenList:
    """My tokens without their secrets, newest first."""
    with parts.database.read() as session:
        found = list_own_tokens(session, caller.user_id)
        return TokenList(tokens=[token_view(token) for token in found])


@router.post("/me/tokens", status_code=201)
def create_my_token(parts: PartsDep, caller: OwnTokensDep, body: OwnTokenCreate) -> TokenCreated:
    """Make a token for myself, no wider than the one of this request. Its secret is shown once."""
    with parts.database.write() as session:
        return _created(token_issue.make_own_token(session, caller, body.wanted(caller.role)))


@router.post("/me/tokens/{token_id}/rotate", status_code=201)
def rotate_my_token(
    token_id: TokenId, parts: PartsDep, caller: OwnTokensDep, body: TokenRotate
) -> TokenCreated:
    """Have a fresh token take over from one of mine, which ends at once or after an overlap."""
    with parts.database.write() as session:
        return _created(token_issue.rotate_own_token(session, caller, token_id, body.rotation()))


@router.delete("/me/tokens/{token_id}")
def revoke_my_token(token_id: TokenId, parts: PartsDep, caller: OwnTokensDep) -> TokensRevoked:
    """End one of my tokens now, and every token that was made with it or rotated from it."""
    with parts.database.write() as session:
        return TokensRevoked(revoked=token_issue.revoke_own_token(session, caller, token_id))


@router.post("/tokens", status_code=201)
def create_token(body: TokenCreate, parts: PartsDep, caller: OrganiserDep) -> TokenCreated:
    """Make a token for anybody: of an organiser or admin it takes an admin. Shown this once."""
    with parts.database.write() as session:
        return _created(token_issue.give_token(session, caller, body.user, body.wanted()))


@router.get("/tokens")
def list_tokens(
    parts: PartsDep,
    caller: OrganiserDep,
    user: Annotated[str | None, Query(max_length=100)] = None,
) -> TokenList:
    """Tokens without their secrets, newest first: those that the caller may revoke."""
    with parts.database.read() as session:
        found = token_issue.list_visible_tokens(session, caller, user_name=user)
        return TokenList(tokens=[token_view(token) for token in found])


@router.post("/tokens/{token_id}/rotate", status_code=201)
def rotate_token(
    token_id: TokenId, parts: PartsDep, caller: OrganiserDep, body: TokenRotate
) -> TokenCreated:
    """Have a fresh token take over from somebody's, which ends at once or after an overlap."""
    with parts.database.write() as session:
        return _created(token_issue.rotate_token(session, caller, token_id, body.rotation()))


@router.delete("/tokens/{token_id}")
def revoke_token(token_id: TokenId, parts: PartsDep, caller: OrganiserDep) -> TokensRevoked:
    """End a token now, and every token that was made with it or rotated from it."""
    with parts.database.write() as session:
        return TokensRevoked(revoked=token_issue.revoke_token(session, caller, token_id))


def _created(made: NewToken) -> TokenCreated:
    return TokenCreated(**token_view(made.token).model_dump(), token=made.secret)
