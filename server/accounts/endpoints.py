"""Tokens: make, list, revoke; and who am I."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path

from server.accounts import service
from server.accounts.schemas import MeView, TokenCreate, TokenCreated, TokenList, token_view
from server.dependencies import CallerDep, OrganiserDep, PartsDep

router = APIRouter(tags=["accounts"])


@router.get("/me")
def me(caller: CallerDep) -> MeView:
    """Who the token of this request belongs to, and its role."""
    return MeView(user=caller.name, role=caller.role)


@router.post("/tokens", status_code=201)
def create_token(body: TokenCreate, parts: PartsDep, caller: OrganiserDep) -> TokenCreated:
    """Make a token. Its secret is in this answer and nowhere else."""
    days = body.expires_in_days
    with parts.database.write() as session:
        made = service.create_token(
            session,
            user_name=body.user,
            role=body.role,
            expires_in=timedelta(days=days) if days is not None else None,
        )
        view = token_view(made.token)
        service.record_new_token(session, caller, made.token)
    return TokenCreated(**view.model_dump(), token=made.secret)


@router.get("/tokens")
def list_tokens(parts: PartsDep, _caller: OrganiserDep) -> TokenList:
    """Every token without its secret, newest first."""
    with parts.database.read() as session:
        return TokenList(tokens=[token_view(token) for token in service.list_tokens(session)])


@router.delete("/tokens/{token_id}", status_code=204)
def revoke_token(
    token_id: Annotated[int, Path(ge=1, le=2**31 - 1)], parts: PartsDep, caller: OrganiserDep
) -> None:
    """End a token now."""
    with parts.database.write() as session:
        service.revoke_token(session, caller, token_id)
