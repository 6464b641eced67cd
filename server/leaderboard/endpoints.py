"""Leaderboards as JSON and CSV."""

from collections.abc import Callable
from typing import Any

from fastapi import APIRouter, Request, Response

from server.benchmarks.queries import find_benchmark
from server.dependencies import OrganiserDep, PartsDep
from server.leaderboard.answers import answer_board, place_headers
from server.leaderboard.encoding import encode, encode_csv, encode_json
from server.leaderboard.preview import preview_board
from server.leaderboard.queries import Board, read_board
from server.leaderboard.schemas import BoardQuery, BoardQueryDep, BoardView, PreviewView
from server.submissions.visibility import viewer_for

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


@router.get("/leaderboards/{benchmark_id}/preview", response_model=PreviewView)
def get_preview(
    benchmark_id: str, query: BoardQueryDep, parts: PartsDep, caller: OrganiserDep, request: Request
) -> Response:
    """The board as if its embargo were over now; for organisers, and kept by nobody."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read_snapshot(viewer_for(caller)) as session:
        board, _ = preview_board(session, benchmark, query)
    answer = encode(board, encode_json)
    headers = {"Cache-Control": "private, no-store", **place_headers(request, answer)}
    return Response(answer.content, media_type="application/json", headers=headers)


def _answer(
    parts: PartsDep,
    request: Request,
    benchmark_id: str,
    query: BoardQuery,
    write: Callable[[Board], bytes],
    media_type: str,
) -> Response:
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    return answer_board(
        parts,
        request,
        benchmark_id,
        query,
        media_type,
        lambda session: encode(read_board(session, benchmark, query), write),
    )
