"""Import of a published archive in the browser: choose it, read the plan, import it."""

from collections import Counter
from datetime import date
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from pydantic import BaseModel, field_validator
from starlette.datastructures import FormData, UploadFile

from finishline.rules.archive.files import COMMIT
from server.base.errors import ContentError, ServerError
from server.base.forms import with_form
from server.pages.console_page import Console, OrganiserDep, filled, read_form
from server.people.sessions import CSRF_FIELD, require_csrf, require_same_origin
from server.people.signed_in import FormDep
from server.submissions.imports import ArchiveImport, import_part, keep_import, open_import

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/import"
EXPECTED = "Choose a folder, or a zip of it"


class Wanted(BaseModel):
    """The fields beside the archive."""

    commit: str | None = None
    published: date | None = None

    @field_validator("commit")
    @classmethod
    def _is_commit(cls, commit: str | None) -> str | None:
        if commit is not None and not COMMIT.fullmatch(commit):
            raise ValueError("expected the 40 hex digits that git rev-parse HEAD prints")
        return commit


@router.get(ADDRESS)
def choose_archive(console: OrganiserDep) -> HTMLResponse:
    """The form that takes an archive."""
    return _form_page(console)


@router.post(ADDRESS)
async def plan_import(request: Request, console: OrganiserDep) -> Response:
    """Keep an archive and go on to its plan; nothing is imported yet."""
    return await with_form(
        request, lambda form: _plan(request, console, form), max_files=1, parts=EXPECTED
    )


def _plan(request: Request, console: Console, form: FormData) -> Response:
    require_same_origin(request, console.services.settings)
    typed = {name: value for name, value in form.items() if isinstance(value, str)}
    require_csrf(console.signed_in.secret, typed.get(CSRF_FIELD, ""))
    wanted, errors = read_form(Wanted, filled(typed))
    if wanted is None:
        return _form_page(console, typed, errors=errors)
    archive = form.get("archive")
    try:
        if not isinstance(archive, UploadFile) or not archive.filename:
            raise ContentError(f"{EXPECTED}.")
        planned = keep_import(
            console.services,
            console.caller,
            archive.file,
            commit=wanted.commit,
            published=wanted.published,
        )
    except ServerError as error:
        return _form_page(console, typed, refusal=error)
    return RedirectResponse(_address(planned.code), status_code=303)


@router.get(ADDRESS + "/{import_code}")
def import_page(import_code: str, console: OrganiserDep) -> HTMLResponse:
    """The plan of an import, how far it is, or its outcome."""
    found = open_import(console.services.artifacts, console.caller, import_code)
    return console.page(
        "import.html",
        plan=found,
        is_over=found.is_over,
        counts=Counter(one.state for one in found.outcomes),
        benchmarks=_benchmarks(console, found),
        address=_address(import_code),
        typed={},
    )


@router.post(ADDRESS + "/{import_code}")
def go_on(import_code: str, console: OrganiserDep, _form: FormDep) -> Response:
    """Import the next results, for a moment; the page that follows goes on until all are done."""
    import_part(console.services, console.caller, import_code)
    return RedirectResponse(_address(import_code), status_code=303)


def _benchmarks(console: Console, found: ArchiveImport) -> list[dict[str, Any]]:
    """Each benchmark of a plan, with its results, those known and those that break rules."""
    ids = dict.fromkeys(one.benchmark or "–" for one in found.planned)
    offered = console.services.benchmarks
    rows = []
    for benchmark_id in ids:
        results = [one for one in found.planned if (one.benchmark or "–") == benchmark_id]
        rows.append(
            {
                "id": benchmark_id,
                "is_offered": benchmark_id in offered,
                "results": len(results),
                "logs": sum(len(one.logs) for one in results),
                "known": sum(one.is_known for one in results),
                "broken": sum(bool(one.problems) for one in results),
            }
        )
    return rows


def _address(code: str) -> str:
    return f"{ADDRESS}/{quote(code, safe='')}"


def _form_page(console: Console, typed: dict[str, str] | None = None, **wrong: Any) -> HTMLResponse:
    return console.page("import.html", typed=typed or {}, plan=None, **wrong)
