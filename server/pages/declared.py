"""Pages and forms of the console declared once, and a visit to one of them."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Annotated, Any, TypeVar

from fastapi import APIRouter, Depends, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails, to_jsonable_python
from sqlalchemy.orm import Session

from server.base.error_answers import message_of
from server.base.errors import ContentError, ServerError
from server.base.services import Services, ServicesDep, site_address
from server.base.visibility import Viewer
from server.people.accounts import ORGANISERS, ROLES, SUBMITTERS
from server.people.callers import (
    AnybodyDep,
    Caller,
    FormDep,
    Notice,
    SignedIn,
    SignedInDep,
    ViewerDep,
    leave_notice,
    require_one_of,
    take_notice,
    viewer_for,
)
from server.people.declared import (
    CHANGES,
    Change,
    Role,
    call,
    endpoint,
    filled,
    requested,
    supplied,
)
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
        """Call a declared function with its request, and the parts of this visit that it takes."""
        known = {"session": session, "caller": self.caller, "services": self.services}
        return call(declared, dict(given), **known, console=self)

    def page(
        self,
        template: str,
        *,
        typed: Mapping[str, Any] | None = None,
        errors: Errors | None = None,
        refusal: ServerError | None = None,
        notice: Notice | None = None,
        status: int = 200,
        **context: Any,
    ) -> HTMLResponse:
        """Render a page. With `errors` or a `refusal` after a form changed nothing.

        `typed` has the values of the form's fields, as typed before or as proposed. Models in the
        context become plain values.
        """
        status = refusal.status if refusal is not None else 422 if errors else status
        context = {"problems": [] if refusal is None else refusal.problems} | context
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
    """Validate a form. For an invalid one return None and a message for each wrong field."""
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


CONSOLES: dict[Role, Any] = {
    "user": AnyoneDep,
    "submitter": SubmitterDep,
    "organiser": OrganiserDep,
    "admin": AdminDep,
}
# Context of a template. A response of its own is sent as it is.
Context = dict[str, Any]
Declared = TypeVar("Declared", bound=Callable[..., Context | Response])


def plain(value: Any) -> Any:
    """A value for a template: models become dictionaries, wherever they are in lists of it."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, dict):
        return {name: plain(each) for name, each in value.items()}
    return value


@dataclass(frozen=True)
class Page:
    """A page of the console: its template, and the function that returns what it shows."""

    template: str
    role: Role
    find: Callable[..., Any]

    def show(self, console: Console, given: Context, **shown: Any) -> Response:
        """Render it. Of `given` it takes its own arguments. The others have their defaults."""
        takes = signature(self.find).parameters
        own = {name: value for name, value in given.items() if name in takes}
        with console.services.database.read(console.viewer) as session:
            context = console.call(self.find, session, own)
        if isinstance(context, Response):
            return context
        return console.page(self.template, **(context | shown))


PAGES: dict[str, Page] = {}
PUBLIC: dict[str, Any] = {}


def page(address: str, template: str, *, role: Role) -> Callable[[Declared], Declared]:
    """Declare a page: a function of a session, a caller or console, and the page's query.

    It returns what the template shows. `typed` are the values that its forms propose, `errors` and
    `refusal` the problems of the query.
    """

    def declare(find: Declared) -> Declared:
        PAGES[address] = Page(template, role, find)
        return find

    return declare


def public_page(
    address: str, template: str, *, to_all: bool = False
) -> Callable[[Declared], Declared]:
    """Declare a page that anybody may open: a function of a session and the page's query.

    It shows the rows that its viewer may see, or with `to_all` to everybody the same.
    """

    def declare(find: Declared) -> Declared:
        PUBLIC[address] = _open(
            template, find, supplied("_viewer", AnybodyDep if to_all else ViewerDep)
        )
        return find

    return declare


def _open(template: str, find: Callable[..., Any], viewer: Parameter) -> Any:
    def look(_services: Services, _viewer: Viewer, **given: Any) -> Response:
        with _services.database.read(_viewer) as session:
            found = call(find, given, session=session, services=_services, viewer=_viewer)
        if isinstance(found, Response):
            return found
        status = found.pop("status", 200)
        return HTMLResponse(render(template, **plain(found)), status_code=status)

    return endpoint(
        look, [supplied("_services", ServicesDep), viewer, *requested(find)], Response, find
    )


def choices(names: Sequence[str], *, none: bool = False) -> list[tuple[str, str]]:
    """Names as a form's choices, after an empty one if there may be none."""
    return [*([("", "none")] if none else []), *((name, name) for name in names)]


def routes() -> APIRouter:
    """The routes of every declared page, and of every form of a change."""
    router = APIRouter(include_in_schema=False)
    every = PUBLIC | {address: _get(shown) for address, shown in PAGES.items()}
    for address, look in sorted(every.items()):  # "{" comes after letters: "/new" before "/{id}".
        router.add_api_route(address, look, response_class=HTMLResponse)
    for change in sorted(CHANGES, key=lambda change: change.form.address):
        router.add_api_route(change.form.address, _post(change), methods=["POST"])
    return router


def _get(shown: Page) -> Any:
    def look(_console: Console, **given: Any) -> Response:
        return shown.show(_console, given)

    console = supplied("_console", CONSOLES[shown.role])
    return endpoint(look, [console, *requested(shown.find)], Response, shown.find)


def _post(change: Change) -> Any:
    form = change.form
    around = PAGES.get(form.page or form.address)

    def send(_console: Console, _sent: dict[str, str], **given: Any) -> Response:
        chosen = {each: _sent.get(each, "").strip() for each in (*form.asked.values(), *form.kept)}
        arguments = given | {name: chosen[each] for name, each in form.asked.items()}
        errors = {each: REQUIRED for each in form.asked.values() if not chosen[each]}

        def again(
            errors: Errors | None = None, refusal: ServerError | None = None, **shown: Any
        ) -> Response:
            if around is None:
                raise refusal or ContentError(_faults(errors or {}))
            shown |= {"errors": errors} if errors else {}
            shown |= {"refusal": refusal} if refusal is not None else {}
            return around.show(_console, arguments | chosen, typed=_sent, **shown)

        if change.body is not None:
            named = {form.renamed.get(name, name): name for name in change.body.model_fields}
            fields = {named.get(name, name): text for name, text in _sent.items()}
            arguments["body"], wrong = read_form(change.body, form.read(fields))
            errors |= {form.renamed.get(name, name): text for name, text in wrong.items()}
        if errors:
            return again(errors=errors)
        try:
            with _console.services.database.write() as session:
                made = _console.call(change.make, session, arguments)
        except ServerError as error:
            return again(refusal=error)
        words, address = form.words(made, arguments), form.next_page(made, arguments)
        if form.once is not None:
            return again(notice=Notice(words, once_only=getattr(made, form.once)))
        if not words:
            return RedirectResponse(address, status_code=303)
        return _console.go_on(address, Notice(words))

    console = supplied("_console", CONSOLES[form.role or change.role])
    takes = [console, supplied("_sent", FormDep)]
    known = {"body", *form.asked}
    takes += [each for each in requested(change.make) if each.name not in known]
    return endpoint(send, takes, Response, change.make)


def _faults(errors: Errors) -> str:
    """Problems of a form whose page is not shown again."""
    told = [f"{name.replace('_', ' ').capitalize()}: {words}" for name, words in errors.items()]
    return " ".join(["Nothing was changed.", *told])
