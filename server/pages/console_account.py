"""Whose token this is, until when, and what was submitted with it."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.accounts.schemas import token_view
from server.accounts.service import is_expired
from server.database import utc_now
from server.dependencies import PartsDep
from server.models import Submission, Token
from server.pages.console_page import console_page
from server.quotas.service import own_quotas
from server.sessions.dependencies import SignedInDep
from server.verifications.publishing import pending_verifications

router = APIRouter(include_in_schema=False)
LATEST = 50


@router.get("/console/account")
def account(parts: PartsDep, signed_in: SignedInDep) -> HTMLResponse:
    """A person's own submissions and tokens."""
    user_id = signed_in.caller.user_id
    with parts.database.read() as session:
        found = own_submissions(session, user_id)
        tokens = session.scalars(
            select(Token).where(Token.user_id == user_id).order_by(Token.id.desc())
        )
        context: dict[str, Any] = {
            "submissions": [_submission_row(row) for row in found[:LATEST]],
            "more": len(found) > LATEST,
            "tokens": [token_row(token) for token in tokens],
            "quota": own_quotas(session, parts.settings, signed_in.caller).model_dump(mode="json"),
        }
    expires_at = signed_in.token_expires_at
    return console_page(
        parts,
        signed_in,
        "account.html",
        **context,
        own_token=signed_in.caller.token_id,
        token_expires_at=expires_at.isoformat() if expires_at is not None else None,
        session_ends_at=signed_in.ends_at.isoformat(),
    )


def own_submissions(session: Session, user_id: int) -> list[Submission]:
    """What somebody submitted, the latest first: one more than a page shows, if there are more."""
    return list(
        session.scalars(
            select(Submission)
            .where(Submission.user_id == user_id)
            .order_by(Submission.submitted_at.desc(), Submission.id.desc())
            .limit(LATEST + 1)
        )
    )


def token_row(token: Token) -> dict[str, Any]:
    """A token without its secret, and whether it is still good."""
    state = "valid"
    if token.revoked_at is not None:
        state = "revoked"
    elif is_expired(token, utc_now()):
        state = "expired"
    return token_view(token).model_dump(mode="json") | {"state": state}


def _submission_row(submission: Submission) -> dict[str, Any]:
    return {
        "id": submission.id,
        "benchmark": submission.benchmark_id,
        "model": submission.model,
        "status": submission.status,
        "waiting": bool(pending_verifications(submission)),
        "tta_seconds": submission.tta_seconds,
        "submitted_at": submission.submitted_at.isoformat(),
    }
