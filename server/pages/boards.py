"""The page of a benchmark: its leaderboard."""

from fastapi import APIRouter, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from pydantic import ValidationError
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from server.base.services import ServicesDep
from server.benchmarks.definitions import find_benchmark
from server.boards.encoding import Encoded, answer_board
from server.boards.query import BoardQuery
from server.pages.board_context import (
    REFUSALS,
    PageQuery,
    Problem,
    board_context,
    problems_of,
    refused_context,
)
from web.render import render

router = APIRouter(include_in_schema=False)
HTML = "text/html; charset=utf-8"


@router.get("/benchmarks/{benchmark_id}", response_class=HTMLResponse)
def benchmark_page(benchmark_id: str, services: ServicesDep, request: Request) -> Response:
    """A leaderboard; for an invalid query the form again, with a message for each wrong field."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    typed = dict(request.query_params)
    wants_page = "text/html" in request.headers.get("accept", "")
    try:
        query = PageQuery.model_validate(typed)
        return answer_board(
            services, request, benchmark_id, HTML, lambda s: _page(s, benchmark, query)
        )
    except REFUSALS as error:
        if wants_page:
            return _refusal(services, benchmark, typed, problems_of(error, typed))
        if isinstance(error, ValidationError):
            found = [item | {"loc": ("query", *item["loc"])} for item in error.errors()]
            raise RequestValidationError(found) from error
        raise


def _page(session: Session, benchmark: Benchmark, query: BoardQuery) -> Encoded:
    context = board_context(session, benchmark, query)
    board = context["board"]
    page = render("benchmark.html", **context)
    return Encoded(page.encode(), total=board["total"])


def _refusal(
    services: ServicesDep, benchmark: Benchmark, typed: dict[str, str], problems: list[Problem]
) -> Response:
    with services.database.read() as session:
        context = refused_context(session, benchmark, typed, problems)
    return HTMLResponse(render("benchmark.html", **context), status_code=422)
