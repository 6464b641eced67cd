"""Calibrations from the console: start, watch, continue, cancel, adopt."""

import re
from functools import partial
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response
from sqlalchemy.orm import Session

from server.benchmarks import calibrations as queries
from server.pages.console_page import Console, Done, OrganiserDep
from server.people.declared import filled
from server.people.sessions import Notice
from server.people.signed_in import Fields, FormDep
from server.verifications import calibration_endpoints as views
from server.verifications.calibrations import (
    CalibrationAdopt,
    CalibrationContinue,
    CalibrationCreate,
    adopt_calibration,
    ask_for_calibration,
    end_calibration,
    go_on_with_calibration,
)

router = APIRouter(include_in_schema=False)
ADDRESS = "/console/calibrations"
ONE = ADDRESS + "/{calibration_id}"
LATEST = 50


@router.get(ADDRESS)
def calibrations_page(console: OrganiserDep) -> HTMLResponse:
    """The calibrations, and the form that starts one."""
    return _list(console, {"runs": "20"})


@router.post(ADDRESS)
def start(console: OrganiserDep, form: FormDep) -> Response:
    """Start a calibration."""

    def ask(session: Session, wanted: CalibrationCreate) -> Done:
        made = ask_for_calibration(console.services, session, console.caller, wanted)
        return f"{ADDRESS}/{made.id}", Notice("The calibration is started: runs are queued.")

    fields: dict[str, Any] = filled(form)
    sizes = [part for part in re.split(r"[\s,;]+", fields.get("batch_sizes", "")) if part]
    asked = fields | {"batch_sizes": sizes}
    return console.submit(CalibrationCreate, asked, ask, partial(_list, console, form))


@router.get(ONE)
def calibration_page(calibration_id: str, console: OrganiserDep) -> HTMLResponse:
    """A calibration: its progress, and the forms that adopt, continue or cancel it."""
    return _one(console, calibration_id)


@router.post(ONE + "/adopt")
def adopt(calibration_id: str, console: OrganiserDep, form: FormDep) -> Response:
    """Adopt a calibration: verifications planned from then on are judged by it."""

    def adopt_it(session: Session, wanted: CalibrationAdopt) -> Done:
        adopt_calibration(session, calibration_id, adopted_by=console.caller, reason=wanted.reason)
        told = "It is adopted: verifications planned from now on are judged by it."
        return f"{ADDRESS}/{calibration_id}", Notice(told)

    page = partial(_one, console, calibration_id, typed=form)
    return console.submit(CalibrationAdopt, filled(form), adopt_it, page)


@router.post(ONE + "/continue")
def continue_with(calibration_id: str, console: OrganiserDep, _form: FormDep) -> Response:
    """Queue the missing runs of a calibration."""

    def go_on(session: Session) -> Done:
        go_on_with_calibration(session, console.caller, calibration_id, CalibrationContinue())
        return f"{ADDRESS}/{calibration_id}", Notice("The missing runs are queued.")

    return console.change(go_on, partial(_one, console, calibration_id))


@router.post(ONE + "/cancel")
def cancel(calibration_id: str, console: OrganiserDep, _form: FormDep) -> Response:
    """Cancel the runs under way of a calibration; finished runs are kept."""

    def end(session: Session) -> Done:
        end_calibration(session, console.caller, calibration_id)
        told = "The runs under way are cancelled; finished runs are kept."
        return f"{ADDRESS}/{calibration_id}", Notice(told)

    return console.change(end, partial(_one, console, calibration_id))


def _list(console: Console, typed: Fields, **wrong: Any) -> HTMLResponse:
    offered = console.services.benchmarks
    with console.services.database.read(console.viewer) as session:
        counts = queries.count_runs(session)
        found = queries.list_calibrations(session, benchmark_id=None, limit=LATEST)
        shown = [
            views.summary(item, finished=counts.get(item.id, 0), offered=offered) for item in found
        ]
    replayed = [name for name, made in sorted(offered.items()) if made.replay is not None]
    choices = [(name, name) for name in replayed]
    return console.page(
        "calibrations.html", typed=typed, calibrations=shown, benchmarks=choices, **wrong
    )


def _one(console: Console, calibration_id: str, **form: Any) -> HTMLResponse:
    with console.services.database.read(console.viewer) as session:
        found = queries.find_calibration(session, calibration_id)
        shown = views.calibration_view(session, found, console.services.benchmarks)
    return console.page("calibration.html", calibration=shown, **form)
