"""Endpoints of calibrations, and their views: progress, runs, comparisons."""

from collections.abc import Mapping
from typing import Annotated

from fastapi import APIRouter, Query
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.verification.calibration import runs_sha256
from server.base.errors import ContentError
from server.base.models import Calibration, CalibrationRunRow, Verification
from server.base.services import ServicesDep
from server.base.standing import OPEN
from server.benchmarks import calibrations as queries
from server.benchmarks.calibrations import (
    adopted_calibration,
    band_at,
    chunks_of,
    convergence_at,
    finished_runs,
    reference_runs,
)
from server.benchmarks.calibrations import compare_calibrations as compare_runs
from server.benchmarks.definitions import definition
from server.people.dependencies import OrganiserDep
from server.verifications import calibrations
from server.verifications.calibrations import (
    BatchSizeView,
    CalibrationAdopt,
    CalibrationComparison,
    CalibrationContinue,
    CalibrationCreate,
    CalibrationList,
    CalibrationRuns,
    CalibrationSummary,
    CalibrationView,
    ChunkView,
)

Offered = Mapping[str, Benchmark]


def summary(calibration: Calibration, *, finished: int, offered: Offered) -> CalibrationSummary:
    """Summary of a calibration; `offered` are the current benchmark definitions by id."""
    adopter = calibration.adopter
    current = offered.get(calibration.benchmark_id)
    return CalibrationSummary.of(
        calibration,
        benchmark=calibration.benchmark_id,
        requested_by=calibration.requester.name,
        precision=calibration.precision or own_precision(current),
        runs_planned=calibration.runs * len(calibration.batch_sizes),
        runs_finished=finished,
        adopted_by=adopter.name if adopter is not None else None,
        outdated=current is None or current.sha256 != calibration.benchmark_sha256,
    )


def own_precision(benchmark: Benchmark | None) -> str | None:
    """Precision that a reference trains in by itself; None where it depends on the device."""
    if benchmark is None or benchmark.replay is None:
        return None
    return next(iter(benchmark.replay.precisions), None)


def calibration_view(
    session: Session, calibration: Calibration, offered: Offered
) -> CalibrationView:
    """View of a calibration with the progress of every batch size."""
    session.flush()
    session.refresh(calibration)
    benchmark = definition(session, calibration.benchmark_sha256)
    rows = finished_runs(session, calibration.id)
    chunks = chunks_of(session, calibration.id)
    runs = reference_runs(rows)
    judging = adopted_calibration(session, calibration.benchmark_sha256, calibration.precision)
    sizes = [
        _size_view(benchmark, rows, runs, chunks, size, planned=calibration.runs)
        for size in calibration.batch_sizes
    ]
    return CalibrationView(
        **summary(calibration, finished=len(rows), offered=offered).model_dump(),
        judges=judging is not None and judging.id == calibration.id,
        runs_sha256=runs_sha256(runs),
        sizes=sizes,
        chunks=[
            ChunkView.of(
                chunk,
                verification_id=chunk.id,
                batch_size=batch_size_of(chunk),
                why=_why_failed(chunk),
            )
            for chunk in chunks
        ],
    )


def _why_failed(chunk: Verification) -> str | None:
    reasons = chunk.reasons if chunk.state == "failed" else []
    return next((str(reason["message"]) for reason in reasons), None)


def runs_view(session: Session, calibration: Calibration) -> CalibrationRuns:
    """Every finished run of a calibration, to be downloaded."""
    rows = finished_runs(session, calibration.id)
    return CalibrationRuns.of(
        calibration,
        benchmark=calibration.benchmark_id,
        runs_sha256=runs_sha256(reference_runs(rows)),
        runs=rows,
    )


def comparison_view(
    session: Session, first: Calibration, second: Calibration | None
) -> CalibrationComparison:
    """Compare a calibration with another, or with the runs of its benchmark's file."""
    if second is not None and second.benchmark_id != first.benchmark_id:
        raise ContentError(
            f"with: calibration {second.id} measured {second.benchmark_id}; expected one of "
            f"{first.benchmark_id}."
        )
    benchmark = definition(session, first.benchmark_sha256)
    own = reference_runs(finished_runs(session, first.id))
    others: list[ReferenceRun] = list(benchmark.reference_runs)
    if second is not None:
        others = reference_runs(finished_runs(session, second.id))
    return CalibrationComparison(
        first=first.id,
        second=second.id if second is not None else None,
        benchmark=first.benchmark_id,
        sizes=compare_runs(benchmark, own, others),
    )


def batch_size_of(chunk: Verification) -> int:
    """Batch size of all runs of a chunk."""
    return int(chunk.trainings[0].settings["batch_size"])


def _size_view(
    benchmark: Benchmark,
    rows: list[CalibrationRunRow],
    runs: list[ReferenceRun],
    chunks: list[Verification],
    batch_size: int,
    *,
    planned: int,
) -> BatchSizeView:
    known = convergence_at(benchmark, runs, batch_size)
    under_way = [c for c in chunks if c.state in OPEN and batch_size_of(c) == batch_size]
    return BatchSizeView.of(
        known,
        planned=planned,
        finished=sum(row.batch_size == batch_size for row in rows),
        under_way=sum(_trained_so_far(chunk) for chunk in under_way),
        band=band_at(benchmark, runs, batch_size),
    )


def _trained_so_far(chunk: Verification) -> int:
    """Runs before the one in which a chunk's current attempt last posted."""
    latest = chunk.attempts[-1] if chunk.attempts else None
    if latest is None or latest.state != "running" or latest.last_evaluation is None:
        return 0
    return min(int(latest.last_evaluation["run"]), chunk.runs)


router = APIRouter(tags=["calibrations"])


@router.post("/calibrations", status_code=201)
def start_calibration(
    body: CalibrationCreate, services: ServicesDep, caller: OrganiserDep
) -> CalibrationView:
    """Measure a benchmark's reference: secret seeds, to the last epoch, at each batch size."""
    with services.database.write() as session:
        return calibration_view(
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
                summary(item, finished=counts.get(item.id, 0), offered=services.benchmarks)
                for item in found
            ]
        )


@router.get("/calibrations/{calibration_id}")
def get_calibration(calibration_id: str, services: ServicesDep) -> CalibrationView:
    """A calibration: how far it is, epochs to converge and the band at each batch size."""
    with services.database.read() as session:
        return calibration_view(
            session, queries.find_calibration(session, calibration_id), services.benchmarks
        )


@router.get("/calibrations/{calibration_id}/runs")
def get_calibration_runs(calibration_id: str, services: ServicesDep) -> CalibrationRuns:
    """Every finished run behind a calibration: curve, seed, system and software."""
    with services.database.read() as session:
        return runs_view(session, queries.find_calibration(session, calibration_id))


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
        return comparison_view(session, first, second)


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
        return calibration_view(session, calibration, services.benchmarks)


@router.post("/calibrations/{calibration_id}/cancel")
def cancel_calibration(
    calibration_id: str, services: ServicesDep, caller: OrganiserDep
) -> CalibrationView:
    """Cancel the runs under way. Finished runs are kept, and the calibration can be continued."""
    with services.database.write() as session:
        return calibration_view(
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
        return calibration_view(session, calibration, services.benchmarks)
