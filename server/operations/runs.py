"""Export runs as flat JSON records by page, and boards and runs as Parquet."""

import io
from collections.abc import Iterator, Sequence
from tempfile import TemporaryFile
from typing import IO, Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from sqlalchemy import Row, Select, select
from sqlalchemy.orm import Session

from finishline.api.boards import COLUMN_FIELDS, BoardRow, flat, nested
from finishline.api.submissions import (
    ParameterSetting,
    RunExport,
    RunMeasure,
    RunRecord,
    SystemView,
)
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.artifacts import pieces
from server.base.database import Database, ServicesDep
from server.base.errors import HttpError
from server.base.models import DISPLAY_NAME, SUBMITTER, PublishedResult, RunRow, Submission, User
from server.benchmarks.definitions import definition, find_benchmark
from server.boards.board import read_board
from server.boards.endpoints import Encoded, answer_board
from server.boards.query import BoardQuery
from server.operations.export import can_write_parquet, parquet_file, types_of
from server.people.callers import ViewerDep

LimitDep = Annotated[int, Query(ge=1, le=1000)]
# The id of the last run of the page before.
CursorDep = Annotated[str | None, Query(pattern=r"^[0-9]{1,18}$")]


def list_runs(
    session: Session, benchmark_ids: Sequence[str], *, after: int = 0, limit: int | None = None
) -> Sequence[int]:
    """List the ids of the runs of benchmarks, in order of arrival."""
    query = (
        select(RunRow.id)
        .join(Submission, RunRow.submission_id == Submission.id)
        .where(Submission.benchmark_id.in_(benchmark_ids), RunRow.id > after)
        .order_by(RunRow.id)
        .limit(limit)
    )
    return session.scalars(query).all()


def read_records(session: Session, row_ids: Sequence[int]) -> list[RunRecord]:
    """Read the records of these runs, without their curves."""
    # Only the columns of a record are read.
    columns = [
        RunRow.index.label("run"), RunRow.seed, RunRow.batch_size, RunRow.reached,
        RunRow.best_quality, RunRow.tta_seconds, RunRow.epochs_to_target, RunRow.log_sha256,
        Submission.id.label("submission_id"), Submission.benchmark_id.label("benchmark"),
        Submission.benchmark_sha256, Submission.division, Submission.submitted_at,
        Submission.status, Submission.model, Submission.framework, Submission.hyperparameters,
        Submission.system, SUBMITTER, DISPLAY_NAME,
        Submission.withdrawn_at.is_not(None).label("withdrawn"),
        (Submission.evidence == "published").label("archive"),
        PublishedResult.published_on.label("submitted_on"),
    ]  # fmt: skip
    query: Select[Any] = (
        select(*columns)
        .join(Submission, RunRow.submission_id == Submission.id)
        .join(User, Submission.user_id == User.id)
        .outerjoin(Submission.published)
        .where(RunRow.id.in_(row_ids))
        .order_by(RunRow.id)
    )
    return [_record(session, row) for row in session.execute(query)]


def _record(session: Session, row: Row[Any]) -> RunRecord:
    benchmark = definition(session, row.benchmark_sha256)
    reached = RunMeasure(
        measure=benchmark.target.metric,
        value=row.best_quality,
        seconds=row.tta_seconds,
        epoch=row.epochs_to_target,
    )
    stated = row.hyperparameters.items()
    return RunRecord.of(
        row,
        benchmark_version=benchmark.version,
        parameter_setting=[ParameterSetting(name=name, value=value) for name, value in stated],
        evaluations=[reached],
        system=SystemView(**row.system),
    )


router = APIRouter()

# A submitter's words about a run may have 256 KiB, so this many take at most 16 MiB.
RUNS_AT_ONCE = 64


