"""Endpoints of a benchmark's phases: read by everybody, set by organisers."""

from fastapi import APIRouter

from finishline.api.benchmarks import PhasesView
from server.base.database import utc_now
from server.base.services import ServicesDep
from server.benchmarks import phase_queries, phases
from server.benchmarks.queries import find_benchmark
from server.benchmarks.views import PhasesCreate, PhasesHistory, phases_set, phases_view
from server.people.dependencies import OrganiserDep

router = APIRouter(tags=["benchmarks"])


@router.get("/benchmarks/{benchmark_id}/phases")
def get_phases(benchmark_id: str, services: ServicesDep) -> PhasesHistory:
    """Read the phase of a benchmark, its dates, and their history, with the reasons."""
    find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        rows = phase_queries.phases_history(session, benchmark_id)
        return PhasesHistory(
            benchmark=benchmark_id,
            phases=phases_view(rows[0] if rows else None, utc_now()),
            history=[phases_set(row) for row in rows],
        )


@router.post("/benchmarks/{benchmark_id}/phases", status_code=201)
def set_phases(
    benchmark_id: str, body: PhasesCreate, services: ServicesDep, caller: OrganiserDep
) -> PhasesView:
    """Set all dates of a benchmark, with the reason; a date that is left out is none."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.write() as session:
        row = phases.set_phases(session, caller, benchmark, body, services.settings.benchmarks_dir)
        return phases_view(row, utc_now())
