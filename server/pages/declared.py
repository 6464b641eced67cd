"""Pages declared once, and the forms of the changes that are made on those of the console."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from inspect import Parameter, signature
from typing import Any, TypeVar

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel

from server.base.errors import ContentError, ServerError
from server.base.services import Services, ServicesDep
from server.base.visibility import Viewer
from server.pages.console_page import (
    REQUIRED,
    AdminDep,
    AnyoneDep,
    Console,
    Errors,
    OrganiserDep,
    SubmitterDep,
    read_form,
)
from server.people.callers import AnybodyDep, FormDep, Notice, ViewerDep
from server.people.declared import CHANGES, Change, Role, call, endpoint, requested, supplied
from web.render import render

CONSOLES: dict[Role, Any] = {
    "user": AnyoneDep,
    "submitter": SubmitterDep,
    "organiser": OrganiserDep,
    "admin": AdminDep,
}
# What a page shows. A response of its own is sent as it is.
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
        """Render it. Of `given` it takes its own arguments; the others have their defaults."""
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
    `refusal` what is wrong with the query.
    """

    def declare(find: Declared) -> Declared:
        PAGES[address] = Page(template, role, find)
        return find

    return declare


def public_page(
    address: str, template: str, *, to_all: bool = False
) -> Callable[[Declared], Declared]:
    """Declare a page that anybody may open: a function of a session and the page's query.

    It shows a viewer what they may see, or with `to_all` to everybody the same.
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
    """What is wrong with a form whose page is not shown again."""
    told = [f"{name.replace('_', ' ').capitalize()}: {words}" for name, words in errors.items()]
    return " ".join(["Nothing was changed.", *told])
