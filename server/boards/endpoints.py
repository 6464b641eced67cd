"""Leaderboards as JSON and CSV, their records, comparisons and races."""

from collections.abc import Callable
from typing import Annotated, Any

from fastapi import Query, Request, Response
from sqlalchemy.orm import Session

from finishline.api.boards import BoardView
from finishline.api.comparisons import SubmissionComparison
from server.base.services import Services, ServicesDep
from server.base.standing import find_verification
from server.benchmarks.definitions import find_benchmark
from server.boards.board import Board, PreviewView, preview_board, read_board
from server.boards.compare import compare_submissions
from server.boards.encoding import answer_board, encode, encode_csv, encode_json, place_headers
from server.boards.lineage import IdeaList, list_ideas
from server.boards.live import RaceView, read_race
from server.boards.query import BoardQuery
from server.boards.records import RecordList, list_records
from server.people.callers import OrganiserDep, viewer_for
from server.people.declared import Routes

router = Routes(tags=["leaderboards"])
races = Routes(tags=["verifications"])
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


@router.read("/benchmarks/{benchmark_id}/records", to_all=True)
def get_records(session: Session, services: Services, benchmark_id: str) -> RecordList:
    """The holders of each board with their dates, and the lower times that took no record.

    A measured time takes the record by a head-to-head with the holder. A published one must beat
    its holder by more than chance, by Welch's one-sided test.
    """
    return list_records(session, find_benchmark(services.benchmarks, benchmark_id))


@router.read("/benchmarks/{benchmark_id}/ideas", to_all=True)
def get_ideas(session: Session, services: Services, benchmark_id: str) -> IdeaList:
    """Code submissions with a public source, by hardware class, and the seconds that each gained.

    At most the latest 500.
    """
    return list_ideas(session, find_benchmark(services.benchmarks, benchmark_id))


@router.read("/compare")
def get_comparison(session: Session, submissions: SubmissionsDep) -> SubmissionComparison:
    """Every pair of two to six submissions of one benchmark: who is faster, and how surely."""
    return compare_submissions(session, submissions)


@races.read("/verifications/{verification_id}/race")
def get_race(session: Session, verification_id: str) -> RaceView:
    """A replay's runs so far, beside the record's ghost and the claim's."""
    return read_race(session, find_verification(session, verification_id))


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
