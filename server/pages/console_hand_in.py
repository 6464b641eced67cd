"""Hand in a training package from the browser: its files, where to be measured, every problem."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData, UploadFile

from finishline.rules.errors import RuleError
from finishline.rules.trainings.package import MOST_FILES, is_left_out
from finishline.rules.trainings.policy import LARGEST_PACKAGE_BYTES
from server.base.errors import ContentError, ServerError
from server.base.forms import read_form
from server.pages.console_notices import SubmitterDep
from server.pages.console_page import Console
from server.people.sessions import CSRF_FIELD, require_csrf, require_same_origin
from server.submissions.accept import Repeated
from server.submissions.package_endpoints import PARTS
from server.submissions.packages import hand_in, offered_hosts

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/hand-in"


@router.get(ADDRESS)
def choose_files(console: SubmitterDep) -> HTMLResponse:
    """The form: a folder or files, and the hardware class to be measured on."""
    return _page(console)


@router.post(ADDRESS)
async def send_files(request: Request, console: SubmitterDep) -> Response:
    """Hand in the chosen files; on to the entry's page, or every problem of the package."""
    form = await read_form(request, max_files=MOST_FILES + 1, parts=PARTS)
    try:
        return await run_in_threadpool(_send, request, console, form)
    finally:
        await form.close()


def _send(request: Request, console: Console, form: FormData) -> Response:
    require_same_origin(request, console.services.settings)
    require_csrf(console.signed_in.secret, _text(form, CSRF_FIELD))
    hardware_class = _text(form, "hardware_class")
    try:
        files = _files(form)
        found = hand_in(
            console.services, console.caller, files, hardware_class=hardware_class or None
        )
    except RuleError as error:
        problems = [_problem(each) for each in error.problems]
        refusal = ContentError("The package breaks these rules.", problems=problems)
        return _page(console, refusal, hardware_class)
    except ServerError as error:
        return _page(console, error, hardware_class)
    submission_id = found.submission_id if isinstance(found, Repeated) else found
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _files(form: FormData) -> dict[str, bytes]:
    """The files of both fields by their names in the package.

    A folder's files come with its own name before theirs. Raises ContentError.
    """
    found: dict[str, bytes] = {}
    for part in (*form.getlist("folder"), *form.getlist("files")):
        if not isinstance(part, UploadFile) or not part.filename:
            continue  # A field in which nothing was chosen.
        name = _name_in_package(part.filename)
        if name is None:
            continue
        if name in found:
            raise ContentError(f"{name} was chosen twice: choose the folder, or its files.")
        found[name] = part.file.read(LARGEST_PACKAGE_BYTES + 1)
    if not found:
        raise ContentError("Choose the package's folder, or its files, training.toml among them.")
    return found


def _name_in_package(sent: str) -> str | None:
    """A file's name below its folder; None for one that no package has, such as a cache."""
    parts = PurePosixPath(sent.replace("\\", "/")).parts
    inside = parts[1:] if len(parts) > 1 else parts
    if any(map(is_left_out, inside)):
        return None
    return "/".join(inside)


def _problem(error: RuleError) -> dict[str, Any]:
    names = ("file", "line", "field", "message", "expected")
    return {name: getattr(error, name) for name in names}


def _page(
    console: Console, refusal: ServerError | None = None, hardware_class: str = ""
) -> HTMLResponse:
    with console.services.database.read(console.viewer) as session:
        hosts = offered_hosts(session, console.caller)
    return console.page(
        "hand_in.html",
        typed={"hardware_class": hardware_class},
        refusal=refusal,
        problems=refusal.problems if refusal is not None else [],
        hosts=[("", "the first that has its environment"), *_choices(hosts.items())],
        has_hosts=bool(hosts),
    )


def _choices(hosts: Any) -> Sequence[tuple[str, str]]:
    return [(name, f"{name} ({', '.join(found)})") for name, found in hosts]
