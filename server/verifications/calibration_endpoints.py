"""Calibrations: start, read, continue, cancel, adopt, compare."""

from typing import Annotated

from fastapi import APIRouter, Query

from finishline.api.calibrations import (
    CalibrationAdopt,
    CalibrationComparison,
    CalibrationContinue,
    CalibrationCreate,
    CalibrationList,
    CalibrationRuns,
    CalibrationView,
)
from server.base.services import ServicesDep
from server.benchmarks import calibrations as queries
from server.people.dependencies import OrganiserDep
from server.verifications import calibration_views as views
from server.verifications import calibrations

router = APIRouter(tags=["calibrations"])


@router.post("/calibrations", status_code=201)
def start_calibration(
    body: CalibrationCreate, services: ServicesDep, caller: OrganiserDep
) -> CalibrationView:
    """Measure a benchmark's reference: sealed seeds, to the last epoch, at each batch size."""
    with services.database.write() as session:
        return views.view(
            session,
            calibrations.ask_for_calibration(services, session, caller, body),
            services.benchmarks,
        )


@router.get("/calibrations")
def list_calibrations(
    services: ServicesDep,
    benchmark: Annotated[str | None, Query(max_length=100)] = None,
    limit: Annotated[int, Query(ge=1, le=100)] = 20,
) -> CalibrationList:
    """Calibrations, newest first."""
    with services.database.read() as session:
        counts = queries.count_runs(session)
        found = queries.list_calibrations(session, benchmark_id=benchmark, limit=limit)
        return CalibrationList(
            calibrations=[
                views.summary(item, finished=counts.get(item.id, 0), offered=services.benchmarks)
                for item in found
            ]
        )


@router.get("/calibrations/{calibration_id}")
def get_calibration(calibration_id: str, services: ServicesDep) -> CalibrationView:
    """A calibration: how far it is, epochs to converge and the band at each batch size."""
    with services.database.read() as session:
        return views.view(
            session, queries.find_calibration(session, calibration_id), services.benchmarks
        )


@router.get("/calibrations/{calibration_id}/runs")
def get_calibration_runs(calibration_id: str, services: ServicesDep) -> CalibrationRuns:
    """Every finished run behind a calibration: curve, seed, system and software."""
    with services.database.read() as session:
        return views.runs_view(session, queries.find_calibration(session, calibration_id))


@router.get("/calibrations/{calibration_id}/compare")
def compare_calibrations(
    calibration_id: str,
    services: ServicesDep,
    other: Annotated[str | None, Query(alias="with", max_length=20)] = None,
) -> CalibrationComparison:
    """Compare a calibration with another one, or with the runs of the benchmark's file."""
    with services.database.read() as session:
        first = queries.find_calibration(session, calibration_id)
        second = queries.find_calibration(session, other) if other is not None else None
        return views.comparison_view(session, first, second)


@router.post("/calibrations/{calibration_id}/continue")
def continue_calibration(
    calibration_id: str,
    services: ServicesDep,
    caller: OrganiserDep,
    body: CalibrationContinue | None = None,
) -> CalibrationView:
    """Train the missing runs of every batch size: after a failure, or with more than before."""
    wanted = body or CalibrationContinue()
    with services.database.write() as session:
        calibration = calibrations.go_on_with_calibration(session, caller, calibration_id, wanted)
        return views.view(session, calibration, services.benchmarks)


@router.post("/calibrations/{calibration_id}/cancel")
def cancel_calibration(
    calibration_id: str, services: ServicesDep, caller: OrganiserDep
) -> CalibrationView:
    """Cancel the runs under way. Finished runs are kept, and the calibration can be continued."""
    with services.database.write() as session:
        return views.view(
            session,
            calibrations.end_calibration(session, caller, calibration_id),
            services.benchmarks,
        )


@router.post("/calibrations/{calibration_id}/adopt")
def adopt_calibration(
    calibration_id: str, body: CalibrationAdopt, services: ServicesDep, caller: OrganiserDep
) -> CalibrationView:
    """Judge verifications of this definition by this calibration, if planned after this request."""
    with services.database.write() as session:
        calibration = calibrations.adopt_calibration(
            session, calibration_id, adopted_by=caller, reason=body.reason
        )
        return views.view(session, calibration, services.benchmarks)
