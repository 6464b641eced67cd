"""Calibrations: their bodies and views, and to start, continue, cancel and adopt one."""

import secrets
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.submissions.claim import check_precision, reference_of
from finishline.rules.text import count_text
from finishline.rules.verification.calibration import runs_sha256
from finishline.rules.verification.job import Request
from finishline.rules.verification.messages import ControlPoint, ReplayReport
from finishline.rules.verification.purposes import CALIBRATION
from server.base.database import utc_now
from server.base.errors import ConflictError, ContentError
from server.base.events import CalibrationAdopted, emit
from server.base.forms import NO_FLAG, Body, Reason, example
from server.base.models import Calibration, CalibrationRunRow, Verification
from server.base.services import Services
from server.base.standing import OPEN
from server.benchmarks.calibrations import (
    SizeComparisonView,
    adopted_calibration,
    chunk_sizes,
    chunks_of,
    find_calibration,
    finished_runs,
    has_every_run,
    reference_runs,
    why_not_adoptable,
)
from server.benchmarks.definitions import definition, find_benchmark
from server.people.audit import Subject, record
from server.people.dependencies import Caller
from server.verifications.jobs import Order, new_id, queue_job
from server.verifications.states import move

BatchSize = Annotated[int, Field(ge=1, le=2**31 - 1), NO_FLAG]
BatchSizes = Annotated[list[BatchSize], Field(max_length=16)]
Runs = Annotated[int, Field(ge=1, le=200), NO_FLAG]


class CalibrationCreate(Body):
    """Batch sizes of a benchmark's reference to measure, runs at each, and the precision.

    Without a precision it is the reference's own.
    """

    model_config = example(benchmark="digits", batch_sizes=[32, 64, 128], runs=20)

    benchmark: str = Field(min_length=1, max_length=100)
    batch_sizes: Annotated[BatchSizes, Field(min_length=1)]
    runs: Runs
    precision: PrecisionName | None = None
    reason: Reason | None = None


class CalibrationContinue(Body):
    """Number of runs to reach in a calibration, and batch sizes to add."""

    batch_sizes: BatchSizes | None = None
    runs: Runs | None = None


class CalibrationAdopt(Body):
    """Reason to judge verifications by a calibration."""

    reason: Reason


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


def ask_for_calibration(
    services: Services, session: Session, caller: Caller, wanted: CalibrationCreate
) -> Calibration:
    """Plan, seal and queue runs of the reference at each batch size. Written to the audit log."""
    benchmark = find_benchmark(services.benchmarks, wanted.benchmark)
    if len(set(wanted.batch_sizes)) != len(wanted.batch_sizes):
        raise ContentError(f"batch_sizes: got {wanted.batch_sizes}; expected each size once.")
    _require_trainable(benchmark, wanted.batch_sizes)
    calibration = Calibration(
        id=new_id(),
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        version=_next_version(session, benchmark),
        state="running",
        reason=wanted.reason,
        requested_by=caller.user_id,
        batch_sizes=sorted(wanted.batch_sizes),
        runs=wanted.runs,
        precision=_precision_to_train(benchmark, wanted.precision),
        created_at=utc_now(),
    )
    session.add(calibration)
    session.flush()
    _queue_missing(session, calibration)
    after = wanted.model_dump(exclude={"reason"})
    _record(session, caller, "calibration.start", calibration, wanted.reason, after)
    return calibration


def go_on_with_calibration(
    session: Session, caller: Caller, calibration_id: str, wanted: CalibrationContinue
) -> Calibration:
    """Queue the missing runs of every batch size, those of failed chunks included."""
    calibration = find_calibration(session, calibration_id)
    if calibration.adopted_at is not None:
        raise ConflictError(
            f"Calibration {calibration_id} is adopted and cannot be changed; start another one."
        )
    added = sorted({*calibration.batch_sizes, *(wanted.batch_sizes or ())})
    _require_trainable(definition(session, calibration.benchmark_sha256), added)
    calibration.batch_sizes = added
    calibration.runs = max(calibration.runs, wanted.runs or 0)
    if _queue_missing(session, calibration) == 0:
        raise ConflictError(
            f"Calibration {calibration_id} has or awaits {count_text(calibration.runs, 'run')} at "
            "each of its batch sizes; request more runs."
        )
    calibration.state, calibration.ended_at = "running", None
    after = {"batch_sizes": calibration.batch_sizes, "runs": calibration.runs}
    _record(session, caller, "calibration.continue", calibration, None, after)
    return calibration


def end_calibration(session: Session, caller: Caller, calibration_id: str) -> Calibration:
    """Cancel the chunks under way and keep the finished runs."""
    find_calibration(session, calibration_id)
    under_way = [chunk for chunk in chunks_of(session, calibration_id) if chunk.state in OPEN]
    if not under_way:
        raise ConflictError(f"Calibration {calibration_id} has no runs under way.")
    for chunk in under_way:
        move(session, chunk, "cancel")
    calibration = find_calibration(session, calibration_id)
    if not has_every_run(session, calibration):
        calibration.state = "cancelled"
    _record(session, caller, "calibration.cancel", calibration, None, {"state": calibration.state})
    return calibration


