"""Phases from the console: each benchmark's current phase, and the form that sets its dates."""

from typing import Annotated, Any

from fastapi import Query
from sqlalchemy.orm import Session

from server.base.services import Services
from server.benchmarks import phases
from server.pages.declared import Context, page

Chosen = Annotated[str, Query(max_length=100)]


@page(phases.CONSOLE, "phases.html", role="organiser")
def phases_page(session: Session, services: Services, benchmark: Chosen = "") -> Context:
    """Every benchmark with its phase; of a chosen one the dates, to change, and their history."""
    rows = phases.all_current_phases(session)
    every: list[dict[str, Any]] = [
        {"id": name, "title": one.title, "phases": phases.phases_view(rows.get(name), one)}
        for name, one in services.benchmarks.items()
    ]
    chosen = next((one for one in every if one["id"] == benchmark), None)
    if chosen is None:
        return {"typed": {}, "benchmarks": every, "chosen": None}
    # The current dates as values for a browser's fields; sent back as is they change nothing.
    dates = chosen["phases"].model_dump(mode="json", include=set(phases.DATES))
    history = phases.get_phases(session, services, benchmark).history
    return {
        "typed": {name: moment.removesuffix("Z") for name, moment in dates.items() if moment},
        "benchmarks": every,
        "chosen": chosen | {"history": history},
    }
