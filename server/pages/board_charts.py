"""The figures of a benchmark's charts."""

from typing import Any

from fastapi import APIRouter

from server.benchmarks.queries import find_benchmark
from server.dependencies import PartsDep
from server.leaderboard.schemas import BoardQueryDep
from server.pages.board_context import board_context
from web.charts import pareto_figure

router = APIRouter(include_in_schema=False)


@router.get("/benchmarks/{benchmark_id}/charts/pareto.json")
def pareto_chart(benchmark_id: str, query: BoardQueryDep, parts: PartsDep) -> dict[str, Any]:
    """TTA against cost."""
    benchmark = find_benchmark(parts.benchmarks, benchmark_id)
    with parts.database.read() as session:
        return pareto_figure(board_context(session, benchmark, query)["board"])
