"""Endpoints of benchmarks: read them, add one, and set the dates of one."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData

from finishline.api.benchmarks import BenchmarkList, BenchmarkView, PhasesView
from finishline.rules.trainings.own_benchmark import FILE, LARGEST_BYTES, MOST_FILES
from server.base.errors import NotFoundError
from server.base.forms import files_part, multipart_body, read_files, read_text, with_form
from server.base.services import Services, ServicesDep
from server.benchmarks import phases
from server.benchmarks.convergence import ConvergenceView, convergence_view
from server.benchmarks.definitions import (
    definition_text,
    find_benchmark,
    pinned_files,
    read_benchmark_file,
)
from server.benchmarks.in_force import add_benchmark
from server.benchmarks.phases import PhasesCreate, PhasesHistory, PhasesSet, phases_view
from server.benchmarks.views import NO_SUBMISSIONS, benchmark_view, count_submissions
from server.people.dependencies import Caller, OrganiserDep

router = APIRouter(tags=["benchmarks"])
TOML_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {
        # Generators of clients know the general type alone.
        "content": {"application/toml": {}, "text/plain": {}},
        "description": "The definition, byte for byte.",
    }
}
FILE_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file, byte for byte."}
}
FIELDS = ("files", "reason")
PARTS = f"A benchmark has parts 'files', {FILE} and the files that it pins"
MULTIPART = multipart_body(
    {
        "files": files_part(
            "The definition, benchmark.toml, and every file that its [trainings.files] pins, each "
            "under its name in the folder."
        ),
        "reason": {"type": "string", "description": "Kept in the audit log."},
    },
    "files",
) | {
    "responses": {"200": {"description": "The same content was added before; nothing changed."}},
}


@router.get("/benchmarks")
def list_benchmarks(services: ServicesDep) -> BenchmarkList:
    """List every benchmark, with the number of its submissions."""
    with services.database.read() as session:
        counts = count_submissions(session, services.benchmarks)
        dates = phases.all_current_phases(session)
    return BenchmarkList(
        benchmarks=[
            benchmark_view(
                benchmark,
                counts.get(benchmark_id, NO_SUBMISSIONS),
                phases=phases_view(dates.get(benchmark_id), benchmark),
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
        return Response(definition_text(session, benchmark), media_type="application/toml")


@router.get("/benchmarks/{benchmark_id}")
def get_benchmark(benchmark_id: str, services: ServicesDep) -> BenchmarkView:
    """Read a benchmark: its target, clock, data set, phase, and how runs become a result."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        counts = count_submissions(session, [benchmark_id])
        dates = phases.current_phases(session, benchmark_id)
    count = counts.get(benchmark_id, NO_SUBMISSIONS)
    return benchmark_view(benchmark, count, phases=phases_view(dates, benchmark))


@router.get("/benchmarks/{benchmark_id}/convergence")
def get_convergence(benchmark_id: str, services: ServicesDep) -> ConvergenceView:
    """Read epochs or samples to converge by batch size, of the reference and the submissions.

    Without runs of its reference a benchmark has no points.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        return convergence_view(session, benchmark)


@router.post("/benchmarks", status_code=201, openapi_extra=MULTIPART)
async def create_benchmark(
    request: Request, response: Response, services: ServicesDep, caller: OrganiserDep
) -> BenchmarkView:
    """Add a benchmark of your own, or a later version of it; it is offered at once.

    409 for an id of the server's own folder and for frozen rules, 422 with every problem of file,
    line and field. The same content again changes nothing and is answered 200.
    """
    view, changed = await with_form(
        request, partial(_add, services, caller), max_files=MOST_FILES + 1, parts=PARTS
    )
    response.headers["Location"] = f"/api/v1/benchmarks/{view.id}"
    if not changed:
        response.status_code = 200
        response.headers["Idempotent-Replayed"] = "true"
    return view


def _add(services: Services, caller: Caller, form: FormData) -> tuple[BenchmarkView, bool]:
    files = read_files(form, fields=FIELDS, most_bytes=LARGEST_BYTES, expected=PARTS)
    reason = read_text(form, "reason", expected="a text")
    benchmark, changed = add_benchmark(services, caller, files, reason=reason)
    return benchmark_view(benchmark), changed


@router.get(
    "/benchmarks/{benchmark_id}/files/{name:path}", response_class=Response, responses=FILE_ANSWER
)
def get_benchmark_file(benchmark_id: str, name: str, services: ServicesDep) -> Response:
    """Download a file that a benchmark's definition pins, such as its task.

    With the definition it is enough to train a code submission at home. Labels are drawn from a
    nonce or are public: a task is no secret.
    """
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    pinned = pinned_files(benchmark)
    if name not in pinned:
        known = ", ".join(pinned) or "none"
        raise NotFoundError(f"Benchmark {benchmark_id} has no file {name!r}; it has: {known}.")
    return Response(
        read_benchmark_file(services, benchmark, name, pinned[name]),
        media_type="application/octet-stream",
        headers={"X-Content-Type-Options": "nosniff"},
    )


@router.get("/benchmarks/{benchmark_id}/phases")
def get_phases(benchmark_id: str, services: ServicesDep) -> PhasesHistory:
    """Read the phase of a benchmark, its dates, and their history, with the reasons."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.read() as session:
        rows = phases.phases_history(session, benchmark_id)
        return PhasesHistory(
            benchmark=benchmark_id,
            phases=phases_view(rows[0] if rows else None, benchmark),
            history=[PhasesSet.of(row, set_by=row.setter.name) for row in rows],
        )


@router.post("/benchmarks/{benchmark_id}/phases", status_code=201)
def set_phases(
    benchmark_id: str, body: PhasesCreate, services: ServicesDep, caller: OrganiserDep
) -> PhasesView:
    """Set all dates of a benchmark, with the reason; a date that is left out is none."""
    benchmark = find_benchmark(services.benchmarks, benchmark_id)
    with services.database.write() as session:
        return phases_view(phases.set_phases(session, caller, benchmark_id, body), benchmark)
