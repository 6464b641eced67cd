"""Changes and reads declared once: a function is the API's route and the console's form."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import wraps
from inspect import Parameter, Signature, signature
from typing import Annotated, Any, Literal, TypeVar

from fastapi import APIRouter, Depends

from server.base.database import ServicesDep
from server.people.accounts import MAY
from server.people.callers import (
    AnybodyDep,
    Caller,
    CallerDep,
    Fields,
    ViewerDep,
    require_role,
    viewer_for,
)

Role = Literal["user", "submitter", "organiser", "admin", "worker"]
CALLERS: dict[str, Any] = {
    role: Annotated[Caller, Depends(require_role(role))] for role in MAY if role != "user"
} | {"user": CallerDep}
# Arguments of a declared function from the server itself.
SUPPLIED = ("session", "caller", "services", "console", "viewer")
Declared = TypeVar("Declared", bound=Callable[..., Any])


def filled(fields: Mapping[str, str]) -> dict[str, str]:
    """Return the filled fields, without blanks around their values."""
    return {name: value.strip() for name, value in fields.items() if value.strip()}


@dataclass(frozen=True)
class Form:
    """The console's form of a change: its address, the page around it, and the words after it.

    `done` formats the change's result and its arguments, as "Token {0.id} of {body.user}", or is a
    function of both. `once` names the result's field that is shown only once. `page` is shown again
    if the change is refused, and afterwards unless `to` names another page. Outside the console a
    refusal is an error page. `renamed` maps fields of the body to their names on the page, `asked`
    arguments of the change to fields. `kept` names the fields that the page takes when it is shown
    again. `role` limits who may send it.
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


# Each form, with its change and its role.
FORMS: list[tuple[Form, Callable[..., Any], Role]] = []


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
        """Declare a change in one transaction, by its role's token or by a form.

        Without a path it has only forms. With `beside` it writes while another transaction does.
        """

        def declare(make: Declared) -> Declared:
            def change(_services: Any, _caller: Any, **given: Any) -> Any:
                database = _services.database
                with database.write_beside() if beside else database.write() as session:
                    return call(make, given, session=session, caller=_caller, services=_services)

            if path is not None:
                run = endpoint(make, change, _services=ServicesDep, _caller=CALLERS[role])
                self.add_api_route(path, run, methods=[method], status_code=status)
            FORMS.extend((form, make, form.role or role) for form in forms)
            return make

        return declare

    def read(
        self, path: str, *, role: Role | None = None, to_all: bool = False, **route: Any
    ) -> Callable[[Declared], Declared]:
        """Declare a read that hides others' rows, or with `to_all` shows everybody the same."""
        reader = CALLERS[role] if role is not None else AnybodyDep if to_all else ViewerDep

        def declare(find: Declared) -> Declared:
            def look_up(_services: Any, _reader: Any, **given: Any) -> Any:
                viewer = _reader if role is None else viewer_for(_reader)
                known = {"caller": _reader, "viewer": viewer, "services": _services}
                with _services.database.read(viewer) as session:
                    return call(find, given, session=session, **known)

            run = endpoint(find, look_up, _services=ServicesDep, _reader=reader)
            self.add_api_route(path, run, methods=["GET"], **route)
            return find

        return declare


def call(declared: Callable[..., Any], given: Mapping[str, Any], **known: Any) -> Any:
    """Call a declared function with its request, and with the known values it takes."""
    takes = signature(declared).parameters
    return declared(**given, **{name: each for name, each in known.items() if name in takes})


def endpoint(
    declared: Callable[..., Any],
    run: Callable[..., Any],
    *,
    answer: Any = None,
    without: Collection[str] = (),
    **supplied: Any,
) -> Any:
    """Make FastAPI's endpoint of `run`, with the name and words of a declared function.

    It takes `supplied` dependencies and the function's arguments of a request, `without` some.
    """
    own = signature(declared)
    takes = [
        *(
            Parameter(name, Parameter.KEYWORD_ONLY, annotation=kind)
            for name, kind in supplied.items()
        ),
        *(
            each.replace(kind=Parameter.KEYWORD_ONLY)
            for name, each in own.parameters.items()
            if name not in SUPPLIED and name not in without
        ),
    ]
    made = wraps(declared)(run)
    returned = answer or own.return_annotation
    made.__signature__ = Signature(takes, return_annotation=returned)  # type: ignore[attr-defined]
    return made
