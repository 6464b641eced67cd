"""A visit to the console: its pages, its forms, and notices shown once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, TypeVar

from fastapi import Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python
from sqlalchemy.orm import Session

from server.base.error_answers import message_of
from server.base.errors import ServerError
from server.base.services import Services, ServicesDep, site_address
from server.base.visibility import Viewer
from server.people.accounts import ORGANISERS, ROLES, SUBMITTERS
from server.people.callers import (
    Caller,
    Notice,
    SignedIn,
    SignedInDep,
    leave_notice,
    require_one_of,
    take_notice,
    viewer_for,
)
from server.people.declared import call, filled
from web.render import render

T = TypeVar("T", bound=BaseModel)
Errors = dict[str, str]
NUMBERS = {
    "int_parsing": "Expected a whole number.",
    "int_from_float": "Expected a whole number.",
    "float_parsing": "Expected a number.",
}
REQUIRED = "This field is required."
MISSING = ("missing", "string_too_short", "string_pattern_mismatch", "too_short")


@dataclass(frozen=True)
class Console:
    """A signed-in user on a page of the console."""

    services: Services
    signed_in: SignedIn
    request: Request

    @property
    def site(self) -> str:
        """The server's address."""
        return site_address(self.request, self.services.settings)

    @property
    def caller(self) -> Caller:
        """The signed-in user."""
        return self.signed_in.caller

    @property
    def viewer(self) -> Viewer:
        """The rows that the user may see."""
        return viewer_for(self.signed_in.caller)

    def call(self, declared: Callable[..., Any], session: Session, given: Mapping[str, Any]) -> Any:
        """Call a declared function with what was requested, and what of this visit it takes."""
        supplied = {"session": session, "caller": self.caller, "services": self.services}
        return call(declared, dict(given), **supplied, console=self)

    def page(
        self,
        template: str,
        *,
        typed: Mapping[str, Any] | None = None,
        errors: Errors | None = None,
        refusal: ServerError | None = None,
        notice: Notice | None = None,
        **context: Any,
    ) -> HTMLResponse:
        """Render a page; with `errors` or a `refusal` after a form changed nothing.

        `typed` has the values of the form's fields, as typed before or as proposed. Models in the
        context become plain values.
        """
        status = refusal.status if refusal is not None else 422 if errors else 200
        page = render(
            f"console/{template}",
            account={"name": self.caller.name, "role": self.caller.role},
            notice=notice or take_notice(self.request),
            site=self.site,
            typed=dict(typed or {}),
            errors=errors or {},
            refusal=refusal.told if refusal is not None else None,
            **{
                name: value if callable(value) else to_jsonable_python(value)
                for name, value in context.items()
            },
        )
        return HTMLResponse(page, status_code=status)

    def go_on(self, address: str, notice: Notice) -> RedirectResponse:
        """Redirect to the page that shows a form's change, with a notice to show once."""
        leave_notice(self.request, notice)
        return RedirectResponse(address, status_code=303)


def read_query(schema: type[T], request: Request) -> T:
    """Validate the query of a page. Raises RequestValidationError naming each wrong field.

    Unknown parameters are ignored: links get some on their way, such as `fbclid`.
    """
    typed = filled(request.query_params)
    known = {name: text for name, text in typed.items() if name in schema.model_fields}
    try:
        return schema.model_validate(known)
    except ValidationError as error:
        found = [dict(item) | {"loc": ("query", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from error


def read_form(schema: type[T], fields: Mapping[str, Any]) -> tuple[T | None, Errors]:
    """Validate a form; for an invalid one return None and a message for each wrong field."""
    try:
        return schema.model_validate(fields), {}
    except ValidationError as error:
        found: Errors = {}
        for item in error.errors():
            place = str(item["loc"][0]) if item["loc"] else "form"
            found.setdefault(place, sentence_of(item))
        return None, found


def sentence_of(item: ErrorDetails) -> str:
    """Turn a validation error into one sentence for people."""
    if item["type"] in MISSING and not str(item["input"] or "").strip():
        return REQUIRED
    if item["type"] == "missing":
        return REQUIRED
    if item["type"] in NUMBERS:
        return NUMBERS[item["type"]]
    message = message_of(item).removeprefix("Input ")
    return message[:1].upper() + message[1:].rstrip(".") + "."


def _visit(*roles: str) -> Callable[..., Console]:
    """Dependency that requires a session with a token of one of these roles."""

    def visit(services: ServicesDep, signed_in: SignedInDep, request: Request) -> Console:
        require_one_of(signed_in.caller, roles)
        return Console(services, signed_in, request)

    return visit


AnyoneDep = Annotated[Console, Depends(_visit(*ROLES))]
OrganiserDep = Annotated[Console, Depends(_visit(*ORGANISERS))]
AdminDep = Annotated[Console, Depends(_visit("admin"))]
SubmitterDep = Annotated[Console, Depends(_visit(*SUBMITTERS))]
