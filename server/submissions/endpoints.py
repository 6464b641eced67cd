"""Endpoints of submissions: send, read, list, their raw logs and their code."""

from typing import Annotated
from urllib.parse import quote

from fastapi import Path, Response
from fastapi.responses import FileResponse, PlainTextResponse, StreamingResponse
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.api.submissions import (
    CurveView,
    PackageView,
    RunView,
)
from server.base.artifacts import pieces
from server.base.errors import LostFileError
from server.base.services import Services
from server.base.visibility import Viewer, sees_source
from server.people.declared import Routes
from server.submissions.code import find_package, read_source
from server.submissions.lists import (
    find_run,
    find_submission,
)
from server.submissions.views import (
    curve_view,
    package_view,
)


class RunList(Schema):
    """The runs of a submission in order."""

    runs: list[RunView]


router = Routes(tags=["submissions"])

LARGEST_INDEX = 10_000
RunIndex = Annotated[int, Path(ge=0, le=LARGEST_INDEX)]


@router.read("/submissions/{submission_id}/runs")
def list_runs(session: Session, submission_id: str) -> RunList:
    """List the runs of a submission."""
    return RunList.model_validate({"runs": find_submission(session, submission_id).runs})


@router.read("/submissions/{submission_id}/runs/{index}/curve")
def get_curve(session: Session, submission_id: str, index: RunIndex) -> CurveView:
    """Read every evaluation of a run."""
    return curve_view(find_run(session, submission_id, index))


@router.read(
    "/submissions/{submission_id}/runs/{index}/log",
    response_class=FileResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "The log, byte for byte."}},
)
def get_log(session: Session, services: Services, submission_id: str, index: RunIndex) -> Response:
    """Download the raw log of a run, byte for byte as it was sent."""
    run = find_run(session, submission_id, index)
    headers = {
        "ETag": f'"{run.log_sha256}"',
        "X-Content-Type-Options": "nosniff",
        "Content-Disposition": f"inline; filename*=utf-8''{quote(run.file)}",
    }
    media_type = "text/plain; charset=utf-8"
    if services.artifacts.bucket is None:
        path = services.artifacts.path_of(run.log_sha256)
        if not path.is_file():
            raise LostFileError(run.log_sha256)
        return FileResponse(path, media_type=media_type, headers=headers)
    try:
        opened = services.artifacts.open(run.log_sha256)
    except FileNotFoundError as error:
        raise LostFileError(run.log_sha256) from error
    headers["Content-Length"] = str(run.log_bytes)
    return StreamingResponse(pieces(opened), media_type=media_type, headers=headers)


@router.read("/submissions/{submission_id}/package")
def get_package(session: Session, viewer: Viewer, submission_id: str) -> PackageView:
    """Read the code submission of an entry; its files are listed once they are published."""
    submission = find_submission(session, submission_id)
    package = find_package(session, submission_id)
    return package_view(package, with_files=sees_source(viewer, submission))


@router.read("/submissions/{submission_id}/package/files/{name:path}", response_class=Response)
def get_package_file(session: Session, viewer: Viewer, submission_id: str, name: str) -> Response:
    """Read a file of a code submission as text. 404 for others before it is published."""
    text = read_source(session, viewer, submission_id, name)
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})
