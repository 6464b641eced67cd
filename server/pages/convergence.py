"""Page of a benchmark's convergence: the curves of its reference."""

from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse

from server.base.services import ServicesDep
from server.benchmarks.convergence import convergence_view
from server.benchmarks.queries import find_benchmark
from server.benchmarks.views import benchmark_view
from web.curves_chart import convergence_figure
from web.render import render

router = APIRouter(include_in_schema=False)


@router.get("/benchmarks/{benchmark_id}/convergence", response_class=HTMLResponse)
def convergence_page(benchmark_id: str, services: ServicesDep) -> str:
    """The reference's convergence, and the submissions on it."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        convergence = convergence_view(session, benchmark)
    shown = benchmark_view(benchmark)
    return render(
        "convergence.html",
        benchmark=shown.model_dump(mode="json"),
        convergence=convergence.model_dump(mode="json"),
    )


@router.get("/benchmarks/{benchmark_id}/charts/convergence.json")
def convergence_chart(benchmark_id: str, services: ServicesDep) -> dict[str, Any]:
    """Convergence against batch size."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        return convergence_figure(convergence_view(session, benchmark).model_dump(mode="json"))
