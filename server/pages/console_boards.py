"""Show benchmarks in the console: definitions, phases, prices, calibrations, previews."""

from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request
from fastapi.responses import RedirectResponse, Response
from sqlalchemy import select
from sqlalchemy.orm import Session
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
from server.base.database import benchmarks_of, find_row, utc_now
from server.base.errors import ServerError
from server.base.forms import with_form
from server.base.models import PriceRow, Submission
from server.benchmarks import phases, prices
from server.benchmarks.definitions import (
    added_benchmarks,
    definition_text,
    find_benchmark,
    pinned_files,
    read_benchmark_file,
)
from server.benchmarks.endpoints import NO_SUBMISSIONS, benchmark_view, count_submissions
from server.benchmarks.in_force import add_benchmark
from server.boards.board import preview_board
from server.pages.board import (
    REFUSALS,
    PageQuery,
    Problem,
    problems_of,
    query_instead,
    times_of_board,
)
from server.pages.declared import PAGES, Console, Context, OrganiserDep, page, plain
from server.pages.submit import files_of_folder, refusal_of
from server.people.callers import leave_notice, require_same_origin
from server.verifications import calibrations as views
from server.verifications.calibrations import CONSOLE, ONE

router = APIRouter(include_in_schema=False)
ADDED = "/console/benchmarks"
PARTS = f"The folder of a benchmark: {FILE} and the files that it pins"
FIELDS = ("benchmark", "definition", "reason")


@page(ADDED, "benchmarks.html", role="organiser")
def benchmarks_page(session: Session, benchmark: str = "") -> Context:
    """Show the benchmarks, and the form to add one or a later version of `benchmark`."""
    added, counts = added_benchmarks(session), count_submissions(session, benchmarks_of(session))
    rows = []
    for name, one in sorted(benchmarks_of(session).items()):
        count = counts.get(name, NO_SUBMISSIONS)
        entries = count_text(count.train + count.inference, "entry", "entries")
        row = {"id": name, "title": one.title, "version": one.version, "entries": entries}
        rows.append(row | {"is_added": name in added})
    known = benchmarks_of(session).get(benchmark)
    return {
        "typed": {"benchmark": benchmark, "definition": _stored_text(session, known)},
        "benchmarks": rows,
        "chosen": next((row for row in rows if row["id"] == benchmark), None),
    }


@router.post(ADDED)
async def add(request: Request, console: OrganiserDep) -> Response:
    """Check the files and offer the benchmark, or list every problem."""
    return await with_form(
        request, lambda form: _add(request, console, form), max_files=MOST_FILES + 2, parts=PARTS
    )


def _add(request: Request, console: Console, form: FormData) -> Response:
    require_same_origin(request)
    typed = {name: str(form.get(name) or "") for name in FIELDS}
    try:
        files = _files(console, form, typed)
        benchmark, changed = add_benchmark(
            console.services, console.caller, files, reason=typed["reason"].strip() or None
        )
    except (RuleError, ServerError) as error:
        return PAGES[ADDED].show(console, typed, typed=typed, refusal=refusal_of(error))
    told = f"{benchmark.title}, version {benchmark.version}, is offered."
    if not typed["benchmark"]:
        told += " To measure its reference, hand the folder reference in at Submit."
    leave_notice(request, told if changed else "Nothing has changed.")
    return RedirectResponse(ADDED, status_code=303)


def _stored_text(session: Session, known: Benchmark | None) -> str:
    return "" if known is None else definition_text(session, known).decode()


def _files(console: Console, form: FormData, typed: Mapping[str, str]) -> dict[str, bytes]:
    chosen = files_of_folder(form, most_bytes=LARGEST_BYTES)
    chosen = {name: content for name, content in chosen.items() if belongs(name)}
    known = console.services.benchmarks.get(typed["benchmark"])
    text = typed["definition"].replace("\r\n", "\n")
    with console.services.database.read(console.viewer) as session:
        is_changed = text.strip() != _stored_text(session, known).strip()
    # The form starts with the stored text. Only a changed text replaces the folder's.
    if text.strip() and (FILE not in chosen or is_changed):
        chosen[FILE] = text.encode()
    if known is None:
        return chosen
    for name, sha256 in pinned_files(known).items():
        if name not in chosen:
            chosen[name] = read_benchmark_file(console.services, known, name, sha256)
    return chosen


