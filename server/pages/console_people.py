"""Show people in the console: accounts, tokens, links, quotas, notices, the audit log."""

from collections.abc import Iterator
from typing import Annotated
from urllib.parse import quote, urlencode

import orjson
from fastapi import APIRouter, Query
from fastapi.responses import StreamingResponse
from sqlalchemy import select
from sqlalchemy.orm import Session

from server.base.database import Services, benchmarks_of, state_of
from server.base.models import AuditRecord, User
from server.base.paging import CURSOR_PATTERN
from server.base.visibility import ORGANISER
from server.boards.submissions import with_places
from server.notices import subscriptions
from server.notices.events import ABOUT
from server.notices.subscriptions import MailView
from server.pages.board import times_of
from server.pages.declared import Console, Context, OrganiserDep, page, plain
from server.people import audit, erasure, invitations, tokens, users
from server.people.accounts import ROLES, find_user_or_none, is_within
from server.people.callers import Caller, ends_at
from server.people.declared import filled
from server.submissions import quotas
from server.submissions.lists import SubmissionQuery, whole_submissions
from server.submissions.quotas import quota_of

PAGE = 100
Search = Annotated[str, Query(max_length=100)]


@page(users.CONSOLE, "users.html", role="organiser")
def users_page(session: Session, caller: Caller, q: Search = "", after: Search = "") -> Context:
    """Show users by name. Admins also see organisations, and the forms to add to them."""
    found = users.list_users(session, caller, PAGE, after or None, q.strip() or None)
    filters = {"q": q.strip()} if q.strip() else {}
    following = {"after": found.next_after}
    return {
        "typed": {"role": "submitter"},
        "users": found.users,
        "erasures": list(erasure.erasures_asked(session)),
        "organisations": users.list_organisations(session).organisations,
        "roles": ROLES,
        "filters": filters,
        "next_page": found.next_after and f"{users.CONSOLE}?{urlencode(filters | following)}",
    }


@page(users.ONE, "user.html", role="organiser")
def user_page(session: Session, caller: Caller, user_name: str) -> Context:
    """Show a user and their tokens. Admins also see the form to change them."""
    user = users.get_user(session, caller, user_name)
    return {
        "typed": user.model_dump(include={"display_name", "role", "organisation", "email"}),
        "user": user,
        "tokens": tokens.list_tokens(session, caller, user_name).tokens,
        "organisations": users.list_organisations(session).organisations,
        "roles": ROLES,
        "address": f"{users.CONSOLE}/{quote(user_name, safe='')}",
        "asks_erasure_since": erasure.erasures_asked(session).get(user_name),
        "is_self": user.id == caller.user_id,
    }


@page(tokens.CONSOLE, "tokens.html", role="organiser")
def tokens_page(session: Session, caller: Caller, user: Search = "") -> Context:
    """Show tokens without their secrets, of one user or all, and the form to make one."""
    only = user.strip()
    return {
        "typed": {"role": "submitter", "expires_in_days": "90", "user": only},
        "tokens": tokens.list_tokens(session, caller, only or None).tokens,
        "own_token": caller.token_id,
        "roles": tokens.may_give(caller),
        "filters": {"user": only} if only else {},
    }


@page(invitations.CONSOLE, "invitations.html", role="organiser")
def invitations_page(session: Session, caller: Caller) -> Context:
    """Show links without their codes, and the form to make one."""
    return {
        "typed": {"role": "submitter", "uses": "1"},
        "links": invitations.list_invitations(session, caller).invitations,
        "roles": tokens.may_give(caller),
        "organisations": users.list_organisations(session).organisations,
    }


SUBMISSIONS = 50
CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]


