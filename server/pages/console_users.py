"""Users and organisations in the console, for admins."""

from typing import Any
from urllib.parse import quote, urlencode

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from pydantic import BaseModel, ConfigDict, Field

from server.base.errors import ServerError
from server.base.services import Services, ServicesDep
from server.pages.console_account import token_row
from server.pages.console_page import console_page, filled, go_on, read_form, read_query
from server.people import users
from server.people.accounts import ROLES
from server.people.schemas import OrganisationCreate, OrganisationView, UserChange, UserCreate
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import AdminConsoleDep, Fields, FormDep
from server.people.token_issue import list_visible_tokens

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
def users_page(request: Request, services: ServicesDep, signed_in: AdminConsoleDep) -> HTMLResponse:
    """Users by name, organisations, and the forms that add to them."""
    only = read_query(UserFilter, request)
    return _list(services, signed_in, {"role": "submitter"}, only=only)


@router.post(ADDRESS)
def add_user(services: ServicesDep, signed_in: AdminConsoleDep, form: FormDep) -> Response:
    """Make an account."""
    wanted, errors = read_form(UserCreate, filled(form))
    if wanted is None:
        return _list(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            users.create_user(session, signed_in.caller, wanted)
    except ServerError as error:
        return _list(services, signed_in, form, refusal=error)
    return go_on(services, signed_in, _address(wanted.name), Notice(f"{wanted.name} is added."))


@router.post("/console/organisations")
def add_organisation(services: ServicesDep, signed_in: AdminConsoleDep, form: FormDep) -> Response:
    """Add an organisation."""
    name = form.get("organisation_name", "").strip()
    wanted, errors = read_form(OrganisationCreate, {"name": name})
    if wanted is None:
        return _list(services, signed_in, form, errors={"organisation_name": errors["name"]})
    try:
        with services.database.write() as session:
            users.create_organisation(session, signed_in.caller, wanted.name)
    except ServerError as error:
        return _list(services, signed_in, form, refusal=error)
    return go_on(services, signed_in, ADDRESS, Notice(f"{wanted.name} is added."))


@router.get(ADDRESS + "/{user_name}")
def user_page(user_name: str, services: ServicesDep, signed_in: AdminConsoleDep) -> HTMLResponse:
    """One user, their tokens, and the form that changes them."""
    return _one(services, signed_in, user_name)


@router.post(ADDRESS + "/{user_name}")
def change_user(
    user_name: str, services: ServicesDep, signed_in: AdminConsoleDep, form: FormDep
) -> Response:
    """Change role, organisation and e-mail; an empty field removes its value."""
    fields = filled(form)
    asked = {name: fields.get(name) for name in ("role", "organisation", "email")}
    return _change(user_name, services, signed_in, asked, f"{user_name} is changed.", typed=form)


@router.post(ADDRESS + "/{user_name}/disable")
def disable(
    user_name: str, services: ServicesDep, signed_in: AdminConsoleDep, _form: FormDep
) -> Response:
    """End a user's sessions and have their tokens refused."""
    return _change(user_name, services, signed_in, {"disabled": True}, f"{user_name} is disabled.")


@router.post(ADDRESS + "/{user_name}/enable")
def enable(
    user_name: str, services: ServicesDep, signed_in: AdminConsoleDep, _form: FormDep
) -> Response:
    """Have a user's tokens accepted again."""
    return _change(user_name, services, signed_in, {"disabled": False}, f"{user_name} is enabled.")


def _change(
    user_name: str,
    services: Services,
    signed_in: SignedIn,
    asked: dict[str, Any],
    told: str,
    *,
    typed: Fields | None = None,
) -> Response:
    change, errors = read_form(UserChange, asked)
    if change is None:
        return _one(services, signed_in, user_name, typed=typed, errors=errors)
    try:
        with services.database.write() as session:
            users.change_user(session, signed_in.caller, user_name, change)
    except ServerError as error:
        return _one(services, signed_in, user_name, typed=typed, refusal=error)
    return go_on(services, signed_in, _address(user_name), Notice(told))


def _address(user_name: str) -> str:
    return f"{ADDRESS}/{quote(user_name, safe='')}"


def _list(
    services: Services,
    signed_in: SignedIn,
    typed: Fields,
    *,
    only: UserFilter | None = None,
    **wrong: Any,
) -> HTMLResponse:
    asked = only or UserFilter()
    with services.database.read() as session:
        found = users.list_users(session, limit=PAGE + 1, after=asked.after, search=asked.q)
        organisations = users.list_organisations(session)
    filters = asked.model_dump(exclude={"after"}, exclude_none=True)
    next_page = None
    if len(found) > PAGE:
        next_page = f"{ADDRESS}?{urlencode(filters | {'after': found[PAGE - 1].name})}"
    return console_page(
        services,
        signed_in,
        "users.html",
        typed=typed,
        users=[user.model_dump(mode="json") for user in found[:PAGE]],
        organisations=[item.model_dump(mode="json") for item in organisations],
        organisation_choices=_choices(organisations),
        roles=ROLE_CHOICES,
        filters=filters,
        next_page=next_page,
        **wrong,
    )


def _one(
    services: Services,
    signed_in: SignedIn,
    user_name: str,
    *,
    typed: Fields | None = None,
    **wrong: Any,
) -> HTMLResponse:
    with services.database.read() as session:
        user = users.read_user(session, user_name)
        organisations = users.list_organisations(session)
        found = list_visible_tokens(session, signed_in.caller, user_name=user_name)
        tokens = [token_row(token) for token in found]
    kept = {"role": user.role, "organisation": user.organisation, "email": user.email}
    return console_page(
        services,
        signed_in,
        "user.html",
        typed=typed or kept,
        user=user.model_dump(mode="json"),
        tokens=tokens,
        organisation_choices=_choices(organisations),
        roles=ROLE_CHOICES,
        address=_address(user_name),
        is_self=user.id == signed_in.caller.user_id,
        **wrong,
    )


def _choices(organisations: list[OrganisationView]) -> list[tuple[str, str]]:
    return [("", "none"), *((item.name, item.name) for item in organisations)]
