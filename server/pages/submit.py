"""Submit from the browser: choose files, read every problem or a preview, then send."""

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
from server.people.sessions import require_same_origin
from server.people.signed_in import FormDep
from server.submissions.accept import accept
from server.submissions.drafts import drop_draft, keep_draft, open_draft
from server.submissions.packages import offered_hosts
from server.submissions.service import id_under_key
from server.submissions.upload import read_upload

router = APIRouter(include_in_schema=False)
ADDRESS = "/submit"
SEND = ADDRESS + "/send"
FIELDS = ("benchmark", "division", "hardware_class")


@router.get(ADDRESS)
def choose_files(console: SubmitterDep, benchmark: str = "") -> HTMLResponse:
    """The form: files or a folder, and the choices that files of some kinds need."""
    return _page(console, {"benchmark": benchmark})


@router.post(ADDRESS)
async def check_files(request: Request, console: SubmitterDep) -> Response:
    """Check the chosen files: every problem, or a preview with the button that sends them."""
    most = max(MOST_FILES, console.services.settings.max_log_files) + 3
    return await with_form(
        request, lambda form: _check(request, console, form), max_files=most, parts=EXPECTED
    )


def _check(request: Request, console: Console, form: FormData) -> Response:
    require_same_origin(request, console.services.settings)
    typed = {name: _text(form, name) for name in FIELDS}
    try:
        chosen = chosen_form(form)
        with read_upload(console.services, chosen) as upload:
            found = preview_submission(console.services, console.caller, upload)
    except (RuleError, ServerError) as error:
        return _page(console, typed, refusal_of(error))
    code = keep_draft(console.services.artifacts, console.caller.user_id, chosen)
    return _page(console, typed, found=found, draft=code)


@router.post(SEND)
def send(console: SubmitterDep, form: FormDep) -> Response:
    """Send the files of a preview; on to the submission. Sent twice they are one submission."""
    services, code = console.services, form.get("draft", "")
    with services.database.read_columns() as connection:
        submission_id = id_under_key(connection, console.caller.user_id, code)
    try:
        submission_id = submission_id or _send(console, code)
    except (RuleError, ServerError) as error:
        return _page(console, {}, refusal_of(error))
    drop_draft(services.artifacts, console.caller.user_id, code)
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


def _send(console: Console, code: str) -> str:
    """Store a draft under its code as idempotency key; returns the submission's id."""
    services, caller = console.services, console.caller
    with (
        open_draft(services.artifacts, caller.user_id, code) as form,
        read_upload(services, form) as upload,
    ):
        return accept(services, caller, upload, key=code).submission_id


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
    draft: str = "",
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
        "draft": draft,
        "problems": refusal.problems if refusal is not None else [],
        "benchmarks": [
            ("", "as the files say"),
            *((one.benchmark_id, one.title) for one in services.benchmarks.values()),
        ],
        "hosts": [("", "the first that fits")]
        + [(name, f"{name} ({', '.join(found)})") for name, found in hosts.items()],
    }
    return console.page("submit.html", typed=typed, refusal=refusal, **context)
