"""A user's own account: role, submissions, quotas and tokens."""

from collections.abc import Mapping
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse

from server.base.database import utc_now
from server.base.models import Submission, Token
from server.base.services import Services, ServicesDep
from server.base.standing import pending_verifications
from server.pages.console_page import console_page
from server.people.accounts import ROLES, SCOPES_OF, Scope, is_expired, is_within, list_own_tokens
from server.people.schemas import me_view, token_view
from server.people.sessions import SignedIn
from server.people.signed_in import AccountDep, viewer_for
from server.submissions.quota_admin import own_quotas
from server.submissions.service import CURSOR_PATTERN, submissions_page

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/account"
LATEST = 50
CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]
SCOPE_MEANINGS: dict[Scope, str] = {
    "read": "see what asks for a token",
    "submit": "send submissions",
    "organise": "what organisers do",
    "administer": "users, organisations and everybody's tokens",
    "work": "what a worker sends",
    "tokens": "make, rotate and revoke your tokens",
}


@router.get(ADDRESS)
def account(services: ServicesDep, signed_in: AccountDep, before: CursorDep = None) -> HTMLResponse:
    """A person's own submissions and tokens, and the form that makes one."""
    caller = signed_in.caller
    ticked = {f"scopes_{scope}": "on" for scope in caller.scopes}
    return account_page(services, signed_in, typed={"role": caller.role} | ticked, before=before)


def account_page(
    services: Services,
    signed_in: SignedIn,
    *,
    typed: Mapping[str, Any] | None = None,
    before: str | None = None,
    **wrong: Any,
) -> HTMLResponse:
    """The page, also after a form that was refused; its submissions are those `before` a cursor."""
    caller = signed_in.caller
    with services.database.read(viewer_for(caller)) as session:
        found, cursor = submissions_page(
            session, user_id=caller.user_id, limit=LATEST, cursor=before
        )
        context: dict[str, Any] = {
            "me": me_view(session.get_one(Token, caller.token_id)).model_dump(mode="json"),
            "submissions": [_submission_row(row) for row in found],
            "before": before,
            "older": f"{ADDRESS}?{urlencode({'before': cursor})}#submissions" if cursor else None,
            "tokens": [token_row(token) for token in list_own_tokens(session, caller.user_id)],
            "quota": own_quotas(session, services.settings, caller).model_dump(mode="json"),
        }
    return console_page(
        services,
        signed_in,
        "account.html",
        typed=typed or {"role": caller.role},
        **context,
        own_token=caller.token_id,
        roles=[(role, role) for role in ROLES if is_within(role, caller.role)],
        scopes=[(scope, SCOPE_MEANINGS[scope]) for scope in context["me"]["scopes"]],
        may_change=caller.may("tokens"),
        session_ends_at=signed_in.ends_at.isoformat(),
        **wrong,
    )


def token_row(token: Token) -> dict[str, Any]:
    """A token without its secret, and whether it is still good."""
    state = "valid"
    if token.revoked_at is not None:
        state = "revoked"
    elif is_expired(token, utc_now()):
        state = "expired"
    has_all = set(token.scopes) == set(SCOPES_OF[token.role])
    return token_view(token).model_dump(mode="json") | {"state": state, "has_all": has_all}


def revoked_words(token_id: int, ended: list[int]) -> str:
    """Say which tokens ended together."""
    others = [str(each) for each in ended if each != token_id]
    words = f"Token {token_id} is revoked" if token_id in ended else f"Token {token_id} had ended"
    if not others:
        return f"{words}."
    return f"{words}; {len(others)} made with it or rotated from it ended too: {', '.join(others)}."


def _submission_row(submission: Submission) -> dict[str, Any]:
    return {
        "id": submission.id,
        "benchmark": submission.benchmark_id,
        "model": submission.model,
        "status": submission.status,
        "withdrawn": submission.withdrawn_at is not None,
        "under_embargo": submission.embargoed,
        "waiting": bool(pending_verifications(submission)),
        "tta_seconds": submission.tta_seconds,
        "submitted_at": submission.submitted_at.isoformat(),
    }
