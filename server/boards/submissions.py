"""Send, try out, read and list submissions with their places, their logs and their code."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Annotated, Any
from urllib.parse import quote

from fastapi import Header, Path, Query, Request, Response
from fastapi.responses import FileResponse, JSONResponse, PlainTextResponse, StreamingResponse
from sqlalchemy.orm import Session
from starlette.datastructures import FormData

from finishline.api.schema import Schema
from finishline.api.submissions import (
    CurveView,
    EvaluationView,
    InferenceResultView,
    PackageView,
    ResultView,
    RunView,
    SubmissionList,
    SubmissionView,
    SystemView,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.ranking import Check, Evidence
from finishline.rules.trainings.package import MOST_FILES
from server.base.artifacts import pieces
from server.base.board_versions import board_versions
from server.base.database import Services, ServicesDep, benchmarks_of, find_row
from server.base.errors import LostFileError
from server.base.forms import files_part, multipart_body, text_part, with_form
from server.base.http import note
from server.base.models import Submission
from server.base.paging import CURSOR_PATTERN
from server.base.visibility import ORGANISER, Viewer, sees_source
from server.benchmarks.prices import BookCosts
from server.boards.board import RankedBoard, query_of, ranked_board
from server.boards.order import order_of
from server.boards.rows import row_of_new
from server.people.callers import Caller, SubmitterDep
from server.people.declared import Routes
from server.submissions.accept import (
    MAX_KEY_LENGTH,
    accept,
    admit_upload,
    check_upload,
    refuse_same_logs,
    reserve,
)
from server.submissions.code import find_package, read_source
from server.submissions.lists import SubmissionQuery, whole_submissions
from server.submissions.rows import find_run, judged_on_others, package_view, submission_view
from server.submissions.standing_changes import find_original
from server.submissions.upload import Upload, read_upload

router = Routes(tags=["submissions"])
EXAMPLE_CLAIM = {
    "benchmark": "digits",
    "division": "closed",
    "model": "digits reference",
    "framework": "torch 2.13.0",
    "system": {
        "name": "my laptop",
        "hardware_class": "cpu-amd-ryzen-7-7840u-16-cores",
        "processor": "AMD Ryzen 7 7840U",
        "processor_count": 16,
        "memory_gib": 32,
    },
    "hyperparameters": {"batch_size": 64},
    "trained_with": "reference",
    "tuning": {"trials": 40, "seconds": 3600},
    "runs": ["run_0.log", "run_1.log", "run_2.log"],
}
# Fields of a board entry that the view of a submission repeats.
OF_SUBMISSION = (
    *("rank", "unranked_reason", "measured_seconds", "measured_low_seconds"),
    *("measured_high_seconds", "measured_runs", "busy", "is_holder", "not_first", "head_to_head"),
    *("not_separated_from", "visible_gap_percent"),
    *("measured_quality", "quality_low", "quality_high"),
)


def boards_of(
    session: Session, benchmarks: Mapping[str, Benchmark]
) -> Callable[[Submission], RankedBoard | None]:
    """Return a function that finds the board a submission is ranked on."""
    versions = board_versions(session)

    def board_of(submission: Submission) -> RankedBoard | None:
        name = submission.benchmark_id
        if name not in benchmarks or name not in versions:
            return None
        query = query_of(benchmarks[name], submission)
        return ranked_board(session, benchmarks[name], query, version=versions[name])

    return board_of


class SubmissionPreview(Schema):
    """An unsaved submission, checked and scored.

    `rank` is its possible place now among the `entries` of its division. `unranked_reason` explains
    a missing rank. Code has a `package` instead of a `result`, because a worker measures its time.
    """

    benchmark: str
    benchmark_version: str
    division: str
    kind: str
    model: str
    framework: str
    system: SystemView
    trained_with: str
    duplicate_of: str | None = None
    result: ResultView | InferenceResultView | None
    runs: list[RunView]
    package: PackageView | None
    under_embargo: bool
    evidence: Evidence
    check: Check | None
    rank: int | None = None
    unranked_reason: str | None = None
    entries: int | None = None


def preview_submission(services: Services, caller: Caller, upload: Upload) -> SubmissionPreview:
    """Check an upload as `accept` does, and preview its score and place."""
    new = check_upload(services, caller, upload)
    with services.database.read(ORGANISER) as session:
        submission = admit_upload(session, new)
        if new.package is not None:
            reserve(session, new, submission)
        elif not upload.archive:
            refuse_same_logs(session, submission)
        original = find_original(session, submission, new.benchmark)
        submission.duplicate_of = None if original is None else original.id
        shown = submission_view(session, submission, benchmark=new.benchmark)
        if new.package is not None:
            return SubmissionPreview.of(shown, result=None)
        place = _place_of_new(session, new.benchmark, submission)
    return SubmissionPreview.of(shown, **place)


def _place_of_new(session: Session, benchmark: Benchmark, submission: Submission) -> dict[str, Any]:
    board = ranked_board(session, benchmark, query_of(benchmark, submission))
    new = row_of_new(submission)
    order = order_of([*board.rows.values(), new], metric=board.order.metric, score=benchmark.score)
    place = order.places[order.position(new.submission_id)]
    shown = {"rank": place.rank, "unranked_reason": place.unranked_reason}
    return shown | {"entries": len(order)}


# Narrower than the check, so that every key that the description allows passes.
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
        "submission": text_part(
            "Of logs: the submission's JSON, or a DAWNBench entry.", format="binary"
        ),
        "logs": {
            "type": "array",
            "items": {"type": "string", "format": "binary"},
            "description": "One run log per run: MLLOG text, or a DAWNBench TSV. "
            "A DAWNBench entry of inference has none.",
        },
        "benchmark": text_part("The benchmark of a DAWNBench entry."),
        "division": text_part("The division of a DAWNBench entry; open if absent."),
        "archive": text_part(
            "Organisers only: a result published elsewhere, kept with the rules it breaks; its "
            "JSON may name organisation and submitted_on.",
            enum=["true", "false"],
        ),
        "source_commit": text_part(
            "With archive: the commit of the published repository. Results of a known one are "
            "numbered."
        ),
        "files": files_part(
            "Of code: its files, each under its name in its folder, training.toml among them."
        ),
        "hardware_class": text_part(
            "Of code: the hardware class that measures it; if absent, that of a worker with its "
            "environment."
        ),
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
    Its source is published with the first verdict. A `submission` with its `logs` is a log
    submission. A DAWNBench entry with a latency and without a log is an inference.

    Read its place on the board by a later GET. With `dry_run` nothing is stored, and the answer has
    the result and the possible place.

    With an `Idempotency-Key` a repeated request gets the first one's submission. A refused
    submission leaves nothing behind. The answer names file, line and field. 409: these logs or this
    code were sent before. 429: the quota is used up.
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


def _preview(services: Services, caller: Caller, form: FormData) -> Response:
    with read_upload(services, form) as upload:
        found = preview_submission(services, caller, upload)
    return JSONResponse(found.model_dump(mode="json"))


def _accept(
    services: Services, caller: Caller, form: FormData, *, key: str | None
) -> tuple[SubmissionView, bool]:
    with read_upload(services, form) as upload:
        accepted = accept(services, caller, upload, key=key)
    with services.database.read(Viewer(user_ids=(caller.user_id,))) as session:
        submission = find_row(session, Submission, accepted.submission_id)
        if accepted.repeated:
            return whole_view(session, submission), True
        return submission_view(session, submission), False


def whole_view(session: Session, submission: Submission) -> SubmissionView:
    """Show a stored submission with its place, and the figures behind a changed verdict."""
    (view,) = with_places(session, [submission])
    judged_on = judged_on_others(session, submission)
    return view.model_copy(update={"judged_on": judged_on})


def with_places(session: Session, submissions: Sequence[Submission]) -> list[SubmissionView]:
    """Show stored submissions with their places."""
    costs, board_of = BookCosts(session), boards_of(session, benchmarks_of(session))
    views = []
    for one in submissions:
        board = board_of(one)
        placed = None if board is None else board.find(one.id)
        place = {} if placed is None else {field: placed[field] for field in OF_SUBMISSION}
        views.append(submission_view(session, one, costs=costs).model_copy(update=place))
    return views


CursorDep = Annotated[str | None, Query(pattern=CURSOR_PATTERN)]
PackageDep = Annotated[
    str | None,
    Query(pattern="^[0-9a-f]{6,64}$", description="The beginning of a code submission's SHA-256."),
]


@router.read("/submissions")
def list_submissions(
    session: Session,
    benchmark: str | None = None,
    package: PackageDep = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
    cursor: CursorDep = None,
) -> SubmissionList:
    """List submissions, newest first. Submissions under embargo only to viewers who may see them.

    With `package` only code submissions with a SHA-256 that begins so.
    """
    wanted = SubmissionQuery(benchmark=benchmark, cursor=cursor)
    found, following = whole_submissions(session, wanted, package=package, limit=limit)
    views = with_places(session, found)
    return SubmissionList(submissions=views, next_cursor=following)


@router.read("/submissions/{submission_id}")
def get_submission(session: Session, submission_id: str) -> SubmissionView:
    """Read a submission with its result explained step by step.

    Under embargo, 404 for all but its submitter, the members of their organisation and organisers.
    """
    return whole_view(session, find_row(session, Submission, submission_id))


class RunList(Schema):
    """The runs of a submission in order."""

    runs: list[RunView]


LARGEST_INDEX = 10_000
RunIndex = Annotated[int, Path(ge=0, le=LARGEST_INDEX)]


@router.read("/submissions/{submission_id}/runs")
def list_runs(session: Session, submission_id: str) -> RunList:
    """List the runs of a submission."""
    return RunList.model_validate({"runs": find_row(session, Submission, submission_id).runs})


@router.read("/submissions/{submission_id}/runs/{index}/curve")
def get_curve(session: Session, submission_id: str, index: RunIndex) -> CurveView:
    """Read every evaluation of a run."""
    run = find_run(session, submission_id, index)
    columns = EvaluationView.model_fields
    evaluations = [dict(zip(columns, row, strict=False)) for row in run.curve]
    return CurveView.of(run, evaluations=evaluations)


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
    """Read a code submission. Its files are listed once they are published."""
    submission = find_row(session, Submission, submission_id)
    package = find_package(session, submission_id)
    return package_view(package, with_files=sees_source(viewer, submission))


@router.read("/submissions/{submission_id}/package/files/{name:path}", response_class=Response)
def get_package_file(session: Session, viewer: Viewer, submission_id: str, name: str) -> Response:
    """Read a file of a code submission as text. 404 for others until it is published."""
    text = read_source(session, viewer, submission_id, name)
    return PlainTextResponse(text, headers={"X-Content-Type-Options": "nosniff"})
