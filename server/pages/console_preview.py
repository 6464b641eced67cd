"""The board of a benchmark as it would be without its embargo, on the console."""

from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse
from sqlalchemy import select

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.models import Submission
from server.base.request_context import note
from server.benchmarks.definitions import find_benchmark
from server.benchmarks.views import NO_SUBMISSIONS, benchmark_view
from server.boards.board import preview_board
from server.boards.query import BoardQuery
from server.pages.board_context import REFUSALS, PageQuery, Problem, problems_of, query_instead
from server.pages.board_times import times_of_board
from server.pages.console_page import Console, OrganiserDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/leaderboards/{benchmark_id}/preview"


@router.get(ADDRESS)
def preview_page(benchmark_id: str, console: OrganiserDep, request: Request) -> HTMLResponse:
    """The board; for an invalid query the form again, with a message for each wrong field."""
    note(user_id=console.caller.user_id)
    benchmark = find_benchmark(console.services.benchmarks, benchmark_id)
    typed = dict(request.query_params)
    try:
        query = PageQuery.model_validate(typed)
        filters = query.model_dump(mode="json", exclude_defaults=True)
        return _page(console, benchmark, query, filters)
    except REFUSALS as error:
        problems = problems_of(error, typed)
    return _page(console, benchmark, query_instead(typed, problems), typed, problems)


def _page(
    console: Console,
    benchmark: Benchmark,
    query: BoardQuery,
    filters: dict[str, Any],
    problems: list[Problem] | None = None,
) -> HTMLResponse:
    with console.services.database.read_snapshot(console.viewer) as session:
        board, ranked = preview_board(session, benchmark, query)
        facets = ranked.facets
        of_it = Submission.benchmark_id == benchmark.benchmark_id
        kinds = session.scalars(select(Submission.kind).where(of_it).distinct()).all()
        of_archive = (of_it, Submission.evidence == "published")
        boards = select(Submission.kind, Submission.division).where(*of_archive).distinct()
        published = sorted(tuple(row) for row in session.execute(boards))
    page = console.page(
        "preview.html",
        benchmark=benchmark_view(benchmark, NO_SUBMISSIONS).model_dump(mode="json")
        | {"round": board["round"], "published": published},
        board=board,
        facets=facets,
        time=times_of_board(benchmark, ranked),
        filters=filters,
        kinds=kinds,
        problems=problems or [],
    )
    if problems:
        page.status_code = 422
    return page
