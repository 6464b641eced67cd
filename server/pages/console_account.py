"""A user's own account: role, submissions, quotas, and tokens to make and revoke."""

from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.models import Pool, Submission, User
from server.base.paging import CURSOR_PATTERN
from server.base.services import Services
from server.base.standing import pending_verifications, row_evidence
from server.pages.board_times import times_of
from server.pages.console_page import Console
from server.pages.declared import Context, choices, page
from server.people import erasure, tokens
from server.people.accounts import ROLES, is_within
from server.people.callers import Caller
from server.people.tokens import ACCOUNT
from server.submissions.lists import SubmissionQuery, whole_submissions
from server.submissions.quotas import quota_of

LATEST = 50
CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]


@page(ACCOUNT, "account.html", role="user")
def account_page(
    session: Session, console: Console, caller: Caller, before: CursorDep = None
) -> Context:
    """A person's own submissions and tokens, and the form that makes one."""
    services = console.services
    wanted = SubmissionQuery(cursor=before)
    found, cursor = whole_submissions(session, wanted, user_id=caller.user_id, limit=LATEST)
    return {
        "typed": {"role": caller.role},
        "me": tokens.get_me(session, caller),
        "submissions": _submission_rows(session, services, found),
        "before": before,
        "older": f"{tokens.ACCOUNT}?{urlencode({'before': cursor})}#submissions"
        if cursor
        else None,
        "tokens": tokens.list_my_tokens(session, caller).tokens,
        "asks_erasure_since": erasure.asked_at(session, caller.name),
        "quota": quota_of(session, services, session.get_one(User, caller.user_id)),
        "own_token": caller.token_id,
        "roles": choices([role for role in ROLES if is_within(role, caller.role)]),
        "may_change": caller.is_submitter,
        "provider": services.settings.oidc_issuer and services.settings.oidc_name,
        "session_ends_at": console.signed_in.ends_at.isoformat(),
    }


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
        **row_evidence(submission),
        "withdrawn": submission.withdrawn_at is not None,
        "under_embargo": submission.embargoed,
        "waiting": bool(pending_verifications(submission)),
        "time": times(seconds),
        "submitted_at": submission.submitted_at.isoformat(),
    }
