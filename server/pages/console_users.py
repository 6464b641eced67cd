"""Users and organisations in the console: organisers read them, admins change them."""

from functools import partial
from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field
from sqlalchemy.orm import Session

from server.base.errors import ContentError
from server.pages.console_account import token_row
from server.pages.console_page import (
    AdminDep,
    Console,
    Done,
    OrganiserDep,
    filled,
    read_query,
    renamed,
)
from server.people import erasure, users
from server.people.accounts import ROLES
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep
from server.people.token_issue import list_visible_tokens
from server.people.views import (
    OrganisationCreate,
    OrganisationView,
    UserChange,
    UserCreate,
    UserErasure,
)

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/users"
PAGE = 100
ROLE_CHOICES = [(role, role) for role in ROLES]


class UserFilter(BaseModel):
    """Filters of the list of users."""

    model_config = ConfigDict(extra="forbid")

    q: str | None = Field(default=None, max_length=100)
    after: str | None = Field(default=None, max_length=100)


@router.get(ADDRESS)
def users_page(request: Request, console: OrganiserDep) -> HTMLResponse:
    """Users by name; for admins also organisations, and the forms that add to them."""
    return _list(console, {"role": "submitter"}, only=read_query(UserFilter, request))


@router.post(ADDRESS)
def add_user(console: AdminDep, form: FormDep) -> Response:
    """Make an account."""

    def add(session: Session, wanted: UserCreate) -> Done:
        users.create_user(session, console.caller, wanted)
        return _address(wanted.name), Notice(f"{wanted.name} is added.")

    return console.submit(UserCreate, filled(form), add, partial(_list, console, form))


@router.post("/console/organisations")
def add_organisation(console: AdminDep, form: FormDep) -> Response:
    """Add an organisation."""

    def add(session: Session, wanted: OrganisationCreate) -> Done:
        users.create_organisation(session, console.caller, wanted.name)
        return ADDRESS, Notice(f"{wanted.name} is added.")

    name = form.get("organisation_name", "").strip()
    page = renamed(partial(_list, console, form), name="organisation_name")
    return console.submit(OrganisationCreate, {"name": name}, add, page)


@router.get(ADDRESS + "/{user_name}")
def user_page(user_name: str, console: OrganiserDep) -> HTMLResponse:
    """One user and their tokens; for admins also the form that changes them."""
    return _one(console, user_name)


@router.post(ADDRESS + "/{user_name}")
def change_user(user_name: str, console: AdminDep, form: FormDep) -> Response:
    """Change display name, role, organisation and e-mail; an empty field removes its value."""
    fields = filled(form)
    changed = ("display_name", "role", "organisation", "email")
    asked = {name: fields.get(name) for name in changed}
    return _change(user_name, console, asked, "changed", typed=form)


@router.post(ADDRESS + "/{user_name}/disable")
def disable(user_name: str, console: AdminDep, _form: FormDep) -> Response:
    """End a user's sessions and have their tokens refused."""
    return _change(user_name, console, {"disabled": True}, "disabled")


@router.post(ADDRESS + "/{user_name}/enable")
def enable(user_name: str, console: AdminDep, _form: FormDep) -> Response:
    """Have a user's tokens accepted again."""
    return _change(user_name, console, {"disabled": False}, "enabled")


@router.post(ADDRESS + "/{user_name}/erase")
def erase(user_name: str, console: AdminDep, form: FormDep) -> Response:
    """Erase a person, once their name is typed again."""

    def change(session: Session, wanted: UserErasure) -> Done:
        if wanted.name != user_name:
            raise ContentError(f"Nothing was erased: type the name {user_name} to erase it.")
        former = erasure.erase_user(session, console.caller, user_name).name
        return _address(former), Notice(f"This account is {former} from now on.")

    sent = {"name": form.get("erased_name", "").strip()}
    page = renamed(partial(_one, console, user_name), name="erased_name")
    return console.submit(UserErasure, sent, change, page)


def _change(
    user_name: str,
    console: Console,
    asked: dict[str, Any],
    done: str,
    *,
    typed: Fields | None = None,
) -> Response:
    def change(session: Session, wanted: UserChange) -> Done:
        users.change_user(session, console.caller, user_name, wanted)
        return _address(user_name), Notice(f"{user_name} is {done}.")

    return console.submit(UserChange, asked, change, partial(_one, console, user_name, typed=typed))


def _address(user_name: str) -> str:
    return f"{ADDRESS}/{quote(user_name, safe='')}"


def _list(
    console: Console, typed: Fields, *, only: UserFilter | None = None, **wrong: Any
) -> HTMLResponse:
    asked = only or UserFilter()
    with console.services.database.read() as session:
        found = users.list_users(
            session, by=console.caller, limit=PAGE + 1, after=asked.after, search=asked.q
        )
        erasures = erasure.erasures_asked(session)
        organisations = users.list_organisations(session)
    filters = asked.model_dump(exclude={"after"}, exclude_none=True)
    next_page = None
    if len(found) > PAGE:
        next_page = f"{ADDRESS}?{urlencode(filters | {'after': found[PAGE - 1].name})}"
    return console.page(
        "users.html",
        typed=typed,
        users=found[:PAGE],
        erasures=erasures,
        organisations=organisations,
        organisation_choices=_choices(organisations),
        roles=ROLE_CHOICES,
        filters=filters,
        next_page=next_page,
        **wrong,
    )


def _one(
    console: Console, user_name: str, *, typed: Fields | None = None, **wrong: Any
) -> HTMLResponse:
    with console.services.database.read() as session:
        user = users.read_user(session, user_name, by=console.caller)
        asked = erasure.asked_at(session, user_name)
        organisations = users.list_organisations(session)
        found = list_visible_tokens(session, console.caller, user_name=user_name)
        tokens = [token_row(token) for token in found]
    changed = {"display_name", "role", "organisation", "email"}
    kept = user.model_dump(include=changed)
    return console.page(
        "user.html",
        typed=typed or kept,
        user=user,
        tokens=tokens,
        organisation_choices=_choices(organisations),
        roles=ROLE_CHOICES,
        address=_address(user_name),
        asks_erasure_since=asked,
        is_self=user.id == console.caller.user_id,
        **wrong,
    )


def _choices(organisations: list[OrganisationView]) -> list[tuple[str, str]]:
    return [("", "none"), *((item.name, item.name) for item in organisations)]
