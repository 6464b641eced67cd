"""The page of a benchmark: its leaderboard."""

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.benchmarks.queries import find_benchmark
from server.dependencies import PartsDep
from server.leaderboard.schemas import BoardQueryDep
from server.pages.board_context import board_context
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/benchmarks/{benchmark_id}", response_class=HTMLResponse)
def benchmark_page(benchmark_id: str, query: BoardQueryDep, parts: PartsDep) -> str:
    """A leaderboard."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        context = board_context(session, benchmark, query)
    return render("benchmark.html", **context)
