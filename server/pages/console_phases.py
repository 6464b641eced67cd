"""Phases from the console: each benchmark's current phase, and the form that sets its dates."""

from functools import partial
from typing import Annotated, Any

from fastapi import APIRouter, Query
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from server.benchmarks.definitions import find_benchmark
from server.benchmarks.phases import (
    PhasesCreate,
    PhasesSet,
    all_current_phases,
    phases_history,
    phases_view,
    set_phases,
)
from server.pages.console_page import Console, Done, OrganiserDep, renamed
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import FormDep

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/phases"
DATES = ("opens_at", "freezes_at", "closes_at", "embargo_until")
WITHOUT_TIME_ZONE = (len("2026-11-21T18:00"), len("2026-11-21T18:00:00"))
ChosenDep = Annotated[str | None, Query(max_length=100)]
Typed = dict[str, Any]


@router.get(ADDRESS)
def phases_page(console: OrganiserDep, benchmark: ChosenDep = None) -> HTMLResponse:
    """Every benchmark with its phase; of a chosen one the dates, to change, and their history."""
    return _page(console, benchmark or None)


@router.post(ADDRESS)
def change(console: OrganiserDep, form: FormDep) -> Response:
    """Set the dates of a benchmark."""
    typed = filled(form)
    chosen = typed.pop("benchmark", "")

    def set_dates(session: Session, wanted: PhasesCreate) -> Done:
        benchmark = find_benchmark(console.services.benchmarks, chosen)
        row = set_phases(session, console.caller, chosen, wanted)
        return ADDRESS, Notice(f"{chosen}: {phases_view(row, benchmark).sentence}")

    # Dates out of order are the fault of the last of them.
    page = renamed(partial(_page, console, chosen, typed=form), form="closes_at")
    return console.submit(PhasesCreate, _as_sent_to_the_api(typed), set_dates, page)


def _as_sent_to_the_api(typed: dict[str, str]) -> Typed:
    """Convert a browser's fields to the API's: moments get a "Z", as the form says UTC."""
    changed: Typed = dict(typed) | {"unfreeze": typed.get("unfreeze") == "true"}
    for name in DATES:
        text = typed.get(name)
        if text is not None and len(text) in WITHOUT_TIME_ZONE:
            changed[name] = f"{text}Z"
    return changed


def _page(
    console: Console, chosen: str | None, *, typed: Typed | None = None, **wrong: Any
) -> HTMLResponse:
    with console.services.database.read() as session:
        rows = all_current_phases(session)
        history = _history(session, chosen)
    benchmarks = [
        {
            "id": name,
            "title": benchmark.title,
            "phases": phases_view(rows.get(name), benchmark).model_dump(mode="json"),
        }
        for name, benchmark in console.services.benchmarks.items()
    ]
    shown = next((one for one in benchmarks if one["id"] == chosen), None)
    return console.page(
        "phases.html",
        typed=_proposed(shown) if typed is None else typed,
        benchmarks=benchmarks,
        chosen=shown | {"history": history} if shown is not None else None,
        **wrong,
    )


def _history(session: Session, chosen: str | None) -> list[Typed]:
    if chosen is None:
        return []
    rows = phases_history(session, chosen)
    return [PhasesSet.of(row, set_by=row.setter.name).model_dump(mode="json") for row in rows]


def _proposed(shown: Typed | None) -> Typed:
    """The current dates as values for a browser's fields; sent back as is they change nothing."""
    if shown is None:
        return {}
    moments = ((name, shown["phases"][name]) for name in DATES)
    return {name: moment.removesuffix("Z") for name, moment in moments if moment is not None}
