"""Leaderboards as JSON and CSV."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from server.benchmarks.queries import find_benchmark
from server.dependencies import PartsDep
from server.leaderboard.encoding import BoardCache, Encoded, encode, encode_csv, encode_json
from server.leaderboard.queries import read_board
from server.leaderboard.schemas import BoardQuery, BoardQueryDep, BoardView
from server.leaderboard.service import board_version

router = APIRouter(tags=["leaderboards"])
CSV_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {}}, "description": "The same board as CSV."}
}


@router.get("/leaderboards/{benchmark_id}.csv", response_class=Response, responses=CSV_ANSWER)
def get_board_csv(
    benchmark_id: str, query: BoardQueryDep, parts: PartsDep, request: Request
) -> Response:
    """The same board as CSV."""
    return _answer(parts, request, benchmark_id, query, encode_csv, "text/csv; charset=utf-8")


@router.get("/leaderboards/{benchmark_id}", response_model=BoardView)
def get_board(
    benchmark_id: str, query: BoardQueryDep, parts: PartsDep, request: Request
) -> Response:
    """A benchmark's leaderboard: ranked first, then what is not ranked, with the reason."""
    return _answer(parts, request, benchmark_id, query, encode_json, "application/json")


def _answer(
    parts: PartsDep,
    request: Request,
    benchmark_id: str,
    query: BoardQuery,
    write: Callable[[BoardView], bytes],
    media_type: str,
) -> Response:
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    state = request.app.state
    cache: BoardCache[Encoded] = state.lens_cache if query.asks_for_lens else state.board_cache
    with parts.database.read() as session:
        answer = cache.get(
            f"{benchmark_id} {media_type} {query.model_dump_json()}",
            board_version(session, benchmark_id),
            lambda: encode(read_board(session, benchmark, query), write),
        )
    headers = {
        "ETag": answer.etag,
        "Cache-Control": "no-cache",
        "X-Total-Count": str(answer.total),
    }
    if answer.next_cursor is not None:
        following = request.url.include_query_params(cursor=answer.next_cursor)
        headers["Link"] = f'<{following.path}?{following.query}>; rel="next"'
    if request.headers.get("if-none-match") == answer.etag:
        return Response(status_code=304, headers=headers)
    return Response(answer.content, media_type=media_type, headers=headers)
