"""Submit from the browser: choose files, read every problem or a preview, then send."""

import json
import secrets
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import PurePosixPath
from urllib.parse import quote

from fastapi import APIRouter, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy.orm import Session
from starlette.datastructures import FormData, UploadFile

from finishline.rules.errors import RuleError
from finishline.rules.logs import unpacked_name
from finishline.rules.submissions.claim import CLAIM_LIMIT_BYTES
from finishline.rules.text import names_text
from finishline.rules.trainings.manifest import FILE
from finishline.rules.trainings.package import MOST_FILES, is_left_out
from server.base.database import benchmarks_of
from server.base.errors import ContentError, ServerError, problem_of
from server.base.fleet import Fleet
from server.base.forms import with_form
from server.boards.submissions import preview_submission
from server.pages.declared import PAGES, Console, Context, SubmitterDep, page
from server.people.callers import Caller, require_same_origin
from server.submissions.accept import accept
from server.submissions.code import offered_hosts
from server.submissions.upload import CLAIM_FILE, read_upload

EXPECTED = (
    "Choose submission.json with its run logs, a DAWNBench JSON with its TSV, or the folder or "
    "files of a code submission, training.toml among them."
)
OF_CLAIM = ("benchmark", "division")
OF_PACKAGE = ("hardware_class",)
Chosen = Mapping[str, UploadFile]


def chosen_form(form: FormData) -> FormData:
    """Make the API's form from the chosen files. Raises ContentError."""
    files = _chosen(form)
    if FILE in files:
        parts = [("files", _renamed(file, name)) for name, file in files.items()]
        return FormData([*parts, *_texts(form, OF_PACKAGE)])
    if not any(map(_is_json, files)):
        found = f"{names_text(sorted(files))}: no {CLAIM_FILE} and no {FILE} among them. "
        raise ContentError(f"{found if files else ''}{EXPECTED}")
    claim = _claim_of(files)
    listed = _listed_runs(files[claim])
    logs = [
        ("logs", _renamed(file, name))
        for name, file in files.items()
        if name != claim
        and (listed is None or _is_listed(name, listed, files) or not _is_in_folder(file))
    ]
    return FormData([("submission", _renamed(files[claim], claim)), *logs, *_texts(form, OF_CLAIM)])


def files_of_folder(form: FormData, *, most_bytes: int) -> dict[str, bytes]:
    """Read the files of a chosen folder by their names below it, little more than `most_bytes`."""
    files: dict[str, bytes] = {}
    left = most_bytes
    for name, part in _chosen(form).items():
        files[name] = part.file.read(max(left, 0) + 1)
        left -= len(files[name])
    return files


def _chosen(form: FormData) -> dict[str, UploadFile]:
    """Collect the files of both fields by their names below their folder.

    `paths`, a line for each file, has the names of files that were dropped. Raises ContentError.
    """
    found: dict[str, UploadFile] = {}
    parts = _files(form, "files")
    paths = str(form.get("paths") or "").splitlines()
    if len(paths) == len(parts):
        parts = [_renamed(part, path) for part, path in zip(parts, paths, strict=True)]
    for part in (*_files(form, "folder"), *parts):
        name = _name_below(part.filename or "")
        if name is None:
            continue
        if name in found:
            raise ContentError(f"{name} was chosen twice: choose the folder, or its files.")
        found[name] = part
    return found


def _files(form: FormData, field: str) -> list[UploadFile]:
    """Return the files of a field. A field without a choice has an empty part."""
    parts = form.getlist(field)
    return [part for part in parts if isinstance(part, UploadFile) and part.filename]


def _is_in_folder(part: UploadFile) -> bool:
    return "/" in (part.filename or "").replace("\\", "/")


def _name_below(sent: str) -> str | None:
    """Return a file's name below its folder. None for files to leave out, such as caches."""
    parts = PurePosixPath(sent.replace("\\", "/")).parts
    inside = parts[1:] if len(parts) > 1 else parts
    if any(map(is_left_out, inside)):
        return None
    return "/".join(inside)


