"""Endpoints of benchmarks."""

from typing import Any

from fastapi import APIRouter, Response

from finishline.api.benchmarks import BenchmarkList, BenchmarkView
from server.base.database import utc_now
from server.base.services import ServicesDep
from server.benchmarks.convergence import ConvergenceView, convergence_view
from server.benchmarks.phase_queries import all_current_phases, current_phases
from server.benchmarks.queries import (
    NO_SUBMISSIONS,
    count_submissions,
    definition_text,
    find_benchmark,
)
from server.benchmarks.views import benchmark_view, phases_view

router = APIRouter(tags=["benchmarks"])
TOML_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        # Generators of clients know the general type alone.
        # Generators of clients know the general type alone.
        "content": {"application/toml": {}, "text/plain": {}},
        "description": "The definition, byte for byte.",
    }
}


@router.get("/benchmarks")
def list_benchmarks(services: ServicesDep) -> BenchmarkList:
    """List every benchmark, with the number of its submissions."""
    with services.database.read() as session:
        counts = count_submissions(session, services.benchmarks)
        phases = all_current_phases(session)
    now = utc_now()
    return BenchmarkList(
        benchmarks=[
            benchmark_view(
                benchmark,
                counts.get(benchmark_id, NO_SUBMISSIONS),
                phases=phases_view(phases.get(benchmark_id), now),
            )
            for benchmark_id, benchmark in services.benchmarks.items()
        ]
    )


@router.get("/benchmarks/{benchmark_id}.toml", response_class=Response, responses=TOML_ANSWER)
def get_definition(benchmark_id: str, services: ServicesDep) -> Response:
    """Download the definition in force, as a file to train and to check under.

    Its SHA-256 is the `sha256` of the benchmark.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        text = definition_text(session, benchmark, services.settings.benchmarks_dir)
    return Response(text, media_type="application/toml")


@router.get("/benchmarks/{benchmark_id}")
def get_benchmark(benchmark_id: str, services: ServicesDep) -> BenchmarkView:
    """Read a benchmark: its target, clock, data set, phase, and how runs become a result."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        counts = count_submissions(session, [benchmark_id])
        phases = phases_view(current_phases(session, benchmark_id), utc_now())
    return benchmark_view(benchmark, counts.get(benchmark_id, NO_SUBMISSIONS), phases=phases)


@router.get("/benchmarks/{benchmark_id}/convergence")
def get_convergence(benchmark_id: str, services: ServicesDep) -> ConvergenceView:
    """Read epochs or samples to converge by batch size, of the reference and the submissions.

    Without runs of its reference a benchmark has no points.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        return convergence_view(session, benchmark)
