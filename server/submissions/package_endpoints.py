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
from server.base.forms import read_files, read_form, read_text
from server.base.request_context import note
from server.base.services import Services, ServicesDep
from server.base.viewer import Viewer
from server.people.dependencies import Caller, SubmitterDep
from server.people.signed_in import ViewerDep
from server.submissions.accept import Repeated
from server.submissions.endpoints import KeyDep, view_submission
from server.submissions.packages import find_package, hand_in, read_source, sees_source
from server.submissions.service import find_submission
from server.submissions.views import package_view

router = APIRouter(tags=["training packages"])
FIELDS = ("files", "hardware_class")
PARTS = "A package has parts 'files', each a file of it"
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
    form = await read_form(request, max_files=MOST_FILES + 1, parts=PARTS)
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
    hardware_class = read_text(form, "hardware_class", expected="the name of a hardware class")
    files = read_files(
        form,
        fields=FIELDS,
        most_bytes=LARGEST_PACKAGE_BYTES,
        expected="the files of a package, training.toml among them",
    )
    found = hand_in(services, caller, files, hardware_class=hardware_class, key=key)
    repeated = isinstance(found, Repeated)
    submission_id = found.submission_id if isinstance(found, Repeated) else found
    return view_submission(services, submission_id, Viewer(user_ids=(caller.user_id,))), repeated


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
