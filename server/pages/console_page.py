"""Every page of the console: who is signed in, notices told once, errors, form fields."""

from collections.abc import Mapping
from typing import Any, TypeVar

from fastapi import Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from server.base.errors import ServerError
from server.base.services import Services
from server.people.sessions import Notice, SignedIn, csrf_token, leave_notice, take_notices
from web.render import render

T = TypeVar("T", bound=BaseModel)
Errors = dict[str, str]
NUMBERS = {
    "int_parsing": "Expected a whole number.",
    "int_from_float": "Expected a whole number.",
    "float_parsing": "Expected a number.",
}
MISSING = ("missing", "string_too_short", "string_pattern_mismatch", "too_short")


def filled(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields somebody filled in, without blanks around them."""
    return {name: value.strip() for name, value in fields.items() if value.strip()}


def read_query(schema: type[T], request: Request) -> T:
    """Validate the query of a page. Raises RequestValidationError naming each wrong field."""
    try:
        return schema.model_validate(filled(request.query_params))
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
        return "Fill this in."
    if item["type"] == "missing":
        return "Fill this in."
    if item["type"] in NUMBERS:
        return NUMBERS[item["type"]]
    message = item["msg"].removeprefix("Value error, ").removeprefix("Input ")
    return message[:1].upper() + message[1:].rstrip(".") + "."


def console_page(
    services: Services,
    signed_in: SignedIn,
    template: str,
    *,
    typed: Mapping[str, Any] | None = None,
    errors: Errors | None = None,
    refusal: ServerError | None = None,
    **context: Any,
) -> HTMLResponse:
    """Render a page of the console; with `errors` or a `refusal` after a form changed nothing.

    `typed` has the values of the form's fields, as typed before or as proposed.
    """
    status = refusal.status if refusal is not None else 422 if errors else 200
    page = render(
        f"console/{template}",
        account={"name": signed_in.caller.name, "role": signed_in.caller.role},
        csrf=csrf_token(signed_in.secret),
        notices=_notices(services, signed_in),
        typed=dict(typed or {}),
        errors=errors or {},
        refusal=refusal.detail if refusal is not None else None,
        **context,
    )
    return HTMLResponse(page, status_code=status)


def _notices(services: Services, signed_in: SignedIn) -> list[dict[str, Any]]:
    if not signed_in.has_notices:
        return []
    with services.database.write() as session:
        return [vars(notice) for notice in take_notices(session, signed_in.secret)]


def go_on(
    services: Services, signed_in: SignedIn, address: str, notice: Notice
) -> RedirectResponse:
    """Redirect to the page that shows a form's change, with a notice to show once."""
    with services.database.write() as session:
        leave_notice(session, signed_in.secret, notice)
    return RedirectResponse(address, status_code=303)