def adopt_calibration(
    session: Session, calibration_id: str, *, adopted_by: Caller, reason: str
) -> Calibration:
    """Judge verifications planned from this moment for its definition by this calibration."""
    calibration = find_calibration(session, calibration_id)
    if calibration.adopted_at is not None:
        raise ConflictError(f"Calibration {calibration_id} is adopted already.")
    if calibration.state == "running":
        raise ConflictError(f"Calibration {calibration_id} is under way: wait for it.")
    benchmark = definition(session, calibration.benchmark_sha256)
    runs = reference_runs(finished_runs(session, calibration_id))
    unable = why_not_adoptable(benchmark, runs)
    if unable is not None:
        raise ConflictError(
            f"Calibration {calibration_id} cannot judge yet: {unable}; continue it with more runs."
        )
    before = adopted_calibration(session, calibration.benchmark_sha256, calibration.precision)
    calibration.adopted_at = utc_now()
    calibration.adopted_by = adopted_by.user_id
    calibration.adopted_because = reason
    emit(session, CalibrationAdopted(calibration))
    record(
        session,
        adopted_by,
        "calibration.adopt",
        Subject("calibration", calibration_id),
        reason=reason,
        before={"calibration": before.id if before is not None else None},
        after={
            "benchmark": calibration.benchmark_id,
            "calibration": calibration_id,
            "precision": calibration.precision,
            "runs": len(runs),
            "reference_runs_sha256": runs_sha256(runs),
        },
    )
    return calibration


def _require_trainable(benchmark: Benchmark, batch_sizes: Sequence[int]) -> None:
    if benchmark.replay is None:
        name = benchmark.benchmark_id
        if benchmark.trainings is not None:
            raise ContentError(
                f"The reference of {name} is a code submission.",
                hint=f"Have it measured: finishline submit {name}/reference.",
            )
        raise ContentError(f"{name} has no reference model to calibrate yet.")
    setting = benchmark.hyperparameters.get("batch_size")
    if setting is None:
        raise ContentError(f"The reference of {benchmark.benchmark_id} has no batch_size to set.")
    for size in batch_sizes:
        if not setting.minimum <= size <= setting.maximum:
            raise ContentError(
                f"batch_sizes: got {size}; expected whole numbers from {setting.minimum:g} to "
                f"{setting.maximum:g}."
            )


def _precision_to_train(benchmark: Benchmark, wanted: PrecisionName | None) -> PrecisionName | None:
    """Precision to tell the reference; None for its own. Raises ContentError for another one."""
    try:
        return reference_of(benchmark).told(check_precision(benchmark, wanted))
    except RuleError as error:
        raise ContentError(f"{error}.") from error


def _next_version(session: Session, benchmark: Benchmark) -> int:
    latest = session.scalar(
        select(func.max(Calibration.version)).where(
            Calibration.benchmark_id == benchmark.benchmark_id
        )
    )
    return (latest or 0) + 1


def _queue_missing(session: Session, calibration: Calibration) -> int:
    benchmark = definition(session, calibration.benchmark_sha256)
    _require_trainable(benchmark, calibration.batch_sizes)
    chunks = chunks_of(session, calibration.id)
    taken = {seed for chunk in chunks for seed in chunk.seeds}
    counted = [row.batch_size for row in finished_runs(session, calibration.id)]
    for chunk in chunks:
        if chunk.state in OPEN:
            counted += [int(each.settings["batch_size"]) for each in chunk.trainings]
    queued = 0
    for size in calibration.batch_sizes:
        missing = max(0, calibration.runs - counted.count(size))
        for runs in chunk_sizes(missing):
            wishes = {
                "runs": runs,
                "taken": taken,
                "batch_size": size,
                "precision": calibration.precision,
            }
            request = Request(benchmark, secrets.token_bytes(32), wishes=wishes)
            order = Order(
                CALIBRATION,
                request,
                calibration_id=calibration.id,
                requested_by=calibration.requested_by,
                reason=calibration.reason,
                sealed={"calibration": calibration.id},
            )
            taken |= set(queue_job(session, order).seeds)
        queued += missing
    return queued


def keep_runs(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store every run of a chunk. Runs that diverged or ran out of time count as well."""
    for run, training in zip(report.runs, verification.trainings, strict=True):
        session.add(
            CalibrationRunRow(
                calibration_id=verification.calibration_id,
                batch_size=int(training.settings["batch_size"]),
                seed=run.seed,
                verification_id=verification.id,
                status=run.status,
                quality=[evaluation.quality for evaluation in run.evaluations],
                seconds=[evaluation.seconds for evaluation in run.evaluations],
                system=asdict(report.system),
            )
        )


def _record(
    session: Session,
    caller: Caller,
    action: str,
    calibration: Calibration,
    reason: str | None,
    after: dict[str, Any],
) -> None:
    subject = Subject("calibration", calibration.id)
    record(session, caller, action, subject, reason=reason, before=None, after=after)
