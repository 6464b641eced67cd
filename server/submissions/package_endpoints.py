"""Endpoints of training packages: hand one in, read it and its files."""

from functools import partial

from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.datastructures import FormData

from finishline.api.submissions import PackageView, SubmissionView
from finishline.rules.benchmarks.definition_tables import LARGEST_PACKAGE_BYTES
from finishline.rules.trainings.package import MOST_FILES
from server.base.forms import files_part, multipart_body, read_files, read_text, with_form
from server.base.models.visibility import sees_source
from server.base.services import Services, ServicesDep
from server.base.viewer import Viewer
from server.people.dependencies import Caller, SubmitterDep
from server.people.signed_in import ViewerDep
from server.submissions.accept import Repeated
from server.submissions.endpoints import PREVIEWED, DryRunDep, KeyDep, stored, view_submission
from server.submissions.packages import hand_in
from server.submissions.preview import preview_package
from server.submissions.service import find_submission
from server.submissions.sources import find_package, read_source
from server.submissions.views import package_view

router = APIRouter(tags=["training packages"])
FIELDS = ("files", "hardware_class")
PARTS = "A package has parts 'files', each a file of it"
MULTIPART = multipart_body(
    {
        "files": files_part(
            "The files of the package, each under its name in the package's folder, training.toml "
            "among them."
        ),
        "hardware_class": {
            "type": "string",
            "description": "The hardware class to be measured on; that of the "
            "worker with the environment if absent.",
        },
    },
    required="files",
)


@router.post(
    "/trainings",
    status_code=201,
    response_model=SubmissionView,
    responses=PREVIEWED,
    openapi_extra=MULTIPART,
)
async def create_entry(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: SubmitterDep,
    idempotency_key: KeyDep = None,
    dry_run: DryRunDep = False,
) -> SubmissionView | Response:
    """Hand in a training package as an entry. A worker trains it in a box and measures its time.

    The source is published with the first verdict. 409 for a package that was handed in before,
    422 with every problem of file, line and field, 429 without room in a quota. With `dry_run`
    nothing is stored.
    """
    if dry_run:
        preview = partial(_preview, services, caller)
        return await with_form(request, preview, max_files=MOST_FILES + 1, parts=PARTS)
    send = partial(_hand_in, services, caller, key=idempotency_key)
    sent = await with_form(request, send, max_files=MOST_FILES + 1, parts=PARTS)
    return stored(response, *sent)


def read_package_form(form: FormData) -> tuple[dict[str, bytes], str | None]:
    """Read the files of a package by name, and its hardware class. Raises ContentError."""
    hardware_class = read_text(form, "hardware_class", expected="the name of a hardware class")
    files = read_files(
        form,
        fields=FIELDS,
        most_bytes=LARGEST_PACKAGE_BYTES,
        expected="the files of a package, training.toml among them",
    )
    return files, hardware_class


def _preview(services: Services, caller: Caller, form: FormData) -> Response:
    found = preview_package(services, caller, *read_package_form(form))
    return JSONResponse(found.model_dump(mode="json"))


def _hand_in(
    services: Services, caller: Caller, form: FormData, *, key: str | None
) -> tuple[SubmissionView, bool]:
    files, hardware_class = read_package_form(form)
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
        return package_view(package, with_files=sees_source(viewer, submission))


@router.get("/submissions/{submission_id}/package/files/{name:path}", response_class=Response)
def get_package_file(
    submission_id: str, name: str, services: ServicesDep, viewer: ViewerDep
) -> Response:
    """Read a file of a training package as text. 404 for others before it is published."""
    with services.database.read(viewer) as session:
        text = read_source(session, viewer, submission_id, name)
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})
