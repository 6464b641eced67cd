"""Endpoints of organisers' own benchmarks: add one, and read the files of any."""

from functools import partial
from typing import Any

from fastapi import APIRouter, Request, Response
from starlette.datastructures import FormData

from finishline.api.benchmarks import BenchmarkView
from finishline.rules.trainings.own_benchmark import FILE, LARGEST_BYTES, MOST_FILES
from server.base.errors import NotFoundError
from server.base.forms import files_part, multipart_body, read_files, read_text, with_form
from server.base.services import Services, ServicesDep
from server.benchmarks.added import add_benchmark
from server.benchmarks.files import read_benchmark_file
from server.benchmarks.queries import find_benchmark
from server.benchmarks.views import benchmark_view
from server.people.dependencies import Caller, OrganiserDep

router = APIRouter(tags=["benchmarks"])
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
FILE_ANSWER: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {}}, "description": "The file, byte for byte."}
}


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
    pinned = benchmark.trainings.files if benchmark.trainings is not None else {}
    if name not in pinned:
        known = ", ".join(pinned) or "none"
        raise NotFoundError(f"Benchmark {benchmark_id} has no file {name!r}; it has: {known}.")
    content = read_benchmark_file(services, benchmark, name, pinned[name])
    return Response(
        content,
        media_type="application/octet-stream",
        headers={"X-Content-Type-Options": "nosniff"},
    )
