"""Views of calibrations: their progress, their runs, and how two compare."""

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Any

from fastapi import Query
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.verification.calibration import runs_sha256
from finishline.rules.verification.messages import ControlPoint
from server.base.errors import ContentError
from server.base.models import Calibration, Verification
from server.base.services import Services
from server.base.standing import OPEN
from server.benchmarks import calibrations as queries
from server.benchmarks.calibrations import (
    SizeComparisonView,
    adopted_calibration,
    band_at,
    chunks_of,
    convergence_at,
    find_calibration,
    finished_runs,
    reference_runs,
)
from server.benchmarks.definitions import definition
from server.people.declared import Routes

router = Routes(tags=["calibrations"])


class BatchSizeView(Schema):
    """One batch size: its runs, also those not yet reported, and their epochs to the target."""

    batch_size: int
    planned: int
    finished: int
    under_way: int
    reached: int
    epochs: list[float]
    mean: float | None
    stdev: float | None
    band: list[ControlPoint]


class ChunkView(Schema):
    """The measured runs of one verification of a calibration. `why` is a sentence if it failed."""

    verification_id: str
    batch_size: int
    runs: int
    state: str
    why: str | None = None


class CalibrationSummary(Schema):
    """A calibration in one line. `version` counts per benchmark.

    `precision` is None where the reference chooses by the device. An `outdated` one judges no
    verification any more: the benchmark's definition has changed since, or is gone.
    """

    id: str
    benchmark: str
    benchmark_sha256: str
    version: int
    state: str
    reason: str | None
    requested_by: str
    batch_sizes: list[int]
    precision: str | None
    runs: int
    runs_planned: int
    runs_finished: int
    created_at: datetime
    ended_at: datetime | None
    adopted_at: datetime | None
    adopted_by: str | None
    adopted_because: str | None
    outdated: bool


class CalibrationView(CalibrationSummary):
    """A calibration: each batch size, and the verifications its runs were made in.

    `runs_sha256` is part of a verification's seal. `judges` is whether verifications that are
    planned today for this definition are judged by it.
    """

    judges: bool
    runs_sha256: str
    sizes: list[BatchSizeView]
    chunks: list[ChunkView]


class CalibrationList(Schema):
    """Calibrations, newest first."""

    calibrations: list[CalibrationSummary]


class CalibrationRunView(Schema):
    """One run: its curve, on which system, and in which verification its seed was sealed."""

    batch_size: int
    seed: int
    status: str
    quality: list[float]
    seconds: list[float]
    verification_id: str
    system: dict[str, Any]


class CalibrationRuns(Schema):
    """Every finished run of a calibration."""

    id: str
    benchmark: str
    benchmark_sha256: str
    version: int
    runs_sha256: str
    created_at: datetime
    runs: list[CalibrationRunView]


class CalibrationComparison(Schema):
    """Two calibrations. `second` is None for a comparison with the benchmark file's own runs."""

    first: str
    second: str | None
    benchmark: str
    sizes: list[SizeComparisonView]


def summary(
    calibration: Calibration, *, finished: int, offered: Mapping[str, Benchmark]
) -> CalibrationSummary:
    """Summary of a calibration; `offered` are the current benchmark definitions by id."""
    adopter, current = calibration.adopter, offered.get(calibration.benchmark_id)
    replay = None if current is None else current.replay
    own_precision = None if replay is None else next(iter(replay.precisions), None)
    return CalibrationSummary.of(
        calibration,
        benchmark=calibration.benchmark_id,
        requested_by=calibration.requester.name,
        precision=calibration.precision or own_precision,
        runs_planned=calibration.runs * len(calibration.batch_sizes),
        runs_finished=finished,
        adopted_by=None if adopter is None else adopter.name,
        outdated=current is None or current.sha256 != calibration.benchmark_sha256,
    )


Limit = Annotated[int, Query(ge=1, le=100)]
BenchmarkId = Annotated[str | None, Query(max_length=100)]


