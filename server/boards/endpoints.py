"""Leaderboards as JSON and CSV, their records, comparisons and races."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response

from finishline.api.boards import BoardView
from finishline.api.comparisons import SubmissionComparison
from server.base.services import ServicesDep
from server.benchmarks.definitions import find_benchmark
from server.boards.board import Board, PreviewView, preview_board, read_board
from server.boards.compare import compare_submissions
from server.boards.encoding import answer_board, encode, encode_csv, encode_json, place_headers
from server.boards.lineage import IdeaList, list_ideas
from server.boards.live import RaceView, read_race
from server.boards.query import BoardQuery
from server.boards.records import RecordList, list_records
from server.people.dependencies import OrganiserDep
from server.people.signed_in import ViewerDep, viewer_for

router = APIRouter(tags=["leaderboards"])
races = APIRouter(tags=["verifications"])
BoardQueryDep = Annotated[BoardQuery, Query()]
SubmissionsDep = Annotated[
    str,
    Query(
        max_length=200,
        description="Two to six submission ids, separated by commas.",
        json_schema_extra={"pattern": "^[a-z0-9]+(,[a-z0-9]+){1,5}$"},
    ),
]
CSV_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"text/csv": {}}, "description": "The same board as CSV."}
}


@router.get("/leaderboards/{benchmark_id}.csv", response_class=Response, responses=CSV_ANSWER)
def get_board_csv(
    benchmark_id: str, query: BoardQueryDep, services: ServicesDep, request: Request
) -> Response:
    """The same board as CSV."""
    return _answer(services, request, benchmark_id, query, encode_csv, "text/csv; charset=utf-8")


@router.get("/leaderboards/{benchmark_id}", response_model=BoardView)
def get_board(
    benchmark_id: str, query: BoardQueryDep, services: ServicesDep, request: Request
) -> Response:
    """A benchmark's leaderboard: ranked entries, then unranked ones with the reason."""
    return _answer(services, request, benchmark_id, query, encode_json, "application/json")


@router.get("/leaderboards/{benchmark_id}/preview", response_model=PreviewView)
def get_preview(
    benchmark_id: str,
    query: BoardQueryDep,
    services: ServicesDep,
    caller: OrganiserDep,
    request: Request,
) -> Response:
    """The board as if its embargo were over now; for organisers, and kept by nobody."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read_snapshot(viewer_for(caller)) as session:
        board, _ = preview_board(session, benchmark, query)
    answer = encode(board, encode_json)
    headers = {"Cache-Control": "private, no-store", **place_headers(request, answer)}
    return Response(answer.content, media_type="application/json", headers=headers)


@router.get("/benchmarks/{benchmark_id}/records")
def get_records(benchmark_id: str, services: ServicesDep) -> RecordList:
    """The holders of each board with their dates, and the lower times that took no record.

    A measured time takes the record by a head-to-head with the holder. A published one must beat
    its holder by more than chance, by Welch's one-sided test.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        return list_records(session, benchmark)


@router.get("/benchmarks/{benchmark_id}/ideas")
def get_ideas(benchmark_id: str, services: ServicesDep) -> IdeaList:
    """Code submissions with a public source, by hardware class, and the seconds that each gained.

    At most the latest 500.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        return list_ideas(session, benchmark)


@router.get("/compare")
def get_comparison(
    submissions: SubmissionsDep, services: ServicesDep, viewer: ViewerDep
) -> SubmissionComparison:
    """Every pair of two to six submissions of one benchmark: who is faster, and how surely."""
    with services.database.read(viewer) as session:
        return compare_submissions(session, submissions)


@races.get("/verifications/{verification_id}/race")
def get_race(verification_id: str, services: ServicesDep, viewer: ViewerDep) -> RaceView:
    """A replay's runs so far, beside the record's ghost and the claim's."""
    with services.database.read(viewer) as session:
        return read_race(session, verification_id)


def _answer(
    services: ServicesDep,
    request: Request,
    benchmark_id: str,
    query: BoardQuery,
    write: Callable[[Board], bytes],
    media_type: str,
) -> Response:
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    return answer_board(
        services,
        request,
        benchmark_id,
        media_type,
        lambda session: encode(read_board(session, benchmark, query), write),
    )


router.include_router(races)
