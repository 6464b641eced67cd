"""Endpoints of submissions: send, read, list, their raw logs and their code."""

from collections.abc import Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from finishline.api.schema import Schema
from finishline.api.submissions import (
    CurveView,
    PackageView,
    RunView,
    SubmissionList,
    SubmissionView,
)
from finishline.rules.trainings.package import MOST_FILES
from server.base.artifacts import pieces
from server.base.error_answers import METHODS
from server.base.errors import GoneError, LostFileError
from server.base.forms import files_part, multipart_body, with_form
from server.base.models import Submission
from server.base.models.visibility import sees_source
from server.base.paging import CURSOR_PATTERN
from server.base.request_context import note
from server.base.services import Services, ServicesDep
from server.base.viewer import Viewer
from server.benchmarks.prices import BookCosts
from server.benchmarks.queries import definition
from server.people.dependencies import Caller, SubmitterDep
from server.people.signed_in import ViewerDep
from server.submissions.accept import MAX_KEY_LENGTH, accept
from server.submissions.preview import SubmissionPreview, preview
from server.submissions.service import (
    benchmark_versions,
    find_run,
    find_submission,
    submissions_page,
)
from server.submissions.sources import find_package, read_source
from server.submissions.upload import read_upload
from server.submissions.views import (
    EXAMPLE_CLAIM,
    curve_view,
    judged_on_others,
    package_view,
    submission_view,
)


class RunList(Schema):
    """The runs of a submission in order."""

    runs: list[RunView]


router = APIRouter(tags=["submissions"])

LARGEST_INDEX = 10_000
RunIndex = Annotated[int, Path(ge=0, le=LARGEST_INDEX)]

# The description asks for less than is accepted, so that every key it allows passes.
KeyDep = Annotated[
    str | None,
    Header(json_schema_extra={"pattern": "^[!-~]+$", "maxLength": MAX_KEY_LENGTH}),
]

DryRunDep = Annotated[bool, Query(description="Check and score it, and store nothing.")]
PREVIEWED: dict[int | str, dict[str, Any]] = {
    200: {"model": SubmissionPreview, "description": "Of a dry run: nothing was stored."}
}
MULTIPART = multipart_body(
    {
        "submission": {
            "type": "string",
            "format": "binary",
            "description": "Of logs: the submission's JSON, or a DAWNBench entry.",
        },
        "logs": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "One run log per run: MLLOG text, or a DAWNBench TSV. "
            "A DAWNBench entry of inference has none.",
        },
        "benchmark": {
            "type": "string",
            "description": "The benchmark of a DAWNBench entry.",
        },
        "division": {
            "type": "string",
            "description": "The division of a DAWNBench entry; open if absent.",
        },
        "archive": {
            "type": "string",
            "enum": ["true", "false"],
            "description": "Organisers only: a result published elsewhere, kept "
            "with the rules it breaks; its JSON may name organisation and "
            "submitted_on.",
        },
        "source_commit": {
            "type": "string",
            "description": "With archive: the commit of the published repository. "
            "Results of a known one are numbered.",
        },
        "files": files_part(
            "Of code: its files, each under its name in its folder, training.toml among them."
        ),
        "hardware_class": {
            "type": "string",
            "description": "Of code: the hardware class that measures it; if absent, that of a "
            "worker with its environment.",
        },
    },
    examples={
        "digits": {
            "summary": "The JSON that goes into the part `submission`",
            "value": {"submission": EXAMPLE_CLAIM},
        }
    },
)


@router.post(
    "/submissions",
    status_code=201,
    response_model=SubmissionView,
    responses=PREVIEWED,
    openapi_extra=MULTIPART,
)
async def create_submission(
    request: Request,
    response: Response,
    services: ServicesDep,
    caller: SubmitterDep,
    idempotency_key: KeyDep = None,
    dry_run: DryRunDep = False,
) -> SubmissionView | Response:
    """Send logs or code. The answer holds the result and its steps, or the measurement of the code.

    `files` with a training.toml are code: a worker trains it in a sandbox and measures its time.
    Its source is published with the first verdict. A `submission` with its `logs` is a claim; a
    DAWNBench entry with a latency and without a log is one of inference.

    Its place on the board is in the answer of a later GET. With `dry_run` nothing is stored: the
    answer is the result and the place that it would take.

    With an `Idempotency-Key` a repeated request gets the submission that the first one made. A
    refused submission leaves nothing behind; the answer names file, line and field. 409 for logs
    or code that were handed in before, 429 without room in a quota.
    """
    most = max(services.settings.max_log_files, MOST_FILES) + 1
    read = partial(with_form, request, max_files=most)
    if dry_run:
        return await read(partial(_preview, services, caller))
    view, repeated = await read(partial(_accept, services, caller, key=idempotency_key))
    note(submission_id=view.id)
    response.headers["Location"] = f"/api/v1/submissions/{view.id}"
    if repeated:
        response.headers["Idempotent-Replayed"] = "true"
    return view


