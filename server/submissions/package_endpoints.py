"""Endpoints of training packages: hand one in, read it and its files."""

from typing import Any

from fastapi import APIRouter, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import PlainTextResponse
from starlette.datastructures import FormData

from finishline.api.submissions import SubmissionView
from finishline.api.trainings import PackageView
from finishline.rules.trainings.package import MOST_FILES
from finishline.rules.trainings.policy import LARGEST_PACKAGE_BYTES
from server.base.errors import ContentError
from server.base.request_context import note
from server.base.services import Services, ServicesDep
from server.base.viewer import Viewer
from server.people.dependencies import Caller, SubmitterDep
from server.people.signed_in import ViewerDep
from server.submissions.accept import Repeated
from server.submissions.endpoints import KeyDep, read_form, view_submission
from server.submissions.packages import find_package, hand_in, read_source, sees_source
from server.submissions.service import find_submission
from server.submissions.views import package_view

router = APIRouter(tags=["training packages"])
FIELDS = ("files", "hardware_class")
MULTIPART: dict[str, Any] = {
    "requestBody": {
        "required": True,
        "content": {
            "multipart/form-data": {
                "schema": {
                    "type": "object",
                    "required": ["files"],
                    "properties": {
                        "files": {
                            "type": "array",
                            "minItems": 1,
                            "items": {"type": "string", "format": "binary"},
                            "description": "The files of the package, each under its name in the "
                            "package's folder, training.toml among them.",
                        },
                        "hardware_class": {
                            "type": "string",
                            "description": "The hardware class to be measured on; that of the "
                            "worker with the environment if absent.",
                        },
                    },
                }
            }
        },
    }
}


@router.post("/trainings", status_code=201, openapi_extra=MULTIPART)
async def create_entry(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: SubmitterDep,
    idempotency_key: KeyDep = None,
) -> SubmissionView:
    """Hand in a training package as an entry. A worker trains it in a box and measures its time.

    The source is published with the first verdict. 409 for a package that was handed in before,
    422 with every problem of file, line and field, 429 without room in a quota.
    """
    form = await read_form(request, max_files=MOST_FILES + 1)
    try:
        view, repeated = await run_in_threadpool(_hand_in, services, caller, form, idempotency_key)
    finally:
        await form.close()
    note(submission_id=view.id)
    response.headers["Location"] = f"/api/v1/submissions/{view.id}"
    if repeated:
        response.headers["Idempotent-Replayed"] = "true"
    return view


def _hand_in(
    services: Services, caller: Caller, form: FormData, key: str | None
) -> tuple[SubmissionView, bool]:
    """Store a package; returns its submission, and whether an earlier request stored it."""
    hardware_class = form.get("hardware_class") or None
    if hardware_class is not None and not isinstance(hardware_class, str):
        raise _refuse("a file", "hardware_class", "the name of a hardware class")
    found = hand_in(services, caller, read_files(form), hardware_class=hardware_class, key=key)
    repeated = isinstance(found, Repeated)
    submission_id = found.submission_id if isinstance(found, Repeated) else found
    return view_submission(services, submission_id, Viewer(user_ids=(caller.user_id,))), repeated


def read_files(form: FormData) -> dict[str, bytes]:
    """Read the files of a form by their names. Raises ContentError naming part and expectation."""
    for name in form:
        if name not in FIELDS:
            raise _refuse("unknown part", name, " or ".join(FIELDS))
    files: dict[str, bytes] = {}
    for part in form.getlist("files"):
        if isinstance(part, str):
            raise _refuse("a text without a file name", "files", "a file")
        name = part.filename or ""
        if name in files:
            raise _refuse(f"{name!r} was sent twice", "files", "each file once", file=name)
        files[name] = part.file.read(LARGEST_PACKAGE_BYTES + 1)
    if not files:
        raise _refuse("no file", "files", "the files of a package, training.toml among them")
    return files


def _refuse(message: str, field: str, expected: str, *, file: str | None = None) -> ContentError:
    problem = {
        "file": file,
        "line": None,
        "field": field,
        "message": message,
        "expected": expected,
    }
    return ContentError(f"Part {field!r}: {message}; expected {expected}.", problems=[problem])


@router.get("/submissions/{submission_id}/package")
def get_package(submission_id: str, services: ServicesDep, viewer: ViewerDep) -> PackageView:
    """Read the training package of an entry; its files are listed once they are published."""
    with services.database.read(viewer) as session:
        submission = find_submission(session, submission_id)
        package = find_package(session, submission_id)
        return package_view(package, with_files=sees_source(viewer, package, submission))


@router.get("/submissions/{submission_id}/package/files/{name:path}", response_class=Response)
def get_package_file(
    submission_id: str, name: str, services: ServicesDep, viewer: ViewerDep
) -> Response:
    """Read a file of a training package as text. 404 for others before it is published."""
    with services.database.read(viewer) as session:
        text = read_source(session, viewer, submission_id, name)
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})
