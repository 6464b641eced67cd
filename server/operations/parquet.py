"""Boards and runs as Parquet, with the columns of their JSON; tables are structs."""

import io
import types
from collections.abc import Iterator, Sequence
from dataclasses import is_dataclass
from datetime import date, datetime
from importlib.util import find_spec
from tempfile import TemporaryFile
from typing import IO, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import BaseModel
from sqlalchemy import select
from sqlalchemy.orm import Session

from finishline.api.boards import BoardEntry
from finishline.api.submissions import RunRecord
from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.artifacts import pieces
from server.base.errors import NotInstalledError
from server.base.models import RunRow, Submission
from server.base.services import ServicesDep
from server.benchmarks.queries import find_benchmark
from server.boards.encoding import Encoded, answer_board
from server.boards.schemas import BoardQuery
from server.boards.service import read_board
from server.operations.runs import RUNS_AT_ONCE, read_records
from server.people.signed_in import ViewerDep

MEDIA_TYPE = "application/vnd.apache.parquet"
MOST_AT_ONCE = 1000
BINARY = {"schema": {"type": "string", "format": "binary"}}
ANSWER: dict[int | str, dict[str, Any]] = {
    # Generators of clients know the general type alone.
    200: {
        "description": "A Parquet file.",
        "content": {MEDIA_TYPE: BINARY, "application/octet-stream": BINARY},
    }
}
ARROW = {str: "string", int: "int64", float: "float64", bool: "bool_", date: "date32"}
BoardQueryDep = Annotated[BoardQuery, Query()]
router = APIRouter(default_response_class=Response)


@router.get("/leaderboards/{benchmark_id}.parquet", tags=["leaderboards"], responses=ANSWER)
def get_board_parquet(
    benchmark_id: str, query: BoardQueryDep, services: ServicesDep, request: Request
) -> Response:
    """Every entry of the same board as Parquet; `limit` and `cursor` are not looked at."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    _require_parquet()
    return answer_board(
        services,
        request,
        benchmark_id,
        MEDIA_TYPE,
        lambda session: _encode_board(session, benchmark, query),
    )


@router.get("/runs.parquet", tags=["benchmarks"], responses=ANSWER)
def get_runs_parquet(services: ServicesDep, viewer: ViewerDep) -> Response:
    """Every run of every benchmark as Parquet, those of the newest submission first."""
    _require_parquet()
    with services.database.read_snapshot(viewer) as session:
        file = _write_runs(session, list(services.benchmarks))
    name = {"Content-Disposition": 'attachment; filename="runs.parquet"'}
    return StreamingResponse(pieces(file), media_type=MEDIA_TYPE, headers=name)


def _require_parquet() -> None:
    if find_spec("pyarrow") is None:
        raise NotInstalledError(
            "This server writes no Parquet: install finishline-server[export] on it. The same as "
            "CSV and JSON is there."
        )


def _encode_board(session: Session, benchmark: Benchmark, query: BoardQuery) -> Encoded:
    """All pages of a board as one file."""
    entries: list[BoardEntry] = []
    cursor: str | None = None
    while True:
        page = query.model_copy(update={"limit": MOST_AT_ONCE, "page": 1, "cursor": cursor})
        board = read_board(session, benchmark, page)
        entries += [BoardEntry.model_validate(entry) for entry in board["entries"]]
        cursor = board["next_cursor"]
        if cursor is None:
            break
    target = io.BytesIO()
    with _writer(target, BoardEntry) as writer:
        writer.write_batch(_batch(entries, writer.schema))
    return Encoded(target.getvalue(), total=board["total"])


def _write_runs(session: Session, benchmark_ids: Sequence[str]) -> IO[bytes]:
    query = (
        select(RunRow.id)
        .join(Submission, RunRow.submission_id == Submission.id)
        .where(Submission.benchmark_id.in_(benchmark_ids))
        .order_by(Submission.submitted_at.desc(), Submission.id.desc(), RunRow.index)
    )
    row_ids = list(session.scalars(query))
    target = TemporaryFile()  # noqa: SIM115  the caller closes it
    try:
        with _writer(target, RunRecord) as writer:
            for records in _portions(session, row_ids):
                writer.write_batch(_batch(records, writer.schema))
        target.seek(0)
    except BaseException:
        target.close()
        raise
    return target


def _portions(session: Session, row_ids: Sequence[int]) -> Iterator[list[RunRecord]]:
    for start in range(0, len(row_ids), MOST_AT_ONCE):
        portion = row_ids[start : start + MOST_AT_ONCE]
        records: list[RunRecord] = []
        for begin in range(0, len(portion), RUNS_AT_ONCE):
            records += read_records(session, portion[begin : begin + RUNS_AT_ONCE])
        yield records


def _writer(target: Any, model: type[BaseModel]) -> Any:
    import pyarrow
    from pyarrow import parquet

    return parquet.ParquetWriter(target, pyarrow.schema(_fields(model)), compression="zstd")


def _batch(rows: Sequence[BaseModel], schema: Any) -> Any:
    import pyarrow

    return pyarrow.RecordBatch.from_pylist([row.model_dump() for row in rows], schema=schema)


def _fields(model: type[BaseModel]) -> list[tuple[str, Any]]:
    return [(name, _arrow_type(field.annotation)) for name, field in model.model_fields.items()]


def _arrow_type(annotation: Any) -> Any:
    """The Arrow type of a field's annotation; every field may be absent."""
    import pyarrow

    origin = get_origin(annotation)
    if origin in (Union, types.UnionType):
        (inner,) = (item for item in get_args(annotation) if item is not type(None))
        return _arrow_type(inner)
    if origin in (list, tuple):
        return pyarrow.list_(_arrow_type(get_args(annotation)[0]))
    if origin is dict:
        return pyarrow.map_(*map(_arrow_type, get_args(annotation)))
    if origin is Literal:
        return _arrow_type(type(get_args(annotation)[0]))
    if annotation is datetime:
        return pyarrow.timestamp("us", tz="UTC")
    if is_dataclass(annotation):
        hints = get_type_hints(annotation)
        return pyarrow.struct([(name, _arrow_type(hint)) for name, hint in hints.items()])
    if issubclass(annotation, BaseModel):
        return pyarrow.struct(_fields(annotation))
    return getattr(pyarrow, ARROW[annotation])()
