"""All runs of a benchmark as JSON, for programs that study many."""

from collections.abc import Iterator

import orjson
from fastapi import APIRouter, Request, Response
from fastapi.responses import StreamingResponse

from server.benchmarks.queries import find_benchmark
from server.database import Database
from server.dependencies import PartsDep
from server.run_export.queries import RunPage, read_page, read_records
from server.run_export.schemas import CursorDep, LimitDep, RunExport

router = APIRouter(tags=["benchmarks"])

# What a submitter wrote about a run may have 256 KiB, so this many take at most 16 MiB.
RUNS_AT_ONCE = 64


@router.get("/benchmarks/{benchmark_id}/runs.json", response_model=RunExport)
def export_runs(
    benchmark_id: str,
    parts: PartsDep,
    request: Request,
    limit: LimitDep = 1000,
    cursor: CursorDep = None,
) -> Response:
    """Every run of a benchmark as a flat record, those of the newest submission first.

    An answer has up to `limit` runs; the header `Link` and `next_cursor` lead to the next.
    """
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        page = read_page(session, benchmark.benchmark_id, limit=limit, cursor=cursor)
    headers = {}
    if page.next_cursor is not None:
        following = request.url.include_query_params(cursor=page.next_cursor)
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    pieces = write_page(parts.database, benchmark.benchmark_id, page)
    return StreamingResponse(pieces, media_type="application/json", headers=headers)


def write_page(database: Database, benchmark_id: str, page: RunPage) -> Iterator[bytes]:
    """The JSON of a page, piece by piece.

    A portion is read when it is its turn, and no transaction waits for a slow reader.
    """
    head = orjson.dumps({"benchmark": benchmark_id, "next_cursor": page.next_cursor})
    yield head.removesuffix(b"}") + b',"runs":['
    separator = b""
    for start in range(0, len(page.row_ids), RUNS_AT_ONCE):
        with database.read() as session:
            records = read_records(session, page.row_ids[start : start + RUNS_AT_ONCE])
        for record in records:
            yield separator + orjson.dumps(record.model_dump(mode="json"))
            separator = b","
    yield b"]}"
