"""Users, organisations, tokens and links by which people join, in the console."""

from typing import Annotated
from urllib.parse import quote, urlencode

from fastapi import Query
from sqlalchemy.orm import Session

from server.pages.declared import Context, choices, page
from server.people import erasure, invitations, tokens, users
from server.people.accounts import ROLES
from server.people.callers import Caller

PAGE = 100
Search = Annotated[str, Query(max_length=100)]


@page(users.CONSOLE, "users.html", role="organiser")
def users_page(session: Session, caller: Caller, q: Search = "", after: Search = "") -> Context:
    """Users by name; for admins also organisations, and the forms that add to them."""
    found = users.list_users(session, caller, PAGE, after or None, q.strip() or None)
    organisations = users.list_organisations(session).organisations
    filters = {"q": q.strip()} if q.strip() else {}
    following = {"after": found.next_after}
    return {
        "typed": {"role": "submitter"},
        "users": found.users,
        "erasures": erasure.erasures_asked(session),
        "organisations": organisations,
        "organisation_choices": choices([each.name for each in organisations], none=True),
        "roles": choices(ROLES),
        "filters": filters,
        "next_page": found.next_after and f"{users.CONSOLE}?{urlencode(filters | following)}",
    }


@page(users.ONE, "user.html", role="organiser")
def user_page(session: Session, caller: Caller, user_name: str) -> Context:
    """One user and their tokens; for admins also the form that changes them."""
    user = users.get_user(session, caller, user_name)
    organisations = users.list_organisations(session).organisations
    return {
        "typed": user.model_dump(include={"display_name", "role", "organisation", "email"}),
        "user": user,
        "tokens": tokens.list_tokens(session, caller, user_name).tokens,
        "organisation_choices": choices([each.name for each in organisations], none=True),
        "roles": choices(ROLES),
        "address": f"{users.CONSOLE}/{quote(user_name, safe='')}",
        "asks_erasure_since": erasure.asked_at(session, user_name),
        "is_self": user.id == caller.user_id,
    }


@page(tokens.CONSOLE, "tokens.html", role="organiser")
def tokens_page(session: Session, caller: Caller, user: Search = "") -> Context:
    """Tokens without their secrets, those of one user if asked to, and the form that makes one."""
    only = user.strip()
    return {
        "typed": {"role": "submitter", "expires_in_days": "90", "user": only},
        "tokens": tokens.list_tokens(session, caller, only or None).tokens,
        "own_token": caller.token_id,
        "roles": choices(tokens.may_give(caller)),
        "filters": {"user": only} if only else {},
    }


@page(invitations.CONSOLE, "invitations.html", role="organiser")
def invitations_page(session: Session, caller: Caller) -> Context:
    """Links without their codes, and the form that makes one."""
    organisations = users.list_organisations(session).organisations
    return {
        "typed": {"role": "submitter", "uses": "1"},
        "links": invitations.list_invitations(session, caller).invitations,
        "roles": choices(tokens.may_give(caller)),
        "organisations": choices([each.name for each in organisations], none=True),
    }