@router.api_route("/trainings", methods=list(METHODS), include_in_schema=False)
async def moved() -> None:
    """Say where code is sent today."""
    raise GoneError(
        "Code is sent to /api/v1/submissions, as logs are.",
        hint="Send the same parts with POST /api/v1/submissions, or call `finishline submit PATH`.",
    )


def _preview(services: Services, caller: Caller, form: FormData) -> Response:
    with read_upload(services, form) as upload:
        return JSONResponse(preview(services, caller, upload).model_dump(mode="json"))


def _accept(
    services: Services, caller: Caller, form: FormData, *, key: str | None
) -> tuple[SubmissionView, bool]:
    """Store a submission; returns its view, and whether an earlier request stored it."""
    with read_upload(services, form) as upload:
        accepted = accept(services, caller, upload, key=key)
    viewer = Viewer(user_ids=(caller.user_id,))
    if accepted.repeated:
        return view_submission(services, accepted.submission_id, viewer), True
    with services.database.read(viewer) as session:
        submission = find_submission(session, accepted.submission_id)
        version = definition(session, submission.benchmark_sha256).version
        costs = BookCosts(session)
        return submission_view(submission, benchmark_version=version, costs=costs), False


def view_submission(services: ServicesDep, submission_id: str, viewer: Viewer) -> SubmissionView:
    """View of a stored submission as a viewer may see it. Raises NotFoundError."""
    with services.database.read(viewer) as session:
        submission = find_submission(session, submission_id)
        judged_on = judged_on_others(session, submission)
        return _views(services, session, [submission])[0].model_copy(
            update={"judged_on": judged_on}
        )


def _views(
    services: ServicesDep, session: Session, submissions: Sequence[Submission]
) -> list[SubmissionView]:
    versions = benchmark_versions(session, {s.benchmark_sha256 for s in submissions})
    costs, standing_of = BookCosts(session), services.standings(session)
    return [
        submission_view(
            one, benchmark_version=versions[one.benchmark_sha256], costs=costs
        ).model_copy(update=standing_of(one))
        for one in submissions
    ]


CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]
PackageDep = Annotated[
    str | None,
    Query(pattern="^[0-9a-f]{6,64}$", description="The beginning of a code submission's SHA-256."),
]


@router.get("/submissions")
def list_submissions(
    services: ServicesDep,
    viewer: ViewerDep,
    benchmark: str | None = None,
    package: PackageDep = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: CursorDep = None,
) -> SubmissionList:
    """List submissions, newest first; those under embargo only to viewers who may see them.

    With `package` the entries of code submissions whose SHA-256 begins so.
    """
    with services.database.read(viewer) as session:
        page, next_cursor = submissions_page(
            session, benchmark_id=benchmark, package=package, limit=limit, cursor=cursor
        )
        views = _views(services, session, page)
    return SubmissionList(submissions=views, next_cursor=next_cursor)


@router.get("/submissions/{submission_id}")
def get_submission(submission_id: str, services: ServicesDep, viewer: ViewerDep) -> SubmissionView:
    """Read a submission with its result explained step by step.

    While it is under embargo, 404 for all but its submitter, the members of their organisation
    and organisers.
    """
    return view_submission(services, submission_id, viewer)


@router.get("/submissions/{submission_id}/runs")
def list_runs(submission_id: str, services: ServicesDep, viewer: ViewerDep) -> RunList:
    """List the runs of a submission."""
    with services.database.read(viewer) as session:
        runs = find_submission(session, submission_id).runs
        return RunList.model_validate({"runs": runs})


@router.get("/submissions/{submission_id}/runs/{index}/curve")
def get_curve(
    submission_id: str, index: RunIndex, services: ServicesDep, viewer: ViewerDep
) -> CurveView:
    """Read every evaluation of a run."""
    with services.database.read(viewer) as session:
        return curve_view(find_run(session, submission_id, index))


@router.get(
    "/submissions/{submission_id}/runs/{index}/log",
    response_class=FileResponse,
    responses={200: {"content": {"text/plain": {}}, "description": "The log, byte for byte."}},
)
def get_log(
    submission_id: str, index: RunIndex, services: ServicesDep, viewer: ViewerDep
) -> Response:
    """Download the raw log of a run, byte for byte as it was sent."""
    with services.database.read(viewer) as session:
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


@router.get("/submissions/{submission_id}/package")
def get_package(submission_id: str, services: ServicesDep, viewer: ViewerDep) -> PackageView:
    """Read the code submission of an entry; its files are listed once they are published."""
    with services.database.read(viewer) as session:
        submission = find_submission(session, submission_id)
        package = find_package(session, submission_id)
        return package_view(package, with_files=sees_source(viewer, submission))


@router.get("/submissions/{submission_id}/package/files/{name:path}", response_class=Response)
def get_package_file(
    submission_id: str, name: str, services: ServicesDep, viewer: ViewerDep
) -> Response:
    """Read a file of a code submission as text. 404 for others before it is published."""
    with services.database.read(viewer) as session:
        text = read_source(session, viewer, submission_id, name)
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})
