"""Changes and reads declared once: a function is the API's route and the console's form."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Any, Literal, TypeVar
from urllib.parse import quote

from fastapi import APIRouter
from pydantic import BaseModel

from server.base.services import ServicesDep
from server.people.callers import (
    AdminDep,
    AnybodyDep,
    Caller,
    CallerDep,
    Fields,
    OrganiserDep,
    SubmitterDep,
    ViewerDep,
    WorkerDep,
    viewer_for,
)

Role = Literal["user", "submitter", "organiser", "admin", "worker"]
CALLERS: dict[Role, Any] = {
    "user": CallerDep,
    "submitter": SubmitterDep,
    "organiser": OrganiserDep,
    "admin": AdminDep,
    "worker": WorkerDep,
}
# Arguments of a declared function that no request carries.
SUPPLIED = ("session", "caller", "services", "console", "viewer")
Declared = TypeVar("Declared", bound=Callable[..., Any])
Given = dict[str, Any]


def filled(fields: Mapping[str, str]) -> dict[str, str]:
    """The fields somebody filled in, without blanks around them."""
    return {name: value.strip() for name, value in fields.items() if value.strip()}


@dataclass(frozen=True)
class Form:
    """The console's form of a change: its address, the page around it, and the words after it.

    `done` is a format of the change's result and its arguments, as "Token {0.id} of {body.user}",
    or a function of both. Without it there are no words. `once` names the field of the result that
    is shown only once. `page` is shown again if the change is refused, and afterwards unless `to`
    names another one. On a page that is not the console's, a refusal is an error of its own.
    `renamed` has the names on the page of fields that the body calls otherwise, `asked` the fields
    that are arguments of the change, and `kept` those that the page takes when it is shown again.
    `role` is who may send it, if fewer than may make the change.
    """

    address: str
    done: str | Callable[..., str] = ""
    page: str = ""
    to: str = ""
    once: str | None = None
    read: Callable[[Fields], Mapping[str, Any]] = filled
    renamed: Mapping[str, str] = field(default_factory=dict)
    asked: Mapping[str, str] = field(default_factory=dict)
    kept: tuple[str, ...] = ()
    role: Role | None = None

    def words(self, made: Any, given: Given) -> str:
        """The sentence that tells of the change."""
        if callable(self.done):
            return self.done(made, **given)
        return self.done.format(made, **given)

    def next_page(self, made: Any, given: Given) -> str:
        """The address to go to once the change is made."""
        return quote((self.to or self.page or self.address).format(made, **given))


@dataclass(frozen=True)
class Change:
    """A declared change: its function, its role, and its form."""

    make: Callable[..., Any]
    role: Role
    form: Form

    @property
    def body(self) -> type[BaseModel] | None:
        """The model of its body, None without one that its form fills in."""
        given = signature(self.make).parameters.get("body")
        return None if given is None or given.default is None else given.annotation


CHANGES: list[Change] = []


class Routes(APIRouter):
    """Routes of the API below one tag, from functions of a session, a caller, and a request."""

    def command(
        self,
        path: str | None,
        *forms: Form,
        role: Role,
        method: str = "POST",
        status: int = 200,
        beside: bool = False,
    ) -> Callable[[Declared], Declared]:
        """Declare a change: one transaction writes it, by its role's token or by one of its forms.

        Without a path the API has none. With `beside` it writes while another transaction does.
        """

        def declare(make: Declared) -> Declared:
            if path is not None:
                run = _changing(make, role, beside)
                self.add_api_route(path, run, methods=[method], status_code=status)
            CHANGES.extend(Change(make, role, form) for form in forms)
            return make

        return declare

    def read(
        self, path: str, *, role: Role | None = None, to_all: bool = False, **route: Any
    ) -> Callable[[Declared], Declared]:
        """Declare a read, of one session that hides from its caller the rows of others.

        With `to_all` it shows the same to everybody.
        """

        def declare(find: Declared) -> Declared:
            self.add_api_route(path, _reading(find, role, to_all), methods=["GET"], **route)
            return find

        return declare


def requested(make: Callable[..., Any]) -> list[Parameter]:
    """The arguments of a declared function that a request carries."""
    return [each for each in signature(make).parameters.values() if each.name not in SUPPLIED]


def call(declared: Callable[..., Any], given: Given, **known: Any) -> Any:
    """Call a declared function with its request, and with those known values that it takes."""
    takes = signature(declared).parameters
    return declared(**given, **{name: each for name, each in known.items() if name in takes})


def supplied(name: str, annotation: Any) -> Parameter:
    """An argument that FastAPI supplies."""
    return Parameter(name, Parameter.KEYWORD_ONLY, annotation=annotation)


def endpoint(
    run: Callable[..., Any], takes: list[Parameter], answer: Any, of: Callable[..., Any]
) -> Any:
    """A function as FastAPI's endpoint, with the name and words of a declared function."""
    named = [each.replace(kind=Parameter.KEYWORD_ONLY) for each in takes]
    made = wraps(of)(run)
    made.__signature__ = Signature(named, return_annotation=answer)  # type: ignore[attr-defined]
    return made


def _changing(make: Callable[..., Any], role: Role, beside: bool) -> Any:
    def change(_services: Any, _caller: Caller, **given: Any) -> Any:
        database = _services.database
        with database.write_beside() if beside else database.write() as session:
            return call(make, given, session=session, caller=_caller, services=_services)

    own = [supplied("_services", ServicesDep), supplied("_caller", CALLERS[role])]
    return endpoint(change, own + requested(make), signature(make).return_annotation, make)


def _reading(find: Callable[..., Any], role: Role | None, to_all: bool) -> Any:
    def look_up(_services: Any, _reader: Any, **given: Any) -> Any:
        viewer = _reader if role is None else viewer_for(_reader)
        with _services.database.read(viewer) as session:
            return call(
                find, given, session=session, caller=_reader, viewer=viewer, services=_services
            )

    unknown = AnybodyDep if to_all else ViewerDep
    reader = supplied("_reader", unknown if role is None else CALLERS[role])
    own = [supplied("_services", ServicesDep), reader]
    return endpoint(look_up, own + requested(find), signature(find).return_annotation, find)