@router.read("/calibrations")
def list_calibrations(
    session: Session, services: Services, benchmark: BenchmarkId = None, limit: Limit = 20
) -> CalibrationList:
    """Calibrations, newest first."""
    counts = queries.count_runs(session)
    found = queries.list_calibrations(session, benchmark_id=benchmark, limit=limit)
    offered = services.benchmarks
    return CalibrationList(
        calibrations=[
            summary(each, finished=counts.get(each.id, 0), offered=offered) for each in found
        ]
    )


@router.read("/calibrations/{calibration_id}")
def get_calibration(session: Session, services: Services, calibration_id: str) -> CalibrationView:
    """A calibration: how far it is, epochs to converge and the band at each batch size."""
    calibration = find_calibration(session, calibration_id)
    benchmark = definition(session, calibration.benchmark_sha256)
    rows, chunks = finished_runs(session, calibration.id), chunks_of(session, calibration.id)
    runs = reference_runs(rows)
    judging = adopted_calibration(session, calibration.benchmark_sha256, calibration.precision)
    sizes = []
    for size in calibration.batch_sizes:
        under_way = (each for each in chunks if each.state in OPEN and batch_size_of(each) == size)
        sizes.append(
            BatchSizeView.of(
                convergence_at(benchmark, runs, size),
                planned=calibration.runs,
                finished=sum(row.batch_size == size for row in rows),
                under_way=sum(_trained_so_far(chunk) for chunk in under_way),
                band=band_at(benchmark, runs, size),
            )
        )
    shown = summary(calibration, finished=len(rows), offered=services.benchmarks)
    return CalibrationView(
        **shown.model_dump(),
        judges=judging is not None and judging.id == calibration.id,
        runs_sha256=runs_sha256(runs),
        sizes=sizes,
        chunks=[
            ChunkView.of(
                chunk,
                verification_id=chunk.id,
                batch_size=batch_size_of(chunk),
                why=chunk.reasons[0]["message"] if chunk.state == "failed" else None,
            )
            for chunk in chunks
        ],
    )


def batch_size_of(chunk: Verification) -> int:
    """Batch size of all runs of a chunk."""
    return int(chunk.trainings[0].settings["batch_size"])


def _trained_so_far(chunk: Verification) -> int:
    """Runs before the one in which a chunk's current attempt last posted."""
    latest = chunk.attempts[-1]
    if latest.state != "running" or latest.last_evaluation is None:
        return 0
    return min(int(latest.last_evaluation["run"]), chunk.runs)


@router.read("/calibrations/{calibration_id}/runs")
def get_calibration_runs(session: Session, calibration_id: str) -> CalibrationRuns:
    """Every finished run behind a calibration: curve, seed, system and software."""
    calibration = find_calibration(session, calibration_id)
    rows = finished_runs(session, calibration_id)
    return CalibrationRuns.of(
        calibration,
        benchmark=calibration.benchmark_id,
        runs_sha256=runs_sha256(reference_runs(rows)),
        runs=rows,
    )


@router.read("/calibrations/{calibration_id}/compare")
def compare_calibrations(
    session: Session,
    calibration_id: str,
    other: Annotated[str | None, Query(alias="with", max_length=20)] = None,
) -> CalibrationComparison:
    """Compare a calibration with another one, or with the runs of the benchmark's file."""
    first = find_calibration(session, calibration_id)
    second = None if other is None else find_calibration(session, other)
    if second is not None and second.benchmark_id != first.benchmark_id:
        raise ContentError(
            f"with: calibration {second.id} measured {second.benchmark_id}; expected one of "
            f"{first.benchmark_id}."
        )
    benchmark = definition(session, first.benchmark_sha256)
    own = reference_runs(finished_runs(session, first.id))
    others = list(benchmark.reference_runs)
    if second is not None:
        others = reference_runs(finished_runs(session, second.id))
    return CalibrationComparison(
        first=first.id,
        second=other,
        benchmark=first.benchmark_id,
        sizes=queries.compare_calibrations(benchmark, own, others),
    )