@router.get("/benchmarks/{benchmark_id}/runs.json", tags=["benchmarks"], response_model=RunExport)
def export_runs(
    benchmark_id: str,
    services: ServicesDep,
    request: Request,
    limit: LimitDep = 1000,
    cursor: CursorDep = None,
) -> Response:
    """Export every run of a benchmark as a flat record, in order of arrival.

    An answer has up to `limit` runs. The header `Link` and `next_cursor` lead to the next.
    """
    find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        row_ids = list_runs(session, [benchmark_id], after=int(cursor or 0), limit=limit + 1)
    headers, following = {}, None
    if len(row_ids) > limit:
        row_ids = row_ids[:limit]
        following = str(row_ids[-1])
        address = request.url.include_query_params(cursor=following)
        headers["Link"] = f'<{address.path}?{address.query}>; rel="next"'
    head = {"benchmark": benchmark_id, "next_cursor": following}
    content = write_page(services.database, head, row_ids)
    return StreamingResponse(content, media_type="application/json", headers=headers)


def write_page(
    database: Database, head: dict[str, str | None], row_ids: Sequence[int]
) -> Iterator[bytes]:
    """Write a page's JSON by portions, so that no transaction waits for a slow reader."""
    yield orjson.dumps(head).removesuffix(b"}") + b',"runs":['
    separator = b""
    for start in range(0, len(row_ids), RUNS_AT_ONCE):
        with database.read() as session:
            records = read_records(session, row_ids[start : start + RUNS_AT_ONCE])
        for record in records:
            yield separator + orjson.dumps(record.model_dump(mode="json"))
            separator = b","
    yield b"]}"


MEDIA_TYPE = "application/vnd.apache.parquet"
MOST_AT_ONCE = 1000
BINARY = {"schema": {"type": "string", "format": "binary"}}
ANSWER: dict[int | str, dict[str, Any]] = {
    # Generators of clients know only the general type.
    200: {
        "description": "A Parquet file.",
        "content": {MEDIA_TYPE: BINARY, "application/octet-stream": BINARY},
    }
}
BoardQueryDep = Annotated[BoardQuery, Query()]


@router.get(
    "/leaderboards/{benchmark_id}.parquet",
    tags=["leaderboards"],
    response_class=Response,
    responses=ANSWER,
)
def get_board_parquet(
    benchmark_id: str, query: BoardQueryDep, services: ServicesDep, request: Request
) -> Response:
    """Export every entry of the same board as Parquet. Ignores `limit` and `cursor`."""
    find_benchmark(services.benchmarks, benchmark_id)
    _require_parquet()
    return answer_board(services, request, benchmark_id, query, MEDIA_TYPE, _encode_board)


@router.get("/runs.parquet", tags=["benchmarks"], response_class=Response, responses=ANSWER)
def get_runs_parquet(services: ServicesDep, viewer: ViewerDep) -> Response:
    """Export every run of every benchmark as Parquet, in order of arrival."""
    _require_parquet()
    with services.database.read_snapshot(viewer) as session:
        file = _write_runs(session, list(services.benchmarks))
    name = {"Content-Disposition": 'attachment; filename="runs.parquet"'}
    return StreamingResponse(pieces(file), media_type=MEDIA_TYPE, headers=name)


def _require_parquet() -> None:
    if not can_write_parquet():
        raise HttpError(
            501,
            "This server writes no Parquet: install finishline-server[export] on it. The same as "
            "CSV and JSON is there.",
        )


def _encode_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> Encoded:
    rows: list[dict[str, Any]] = []
    cursor: str | None = None
    while True:
        page = query.model_copy(update={"limit": MOST_AT_ONCE, "page": 1, "cursor": cursor})
        board = read_board(session, benchmark, page)
        found = (BoardRow.model_validate(nested(entry)) for entry in board["entries"])
        rows += [flat(row.model_dump()) for row in found]
        cursor = board["next_cursor"]
        if cursor is None:
            break
    target = io.BytesIO()
    with parquet_file(target, types_of(COLUMN_FIELDS)) as add:
        add(rows)
    return Encoded(target.getvalue(), total=board["total"])


def _write_runs(session: Session, benchmark_ids: Sequence[str]) -> IO[bytes]:
    row_ids = list_runs(session, benchmark_ids)
    target = TemporaryFile()  # noqa: SIM115  the caller closes it
    try:
        with parquet_file(target, types_of(RunRecord.model_fields)) as add:
            for start in range(0, len(row_ids), MOST_AT_ONCE):
                records = read_records(session, row_ids[start : start + MOST_AT_ONCE])
                add([record.model_dump() for record in records])
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target
