"""Declare each page and form of the console once, and serve them."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from inspect import signature
from operator import attrgetter
from typing import Annotated, Any, TypeVar, get_args
from urllib.parse import quote

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python

from server.base.database import Services, ServicesDep, site_address
from server.base.error_answers import message_of
from server.base.errors import ContentError, ServerError
from server.base.visibility import Viewer
from server.people.accounts import MAY
from server.people.callers import (
    AnybodyDep,
    Caller,
    FormDep,
    Notice,
    SignedInDep,
    ViewerDep,
    leave_notice,
    require,
    take_notice,
    viewer_for,
)
from server.people.declared import FORMS, Form, Role, call, endpoint, filled
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
    caller: Caller
    request: Request

    @property
    def viewer(self) -> Viewer:
        """Viewer with the rows that the user may see."""
        return viewer_for(self.caller)


def read_query(schema: type[T], request: Request) -> T:
    """Validate the query of a page. Raises RequestValidationError naming each wrong field.

    Unknown parameters are ignored, because sites add some to links, such as `fbclid`.
    """
    typed = filled(request.query_params)
    known = {name: text for name, text in typed.items() if name in schema.model_fields}
    try:
        return schema.model_validate(known)
    except ValidationError as error:
        found = [dict(item) | {"loc": ("query", *item["loc"])} for item in error.errors()]
        raise RequestValidationError(found) from error


def read_form(schema: type[T], fields: Mapping[str, Any]) -> tuple[T | None, Errors]:
    """Validate a form. An invalid one returns None and a message for each wrong field."""
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
    message = message_of(item).replace("Input should be", "Expected", 1).removeprefix("Input ")
    return message[:1].upper() + message[1:].rstrip(".") + "."


def _visit(role: str) -> Callable[..., Console]:
    def visit(services: ServicesDep, caller: SignedInDep, request: Request) -> Console:
        require(caller, role)
        return Console(services, caller, request)

    return visit


CONSOLES = {role: Annotated[Console, Depends(_visit(role))] for role in MAY}
OrganiserDep = Annotated[Console, Depends(_visit("organiser"))]
SubmitterDep = Annotated[Console, Depends(_visit("submitter"))]
# Context of a template. A page may return a response instead.
Context = dict[str, Any]
Declared = TypeVar("Declared", bound=Callable[..., Context | Response])


def plain(value: Any) -> Any:
    """Convert models to dictionaries for a template, also inside lists and dictionaries."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


@dataclass(frozen=True)
class Page:
    """A page of the console: its template, and the function that returns its context."""

    template: str
    find: Callable[..., Any]

    def show(self, console: Console, given: Context, **shown: Any) -> Response:
        """Render it. Takes its arguments from `given`, and defaults for the others.

        `typed` has the values of its forms' fields, as typed before or as proposed. `errors` or a
        `refusal` say why a form was refused.
        """
        takes = signature(self.find).parameters
        own = {name: value for name, value in given.items() if name in takes}
        request, services, caller = console.request, console.services, console.caller
        known = {"caller": caller, "services": services, "console": console}
        with services.database.read(console.viewer) as session:
            found = call(self.find, own, session=session, **known)
        if isinstance(found, Response):
            return found
        context: Context = {"typed": {}, "errors": {}, "refusal": None, "problems": []}
        context |= found | shown
        status = context.pop("status", 422 if context["errors"] else 200)
        if (refusal := context["refusal"]) is not None:
            status = refusal.status
            context |= {"problems": refusal.problems, "refusal": refusal.told}
        page = render(
            f"console/{self.template}",
            account={"name": caller.name, "role": caller.role},
            notice=context.pop("notice", None) or take_notice(request),
            site=site_address(request),
            **{
                name: value if callable(value) else to_jsonable_python(value)
                for name, value in context.items()
            },
        )
        return HTMLResponse(page, status_code=status)


PAGES: dict[str, Page] = {}
router = APIRouter(include_in_schema=False)


