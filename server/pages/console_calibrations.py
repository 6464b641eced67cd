"""Calibrations from the console: start, watch, continue, cancel, adopt."""

import re
from typing import Any

from fastapi import APIRouter
from fastapi.responses import HTMLResponse, Response

from server.base.errors import ServerError
from server.base.services import Services, ServicesDep
from server.benchmarks import calibrations as queries
from server.pages.console_page import console_page, filled, go_on, read_form
from server.people.sessions import Notice, SignedIn
from server.people.signed_in import ConsoleDep, Fields, FormDep, viewer_for
from server.verifications import calibration_views as views
from server.verifications.calibration_schemas import (
    CalibrationAdopt,
    CalibrationContinue,
    CalibrationCreate,
)
from server.verifications.calibrations import (
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
def calibrations_page(services: ServicesDep, signed_in: ConsoleDep) -> HTMLResponse:
    """The calibrations, and the form that starts one."""
    return _list(services, signed_in, {"runs": "20"})


@router.post(ADDRESS)
def start(services: ServicesDep, signed_in: ConsoleDep, form: FormDep) -> Response:
    """Start a calibration."""
    fields: dict[str, Any] = filled(form)
    sizes = [part for part in re.split(r"[\s,;]+", fields.get("batch_sizes", "")) if part]
    wanted, errors = read_form(CalibrationCreate, fields | {"batch_sizes": sizes})
    if wanted is None:
        return _list(services, signed_in, form, errors=errors)
    try:
        with services.database.write() as session:
            made = ask_for_calibration(services, session, signed_in.caller, wanted)
            address = f"{ADDRESS}/{made.id}"
    except ServerError as error:
        return _list(services, signed_in, form, refusal=error)
    return go_on(
        services, signed_in, address, Notice("The calibration is started: runs are queued.")
    )


@router.get(ONE)
def calibration_page(
    calibration_id: str, services: ServicesDep, signed_in: ConsoleDep
) -> HTMLResponse:
    """A calibration: its progress, and the forms that adopt, continue or cancel it."""
    return _one(services, signed_in, calibration_id)


@router.post(ONE + "/adopt")
def adopt(
    calibration_id: str, services: ServicesDep, signed_in: ConsoleDep, form: FormDep
) -> Response:
    """Adopt a calibration: verifications planned from now on are judged by it."""
    wanted, errors = read_form(CalibrationAdopt, filled(form))
    if wanted is None:
        return _one(services, signed_in, calibration_id, typed=form, errors=errors)
    try:
        with services.database.write() as session:
            adopt_calibration(
                session, calibration_id, adopted_by=signed_in.caller, reason=wanted.reason
            )
    except ServerError as error:
        return _one(services, signed_in, calibration_id, typed=form, refusal=error)
    told = Notice("It is adopted: verifications planned from now on are judged by it.")
    return go_on(services, signed_in, f"{ADDRESS}/{calibration_id}", told)


@router.post(ONE + "/continue")
def continue_with(
    calibration_id: str, services: ServicesDep, signed_in: ConsoleDep, _form: FormDep
) -> Response:
    """Queue the missing runs of a calibration."""
    try:
        with services.database.write() as session:
            go_on_with_calibration(session, signed_in.caller, calibration_id, CalibrationContinue())
    except ServerError as error:
        return _one(services, signed_in, calibration_id, refusal=error)
    told = Notice("What was missing is queued.")
    return go_on(services, signed_in, f"{ADDRESS}/{calibration_id}", told)


@router.post(ONE + "/cancel")
def cancel(
    calibration_id: str, services: ServicesDep, signed_in: ConsoleDep, _form: FormDep
) -> Response:
    """Cancel the runs under way of a calibration; finished runs are kept."""
    try:
        with services.database.write() as session:
            end_calibration(session, signed_in.caller, calibration_id)
    except ServerError as error:
        return _one(services, signed_in, calibration_id, refusal=error)
    told = Notice("What was under way has ended; finished runs are kept.")
    return go_on(services, signed_in, f"{ADDRESS}/{calibration_id}", told)


def _list(services: Services, signed_in: SignedIn, typed: Fields, **wrong: Any) -> HTMLResponse:
    with services.database.read(viewer_for(signed_in.caller)) as session:
        counts = queries.count_runs(session)
        found = queries.list_calibrations(session, benchmark_id=None, limit=LATEST)
        shown = [
            views.summary(item, finished=counts.get(item.id, 0), offered=services.benchmarks)
            for item in found
        ]
    replayed = [
        name for name, made in sorted(services.benchmarks.items()) if made.replay is not None
    ]
    return console_page(
        services,
        signed_in,
        "calibrations.html",
        typed=typed,
        calibrations=[item.model_dump(mode="json") for item in shown],
        benchmarks=[(name, name) for name in replayed],
        **wrong,
    )


def _one(services: Services, signed_in: SignedIn, calibration_id: str, **form: Any) -> HTMLResponse:
    with services.database.read(viewer_for(signed_in.caller)) as session:
        shown = views.view(
            session, queries.find_calibration(session, calibration_id), services.benchmarks
        )
    calibration = shown.model_dump(mode="json")
    return console_page(services, signed_in, "calibration.html", calibration=calibration, **form)
