"""Submit from the browser: choose files, read every problem or a preview, then send."""

import secrets
from typing import Any
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, RedirectResponse, Response
from starlette.datastructures import FormData

from finishline.rules.errors import RuleError
from finishline.rules.trainings.package import MOST_FILES
from server.base.errors import ContentError, ServerError, problem_of
from server.base.forms import with_form
from server.boards.submissions import SubmissionPreview, preview_submission
from server.pages.chosen_files import EXPECTED, chosen_form
from server.pages.console_page import Console, SubmitterDep
from server.people.callers import require_same_origin
from server.submissions.accept import accept
from server.submissions.code import offered_hosts
from server.submissions.upload import read_upload

router = APIRouter(include_in_schema=False)
ADDRESS = "/submit"
FIELDS = ("benchmark", "division", "hardware_class", "key")


@router.get(ADDRESS)
def choose_files(console: SubmitterDep, benchmark: str = "") -> HTMLResponse:
    """The form: files or a folder, and the choices that files of some kinds need."""
    return _page(console, {"benchmark": benchmark})


@router.post(ADDRESS)
async def check_or_send(request: Request, console: SubmitterDep) -> Response:
    """Check the chosen files and show every problem or a preview; with `send` store them."""
    most = max(MOST_FILES, console.services.settings.max_log_files) + 3
    return await with_form(
        request, lambda form: _answer(request, console, form), max_files=most, parts=EXPECTED
    )


def _answer(request: Request, console: Console, form: FormData) -> Response:
    services, caller = console.services, console.caller
    require_same_origin(request, services.settings)
    typed = {name: _text(form, name) for name in FIELDS}
    try:
        with read_upload(services, chosen_form(form)) as upload:
            if not _text(form, "send"):
                return _page(console, typed, found=preview_submission(services, caller, upload))
            # The same files sent twice by one form are one submission.
            key = f"{typed['key']}.{upload.sha256}"
            submission_id = accept(services, caller, upload, key=key).submission_id
    except (RuleError, ServerError) as error:
        return _page(console, typed, refusal_of(error))
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


def refusal_of(error: RuleError | ServerError) -> ServerError:
    """The error of a page that lists its problems by file, line and field."""
    if isinstance(error, ServerError):
        return error
    problems = [problem_of(one) for one in error.problems]
    return ContentError(
        "These files break rules. Mend them and choose them again.", problems=problems
    )


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""


def _page(
    console: Console,
    typed: dict[str, str],
    refusal: ServerError | None = None,
    *,
    found: SubmissionPreview | None = None,
) -> HTMLResponse:
    services = console.services
    with services.database.read(console.viewer) as session:
        hosts = offered_hosts(session, console.caller)
    benchmark = services.benchmarks.get(found.benchmark) if found is not None else None
    context: dict[str, Any] = {
        "preview": found,
        "unit": benchmark.target.unit if benchmark is not None else None,
        "time_unit": benchmark.time_unit if benchmark is not None else None,
        "title": benchmark.title if benchmark is not None else found and found.benchmark,
        "problems": refusal.problems if refusal is not None else [],
        "benchmarks": [
            ("", "as the files say"),
            *((one.benchmark_id, one.title) for one in services.benchmarks.values()),
        ],
        "hosts": [("", "the first that fits")]
        + [(name, f"{name} ({', '.join(found)})") for name, found in hosts.items()],
    }
    typed = typed | {"key": typed.get("key") or secrets.token_urlsafe(16)}
    return console.page("submit.html", typed=typed, refusal=refusal, **context)