def _is_json(name: str) -> bool:
    return name.lower().endswith(".json")


def _claim_of(files: Chosen) -> str:
    found = [name for name in files if _is_json(name)]
    if CLAIM_FILE in found:
        return CLAIM_FILE
    if len(found) > 1:
        raise ContentError(f"Choose one JSON: there are {', '.join(sorted(found)[:5])}.")
    return found[0]


def _listed_runs(claim: UploadFile) -> list[str] | None:
    """Read the logs that a JSON lists. None if it lists none."""
    content = claim.file.read(CLAIM_LIMIT_BYTES)
    claim.file.seek(0)
    try:
        runs = json.loads(content)["runs"]
    except (ValueError, KeyError, TypeError, RecursionError):
        return None
    return runs if isinstance(runs, list) else None


def _is_listed(name: str, listed: list[str], files: Chosen) -> bool:
    """Check whether the JSON lists a file, or the log compressed in it if that isn't there."""
    unpacked = unpacked_name(name)
    return name in listed or (unpacked in listed and unpacked not in files)


def _renamed(file: UploadFile, name: str) -> UploadFile:
    return UploadFile(file.file, size=file.size, filename=name, headers=file.headers)


def _texts(form: FormData, names: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    for name in names:
        value = form.get(name)
        if isinstance(value, str) and value.strip():
            yield name, value.strip()


router = APIRouter(include_in_schema=False)
ADDRESS = "/submit"
FIELDS = ("benchmark", "division", "hardware_class", "key")


@page(ADDRESS, "submit.html", role="submitter")
def submit_page(session: Session, caller: Caller, benchmark: str = "") -> Context:
    """Show the form: files or a folder, and the choices that files of some kinds need."""
    titles = [(one.benchmark_id, one.title) for one in benchmarks_of(session).values()]
    hosts = offered_hosts(session, caller).items()
    return {
        "typed": {"benchmark": benchmark, "key": secrets.token_urlsafe(16)},
        "preview": None,
        "lacking": Fleet.read(session).lacks,
        "benchmarks": [("", "as the files say"), *titles],
        "hosts": [("", "the first that fits")]
        + [(name, f"{name} ({', '.join(environments)})") for name, environments in hosts],
    }


@router.post(ADDRESS)
async def check_or_send(request: Request, console: SubmitterDep) -> Response:
    """Check the chosen files and show every problem or a preview. With `send` store them."""
    most = max(MOST_FILES, console.services.settings.max_log_files) + 3
    return await with_form(
        request, lambda form: _answer(request, console, form), max_files=most, parts=EXPECTED
    )


def _answer(request: Request, console: Console, form: FormData) -> Response:
    services, caller = console.services, console.caller
    require_same_origin(request)
    typed = {name: _text(form, name) for name in FIELDS}
    typed["key"] = typed["key"] or secrets.token_urlsafe(16)
    again = partial(PAGES[ADDRESS].show, console, {}, typed=typed)
    try:
        with read_upload(services, chosen_form(form)) as upload:
            if not _text(form, "send"):
                found = preview_submission(services, caller, upload)
                one = services.benchmarks[found.benchmark]
                units = {"unit": one.target.unit, "time_unit": one.time_unit}
                return again(preview=found, title=one.title, **units)
            # The same files sent twice by one form are one submission.
            key = f"{typed['key']}.{upload.sha256}"
            submission_id = accept(services, caller, upload, key=key).submission_id
    except (RuleError, ServerError) as error:
        return again(refusal=refusal_of(error))
    return RedirectResponse(f"/submissions/{quote(submission_id, safe='')}", status_code=303)


def refusal_of(error: RuleError | ServerError) -> ServerError:
    """Return the error of a page that lists its problems by file, line and field."""
    if isinstance(error, ServerError):
        return error
    problems = [problem_of(one) for one in error.problems]
    return ContentError(
        "These files break rules. Mend them and choose them again.", problems=problems
    )


def _text(form: FormData, name: str) -> str:
    value = form.get(name)
    return value.strip() if isinstance(value, str) else ""
