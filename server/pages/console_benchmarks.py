"""Benchmarks of organisers' own from the console: add one, or a later version of it."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from fastapi.responses import HTMLResponse, Response
from starlette.datastructures import FormData

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.text import count_text
from finishline.rules.trainings.own_benchmark import (
    FILE,
    LARGEST_BYTES,
    MOST_FILES,
    belongs,
)
from server.base.errors import ServerError
from server.base.forms import with_form
from server.benchmarks.definitions import (
    added_benchmarks,
    definition_text,
    pinned_files,
    read_benchmark_file,
)
from server.benchmarks.in_force import add_benchmark
from server.benchmarks.views import count_submissions
from server.pages.chosen_files import files_of_folder
from server.pages.console_page import Console, OrganiserDep
from server.pages.submit import refusal_of
from server.people.callers import Notice, require_same_origin

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/benchmarks"
PARTS = f"The folder of a benchmark: {FILE} and the files that it pins"
FIELDS = ("benchmark", "definition", "reason")


@router.get(ADDRESS)
def benchmarks_page(console: OrganiserDep, benchmark: str = "") -> HTMLResponse:
    """The benchmarks, and the form that adds one or a later version of the one that is named."""
    typed = {"benchmark": benchmark, "definition": ""}
    known = console.services.benchmarks.get(benchmark)
    if known is not None:
        typed["definition"] = _stored_text(console, known)
    return _page(console, typed)


@router.post(ADDRESS)
async def add(request: Request, console: OrganiserDep) -> Response:
    """Check the files and offer the benchmark, or list every problem."""
    return await with_form(
        request, lambda form: _add(request, console, form), max_files=MOST_FILES + 2, parts=PARTS
    )


def _add(request: Request, console: Console, form: FormData) -> Response:
    require_same_origin(request, console.services.settings)
    typed = {name: str(form.get(name) or "") for name in FIELDS}
    try:
        files = _files(console, form, typed)
        benchmark, changed = add_benchmark(
            console.services, console.caller, files, reason=typed["reason"].strip() or None
        )
    except (RuleError, ServerError) as error:
        return _page(console, typed, refusal_of(error))
    told = f"{benchmark.title}, version {benchmark.version}, is offered."
    if not typed["benchmark"]:
        told += " To measure its reference, hand the folder reference in at Submit."
    return console.go_on(ADDRESS, Notice(told if changed else "Nothing has changed."))


def _stored_text(console: Console, known: Benchmark | None) -> str:
    """The text of a known definition, as the form offers it; empty for none."""
    if known is None:
        return ""
    with console.services.database.read(console.viewer) as session:
        return definition_text(session, known).decode()


def _files(console: Console, form: FormData, typed: Mapping[str, str]) -> dict[str, bytes]:
    """The chosen files, the definition as typed, and of a known benchmark the files left out."""
    chosen = files_of_folder(form, most_bytes=LARGEST_BYTES)
    chosen = {name: content for name, content in chosen.items() if belongs(name)}
    known = console.services.benchmarks.get(typed["benchmark"])
    text = typed["definition"].replace("\r\n", "\n")
    is_changed = text.strip() != _stored_text(console, known).strip()
    # The form comes with the stored text: only one that was changed goes before the folder's.
    if text.strip() and (FILE not in chosen or is_changed):
        chosen[FILE] = text.encode()
    if known is None:
        return chosen
    for name, sha256 in pinned_files(known).items():
        if name not in chosen:
            chosen[name] = read_benchmark_file(console.services, known, name, sha256)
    return chosen


def _page(
    console: Console, typed: Mapping[str, str], refusal: ServerError | None = None
) -> HTMLResponse:
    services = console.services
    with services.database.read(console.viewer) as session:
        added = added_benchmarks(session)
        counts = count_submissions(session, services.benchmarks)
    rows: list[dict[str, Any]] = []
    for name, one in sorted(services.benchmarks.items()):
        count = counts.get(name)
        entries = 0 if count is None else count.train + count.inference
        rows.append(
            {
                "id": name,
                "title": one.title,
                "version": one.version,
                "entries": count_text(entries, "entry", "entries"),
                "is_added": name in added,
            }
        )
    chosen = next((row for row in rows if row["id"] == typed["benchmark"]), None)
    return console.page(
        "benchmarks.html",
        typed=typed,
        benchmarks=rows,
        chosen=chosen,
        refusal=refusal,
        problems=refusal.problems if refusal is not None else [],
    )
