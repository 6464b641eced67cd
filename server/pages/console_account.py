"""A user's own account: role, submissions, quotas, and tokens to make and revoke."""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import APIRouter, Path, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.database import utc_now
from server.base.models import Pool, Submission, Token, User
from server.base.paging import CURSOR_PATTERN
from server.base.services import Services
from server.base.standing import pending_verifications, standing
from server.pages.board_times import times_of
from server.pages.console_page import Console, Done, OwnerDep, filled
from server.people import erasure, token_issue, users
from server.people.accounts import (
    ROLES,
    is_expired,
    is_within,
    list_own_tokens,
)
from server.people.sessions import Notice
from server.people.signed_in import FormDep
from server.people.views import MeChange, OwnTokenCreate, me_view, token_view
from server.submissions.quota_admin import quota_of
from server.submissions.service import submissions_page

router = APIRouter(include_in_schema=False)
ADDRESS = "/account"
TOKENS = ADDRESS + "/tokens"
LATEST = 50
CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]
TokenId = Annotated[int, Path(ge=1, le=2**31 - 1)]


@router.get(ADDRESS)
def account(console: OwnerDep, before: CursorDep = None) -> HTMLResponse:
    """A person's own submissions and tokens, and the form that makes one."""
    return account_page(console, typed={"role": console.caller.role}, before=before)


def account_page(
    console: Console,
    *,
    typed: Mapping[str, Any] | None = None,
    before: str | None = None,
    **wrong: Any,
) -> HTMLResponse:
    """The page, also after a form that was refused; its submissions are those `before` a cursor."""
    caller = console.caller
    with console.services.database.read(console.viewer) as session:
        found, cursor = submissions_page(
            session, user_id=caller.user_id, limit=LATEST, cursor=before
        )
        context: dict[str, Any] = {
            "me": me_view(session.get_one(Token, caller.token_id)),
            "submissions": _submission_rows(session, console.services, found),
            "before": before,
            "older": f"{ADDRESS}?{urlencode({'before': cursor})}#submissions" if cursor else None,
            "tokens": [token_row(token) for token in list_own_tokens(session, caller.user_id)],
            "asks_erasure_since": erasure.asked_at(session, caller.name),
            "quota": quota_of(
                session, console.services.settings, session.get_one(User, caller.user_id)
            ),
        }
    return console.page(
        "account.html",
        typed=typed or {"role": caller.role},
        **context,
        own_token=caller.token_id,
        roles=[(role, role) for role in ROLES if is_within(role, caller.role)],
        may_change=caller.is_submitter,
        provider=console.services.settings.oidc_issuer and console.services.settings.oidc_name,
        session_ends_at=console.signed_in.ends_at.isoformat(),
        **wrong,
    )


@router.post(ADDRESS + "/erasure")
def ask_erasure(console: OwnerDep, _form: FormDep) -> Response:
    """Ask the admins for one's erasure."""

    def ask(session: Session) -> Done:
        erasure.ask_erasure(session, console.caller)
        return ADDRESS, Notice("The admins see that you ask to be erased.")

    return console.change(ask, partial(account_page, console))


@router.post(ADDRESS + "/display-name")
def change_display_name(console: OwnerDep, form: FormDep) -> Response:
    """Change the name that readers see; an empty field removes it."""

    def change(session: Session, wanted: MeChange) -> Done:
        users.change_me(session, console.caller, wanted.display_name)
        shown = wanted.display_name or console.caller.name
        return ADDRESS, Notice(f"Readers see you as {shown}.")

    asked = {"display_name": filled(form).get("display_name")}
    return console.submit(MeChange, asked, change, partial(account_page, console, typed=form))


def token_row(token: Token) -> dict[str, Any]:
    """A token without its secret, and whether it is still good."""
    state = "valid"
    if token.revoked_at is not None:
        state = "revoked"
    elif is_expired(token, utc_now()):
        state = "expired"
    return token_view(token).model_dump(mode="json") | {"state": state}


def revoked_words(token_id: int, ended: list[int]) -> str:
    """Say which tokens ended together."""
    others = [str(each) for each in ended if each != token_id]
    words = (
        f"Token {token_id} is revoked"
        if token_id in ended
        else f"Token {token_id} had already ended"
    )
    if not others:
        return f"{words}."
    return f"{words}; also revoked: {len(others)} made with it: {', '.join(others)}."


def _submission_rows(
    session: Session, services: Services, found: list[Submission]
) -> list[dict[str, Any]]:
    wanted = [row.pool_id for row in found if row.evidence == "measured"]
    pools = select(Pool.id, Pool.measured_seconds).where(Pool.id.in_(wanted))
    measured = {row.id: row.measured_seconds for row in session.execute(pools)}
    return [
        _submission_row(session, services, row, measured.get(row.pool_id or "", row.tta_seconds))
        for row in found
    ]


def _submission_row(
    session: Session, services: Services, submission: Submission, seconds: float | None
) -> dict[str, Any]:
    times = times_of(
        session,
        services.benchmarks,
        submission.benchmark_id,
        submission.division,
        submission.evidence,
    )
    return {
        "id": submission.id,
        "benchmark": submission.benchmark_id,
        "model": submission.model,
        "system": submission.system,
        "status": submission.status,
        **standing(submission),
        "withdrawn": submission.withdrawn_at is not None,
        "under_embargo": submission.embargoed,
        "waiting": bool(pending_verifications(submission)),
        "time": times(seconds),
        "submitted_at": submission.submitted_at.isoformat(),
    }


@router.post(TOKENS)
def make(console: OwnerDep, form: FormDep) -> Response:
    """Make a token for oneself; the answer shows it, once."""

    def make_one(session: Session, wanted: OwnTokenCreate) -> Done:
        made = token_issue.make_own_token(session, console.caller, wanted)
        told = f"Token {made.token.id}, role {made.token.role}, is made."
        return ADDRESS, Notice(told, once_only=made.secret)

    page = partial(account_page, console, typed=form)
    return console.submit(OwnTokenCreate, filled(form), make_one, page)


@router.post(TOKENS + "/{token_id}/revoke")
def revoke(token_id: TokenId, console: OwnerDep, _form: FormDep) -> Response:
    """End one of one's own tokens now."""

    def end(session: Session) -> Done:
        ended = token_issue.revoke_own_token(session, console.caller, token_id)
        return ADDRESS, Notice(revoked_words(token_id, ended))

    return console.change(end, partial(account_page, console))