@page(tokens.ACCOUNT, "account.html", role="user")
def account_page(
    session: Session, console: Console, caller: Caller, before: CursorDep = None
) -> Context:
    """Show the caller's submissions and tokens, and the form to make one."""
    services = console.services
    wanted = SubmissionQuery(cursor=before)
    rows, cursor = whole_submissions(session, wanted, user_id=caller.user_id, limit=SUBMISSIONS)
    submissions = []
    for row, shown in zip(rows, with_places(session, rows), strict=True):
        time = times_of(session, row.benchmark_id, row.division, row.evidence)
        seconds, measured = row.tta_seconds, shown.measured_seconds
        submissions.append(plain(shown) | {"time": time(seconds if measured is None else measured)})
    older = f"{tokens.ACCOUNT}?{urlencode({'before': cursor})}#submissions"
    return {
        "typed": {"role": caller.role},
        "me": tokens.get_me(session, caller),
        "submissions": submissions,
        "before": before,
        "older": older if cursor else None,
        "tokens": tokens.list_my_tokens(session, caller).tokens,
        "asks_erasure_since": erasure.erasures_asked(session).get(caller.name),
        "quota": quota_of(session, session.get_one(User, caller.user_id)),
        "own_token": caller.token_id,
        "roles": [role for role in ROLES if is_within(role, caller.role)],
        "may_change": caller.is_submitter,
        "provider": services.settings.oidc_issuer and services.settings.oidc_name,
        "session_ends_at": ends_at(console.request).isoformat(),
    }


@page(quotas.CONSOLE, "quotas.html", role="organiser")
def quotas_page(session: Session, user: Search = "") -> Context:
    """Show every quota. For a chosen user its use, and the form with its name."""
    found = find_user_or_none(session, user.strip())
    return {
        "typed": {"user": user},
        "quotas": quotas.list_quotas(session),
        "chosen": found and quotas.quota_of(session, found),
    }


USUAL = ("submission.verified", "submission.rejected", "submission.inconclusive", "record.set")


@page(subscriptions.CONSOLE, "notices.html", role="submitter")
def notices_page(session: Session, caller: Caller) -> Context:
    """Show webhooks, addresses, and the forms to make them."""
    return {
        "typed": {"scope": "own"} | dict.fromkeys(USUAL, "on"),
        "hooks": subscriptions.get_webhooks(session, caller).webhooks,
        "mails": [MailView.of(each) for each in subscriptions.list_mails(session, caller)],
        "kinds": list(ABOUT.items()),
        "benchmarks": sorted(benchmarks_of(session)),
        "sends_mail": state_of(session, Services).settings.smtp_url is not None,
    }


@page(subscriptions.ONE, "webhook.html", role="submitter")
def webhook_page(session: Session, caller: Caller, webhook_id: subscriptions.WebhookId) -> Context:
    """Show a webhook and its latest deliveries."""
    return {
        "hook": subscriptions.get_webhook(session, caller, webhook_id),
        "deliveries": subscriptions.get_deliveries(session, caller, webhook_id).deliveries,
    }


router = APIRouter(include_in_schema=False)
LOG = "/console/audit"
RECORDS = 50
Before = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@page(LOG, "audit.html", role="organiser")
def audit_page(
    session: Session,
    actor: Search = "",
    action: Search = "",
    subject: Annotated[str, Query(max_length=200)] = "",
    before: Before = None,
) -> Context:
    """Show the audit log: changes with user and reason, the latest first."""
    filters = filled({"actor": actor, "action": action, "subject": subject})
    found = audit.list_audit(session, before, RECORDS, **filters)
    older = found.next_before and urlencode(filters | {"before": found.next_before})
    actions = select(AuditRecord.action).distinct()
    rows = []
    for each in found.records:
        both = {"before": each.before, "after": each.after}
        values = orjson.dumps(both, option=orjson.OPT_INDENT_2).decode()
        rows.append(each.model_dump() | {"values": values})
    return {
        "rows": rows,
        "actions": list(session.scalars(actions.order_by(AuditRecord.action))),
        "filters": filters,
        "head": audit.read_head(session),
        "older": older and f"{LOG}?{older}",
    }


@router.get(LOG + "/log.json")
def download(console: OrganiserDep) -> StreamingResponse:
    """Download the whole log, oldest first, as `finishline admin audit --out` writes it."""

    def pieces() -> Iterator[bytes]:
        yield b'{"records": ['
        with console.services.database.read(ORGANISER) as session:
            for number, record in enumerate(audit.all_records(session)):
                yield (b",\n" if number else b"\n") + orjson.dumps(record)
        yield b"\n]}\n"

    headers = {"Content-Disposition": 'attachment; filename="log.json"'}
    return StreamingResponse(pieces(), media_type="application/json", headers=headers)