def page(address: str, template: str, *, role: Role) -> Callable[[Declared], Declared]:
    """Declare a page: a function of a session, a caller or console, and the page's query.

    It returns the template's context. `typed` are the values that its forms propose, `errors` and
    `refusal` the problems of the query.
    """

    def declare(find: Declared) -> Declared:
        shown = PAGES[address] = Page(template, find)

        def look(_console: Console, **given: Any) -> Response:
            return shown.show(_console, given)

        _add(address, endpoint(find, look, answer=Response, _console=CONSOLES[role]))
        return find

    return declare


def public_page(
    address: str, template: str, *, to_all: bool = False
) -> Callable[[Declared], Declared]:
    """Declare a page for anybody. With `to_all` it shows everybody the same rows."""

    def declare(find: Declared) -> Declared:
        def look(_services: Services, _viewer: Viewer, **given: Any) -> Response:
            with _services.database.read(_viewer) as session:
                found = call(find, given, session=session, services=_services, viewer=_viewer)
            if isinstance(found, Response):
                return found
            status = found.pop("status", 200)
            return HTMLResponse(render(template, **plain(found)), status_code=status)

        viewer = AnybodyDep if to_all else ViewerDep
        _add(address, endpoint(find, look, answer=Response, _services=ServicesDep, _viewer=viewer))
        return find

    return declare


def _add(address: str, look: Any) -> None:
    router.add_api_route(address, look, response_class=HTMLResponse)


def routes() -> APIRouter:
    """Return the routes of every declared page, and of every form of a change."""
    for form, make, role in FORMS:
        router.add_api_route(form.address, _posting(form, make, CONSOLES[role]), methods=["POST"])
    # "{" comes after letters: "/new" before "/{id}".
    router.routes.sort(key=attrgetter("path"))
    return router


def _posting(form: Form, make: Callable[..., Any], console: Any) -> Any:
    body = signature(make).parameters.get("body")
    # The API may leave a body out, a form sends its fields.
    model = None if body is None else next(iter(get_args(body.annotation)), body.annotation)
    on_page = form.page or form.address

    def send(_console: Console, _sent: dict[str, str], **given: Any) -> Response:
        chosen = {each: _sent.get(each, "").strip() for each in (*form.asked.values(), *form.kept)}
        arguments = given | {name: chosen[each] for name, each in form.asked.items()}

        def again(**shown: Any) -> Response:
            return PAGES[on_page].show(_console, arguments | chosen, typed=_sent, **shown)

        errors = {each: REQUIRED for each in form.asked.values() if not chosen[each]}
        if model is not None:
            named = {form.renamed.get(name, name): name for name in model.model_fields}
            fields = {named.get(name, name): text for name, text in _sent.items()}
            arguments["body"], wrong = read_form(model, form.read(fields))
            errors |= {form.renamed.get(name, name): text for name, text in wrong.items()}
        try:
            if errors and on_page not in PAGES:
                told = (f"{name.replace('_', ' ').capitalize()}: {errors[name]}" for name in errors)
                raise ContentError(" ".join(["Nothing was changed.", *told]))
            if errors:
                return again(errors=errors)
            services = _console.services
            known = {"caller": _console.caller, "services": services, "console": _console}
            with services.database.write() as session:
                made = call(make, arguments, session=session, **known)
        except ServerError as error:
            if on_page not in PAGES:
                raise
            return again(refusal=error)
        done = form.done
        words = done.format(made, **arguments) if isinstance(done, str) else done(made, **arguments)
        if form.once is not None:
            return again(notice=Notice(words, once_only=getattr(made, form.once)))
        if words:
            leave_notice(_console.request, words)
        following = (form.to or on_page).format(made, **arguments)
        return RedirectResponse(quote(following), status_code=303)

    known = {"body", *form.asked}
    return endpoint(make, send, answer=Response, without=known, _console=console, _sent=FormDep)