Chosen = Annotated[str, Query(max_length=100)]


@page(phases.CONSOLE, "phases.html", role="organiser")
def phases_page(session: Session, benchmark: Chosen = "") -> Context:
    """Show every benchmark with its phase, and the dates and history of a chosen one."""
    dates, now = phases.all_current_dates(session), utc_now()
    every: list[dict[str, Any]] = [
        {
            "id": name,
            "title": one.title,
            "phases": phases.phases_at(dates.get(name, phases.NO_DATES), now, one),
        }
        for name, one in benchmarks_of(session).items()
    ]
    chosen = next((one for one in every if one["id"] == benchmark), None)
    if chosen is None:
        return {"typed": {}, "benchmarks": every, "chosen": None}
    # The current dates as values for a browser's fields. Sent back unchanged, they keep the dates.
    current = chosen["phases"].model_dump(mode="json", include=set(phases.DATES))
    history = phases.get_phases(session, benchmark).history
    return {
        "typed": {name: moment.removesuffix("Z") for name, moment in current.items() if moment},
        "benchmarks": every,
        "chosen": chosen | {"history": history},
    }


Number = Annotated[int | None, Query(ge=1, le=2**31 - 1)]


@page(prices.CONSOLE, "prices.html", role="organiser")
def prices_page(session: Session, supersedes: Number = None) -> Context:
    """Show the price book and its form. With `supersedes` the form holds the entry to correct."""
    typed = {"effective_on": utc_now().date().isoformat()}
    if supersedes is not None:
        entry = prices.price_view(find_row(session, PriceRow, supersedes)).model_dump()
        # As text, because a count of 0 would look like an empty field.
        fields = prices.PriceCreate.model_fields
        typed = {name: str(entry[name]) for name in fields if entry[name] is not None}
        typed["supersedes"] = str(supersedes)
    return {"typed": typed, "prices": prices.list_prices(session, prices.PriceQuery()).prices}


LATEST = 50


@page(CONSOLE, "calibrations.html", role="organiser")
def calibrations_page(session: Session) -> Context:
    """Show the calibrations, and the form to start one."""
    offered = sorted(benchmarks_of(session).items())
    return {
        "typed": {"runs": "20"},
        "calibrations": views.list_calibrations(session, limit=LATEST).calibrations,
        "benchmarks": [name for name, made in offered if made.replay is not None],
    }


@page(ONE, "calibration.html", role="organiser")
def calibration_page(session: Session, calibration_id: str) -> Context:
    """Show a calibration's progress, and the forms to adopt, continue or cancel it."""
    return {"calibration": views.get_calibration(session, calibration_id)}


@page("/console/leaderboards/{benchmark_id}/preview", "preview.html", role="organiser")
def preview_page(session: Session, request: Request, benchmark_id: str) -> Context:
    """Show a board without its embargo. An invalid query gets a message for each wrong field."""
    benchmark = find_benchmark(benchmarks_of(session), benchmark_id)
    typed: Context = dict(request.query_params)
    problems: list[Problem] = []
    try:
        query = PageQuery.model_validate(typed)
        board, ranked = preview_board(session, benchmark, query)
        typed = query.model_dump(mode="json", exclude_defaults=True)
    except REFUSALS as error:
        problems = problems_of(error, typed)
        board, ranked = preview_board(session, benchmark, query_instead(typed, problems))
    of_it = Submission.benchmark_id == benchmark_id
    kinds = session.scalars(select(Submission.kind).where(of_it).distinct()).all()
    boards = select(Submission.kind, Submission.division).distinct()
    published = session.execute(boards.where(of_it, Submission.evidence == "published"))
    around = {"round": board["round"], "published": sorted(tuple(row) for row in published)}
    return {
        "benchmark": plain(benchmark_view(benchmark)) | around,
        "board": board,
        "facets": ranked.facets,
        "place": ranked.first_place,
        "time": times_of_board(benchmark, ranked),
        "filters": typed,
        "kinds": kinds,
        "problems": problems,
        "status": 422 if problems else 200,
    }
