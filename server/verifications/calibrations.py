"""Start, continue, cancel, adopt and read calibrations, and store their runs."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Annotated, Any

from fastapi import Query
from pydantic import Field
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.errors import RuleError
from finishline.rules.measurements import PrecisionName
from finishline.rules.submissions.claim import check_precision, reference_of
from finishline.rules.text import count_text
from finishline.rules.verification.calibration import runs_sha256
from finishline.rules.verification.messages import ReplayReport
from finishline.rules.verification.purposes import CALIBRATION
from server.base.database import benchmarks_of, find_row, utc_now
from server.base.errors import ConflictError, ContentError
from server.base.events import CalibrationAdopted, emit
from server.base.forms import NO_FLAG, Body, Sentence, example
from server.base.models import Calibration, CalibrationRunRow, Verification
from server.base.standing import OPEN
from server.benchmarks import calibrations as queries
from server.benchmarks.calibrations import (
    BatchSizeView,
    CalibrationComparison,
    CalibrationList,
    CalibrationRuns,
    CalibrationSummary,
    CalibrationView,
    ChunkView,
    band_at,
    chunk_sizes,
    chunks_of,
    convergence_at,
    has_every_run,
    why_not_adoptable,
)
from server.benchmarks.definitions import (
    adopted_calibration,
    definition,
    find_benchmark,
    finished_runs,
    reference_runs,
)
from server.people.audit import audited, record, record_new
from server.people.callers import Caller, Fields
from server.people.declared import Form, Routes, filled
from server.submissions.rows import new_id
from server.verifications.jobs import Order, move, queue_job

CONSOLE = "/console/calibrations"
ONE = CONSOLE + "/{calibration_id}"
BatchSize = Annotated[int, Field(ge=1, le=2**31 - 1), NO_FLAG]
BatchSizes = Annotated[list[BatchSize], Field(max_length=16)]
Runs = Annotated[int, Field(ge=1, le=200), NO_FLAG]
router = Routes(tags=["calibrations"])
Limit = Annotated[int, Query(ge=1, le=100)]
BenchmarkId = Annotated[str | None, Query(max_length=100)]


class CalibrationCreate(Body):
    """Batch sizes to measure, runs at each, and the precision (default: the reference's own)."""

    model_config = example(benchmark="digits", batch_sizes=[32, 64, 128], runs=20)

    benchmark: str = Field(min_length=1, max_length=100)
    batch_sizes: Annotated[BatchSizes, Field(min_length=1)]
    runs: Runs
    precision: PrecisionName | None = None
    reason: Sentence | None = None


class CalibrationContinue(Body):
    """Number of runs to reach in a calibration, and batch sizes to add."""

    batch_sizes: BatchSizes | None = None
    runs: Runs | None = None


class CalibrationAdopt(Body):
    """Reason to judge verifications by a calibration."""

    reason: Sentence


def _with_sizes(fields: Fields) -> Mapping[str, Any]:
    given = filled(fields)
    sizes = [part for part in re.split(r"[\s,;]+", given.get("batch_sizes", "")) if part]
    return given | {"batch_sizes": sizes}


STARTED = Form(
    CONSOLE,
    "The calibration is started: runs are queued.",
    to=CONSOLE + "/{0.id}",
    read=_with_sizes,
)


@router.command("/calibrations", STARTED, role="organiser", status=201)
def start_calibration(session: Session, caller: Caller, body: CalibrationCreate) -> CalibrationView:
    """Measure a benchmark's reference at each batch size, with secret seeds, to the last epoch."""
    benchmark = find_benchmark(benchmarks_of(session), body.benchmark)
    if len(set(body.batch_sizes)) != len(body.batch_sizes):
        raise ContentError(f"batch_sizes: got {body.batch_sizes}; expected each size once.")
    _require_trainable(benchmark, body.batch_sizes)
    latest = session.scalar(
        select(func.max(Calibration.version)).where(
            Calibration.benchmark_id == benchmark.benchmark_id
        )
    )
    calibration = Calibration(
        id=new_id(),
        benchmark_id=benchmark.benchmark_id,
        benchmark_sha256=benchmark.sha256,
        version=(latest or 0) + 1,
        state="running",
        reason=body.reason,
        requested_by=caller.user_id,
        batch_sizes=sorted(body.batch_sizes),
        runs=body.runs,
        precision=_precision_to_train(benchmark, body.precision),
        created_at=utc_now(),
    )
    session.add(calibration)
    session.flush()
    _queue_missing(session, calibration)
    record_new(session, caller, "calibration.start", calibration, reason=body.reason)
    return _shown(session, calibration)


@router.command(
    "/calibrations/{calibration_id}/continuation",
    Form(ONE + "/continue", "The missing runs are queued.", page=ONE),
    role="organiser",
)
def continue_calibration(
    session: Session, caller: Caller, calibration_id: str, body: CalibrationContinue | None = None
) -> CalibrationView:
    """Train the missing runs after a failure, or add runs and batch sizes."""
    wanted = body or CalibrationContinue()
    calibration = find_row(session, Calibration, calibration_id)
    if calibration.adopted_at is not None:
        raise ConflictError(
            f"Calibration {calibration_id} is adopted and cannot be changed; start another one."
        )
    with audited(session, caller, "calibration.continue", calibration):
        calibration.batch_sizes = sorted({*calibration.batch_sizes, *(wanted.batch_sizes or ())})
        calibration.runs = max(calibration.runs, wanted.runs or 0)
        if _queue_missing(session, calibration) == 0:
            runs = count_text(calibration.runs, "run")
            raise ConflictError(
                f"Calibration {calibration_id} has or awaits {runs} at each of its batch sizes; "
                "request more runs."
            )
        calibration.state, calibration.ended_at = "running", None
    return _shown(session, calibration)


@router.command(
    "/calibrations/{calibration_id}/cancellation",
    Form(
        ONE + "/cancel",
        "The runs under way are cancelled; finished runs are kept.",
        page=ONE,
    ),
    role="organiser",
)
def cancel_calibration(session: Session, caller: Caller, calibration_id: str) -> CalibrationView:
    """Cancel the runs under way. Finished runs are kept, and the calibration can be continued."""
    calibration = find_row(session, Calibration, calibration_id)
    under_way = [chunk for chunk in chunks_of(session, calibration_id) if chunk.state in OPEN]
    if not under_way:
        raise ConflictError(f"Calibration {calibration_id} has no runs under way.")
    with audited(session, caller, "calibration.cancel", calibration):
        for chunk in under_way:
            move(session, chunk, "cancel")
        if not has_every_run(session, calibration):
            calibration.state = "cancelled"
    return _shown(session, calibration)


@router.command(
    "/calibrations/{calibration_id}/adoption",
    Form(
        ONE + "/adopt",
        "It is adopted: verifications planned from now on are judged by it.",
        page=ONE,
    ),
    role="organiser",
)
def adopt_calibration(
    session: Session, caller: Caller, calibration_id: str, body: CalibrationAdopt
) -> CalibrationView:
    """Judge verifications of this definition by this calibration, if planned from now on."""
    calibration = find_row(session, Calibration, calibration_id)
    if calibration.adopted_at is not None:
        raise ConflictError(f"Calibration {calibration_id} is adopted already.")
    if calibration.state == "running":
        raise ConflictError(f"Calibration {calibration_id} is under way: wait for it.")
    runs = reference_runs(finished_runs(session, calibration_id))
    unable = why_not_adoptable(definition(session, calibration.benchmark_sha256), runs)
    if unable is not None:
        raise ConflictError(
            f"Calibration {calibration_id} cannot judge yet: {unable}; continue it with more runs."
        )
    earlier = adopted_calibration(session, calibration.benchmark_sha256, calibration.precision)
    calibration.adopted_at, calibration.adopted_because = utc_now(), body.reason
    calibration.adopted_by = caller.user_id
    emit(session, CalibrationAdopted(calibration))
    record(
        session,
        caller,
        "calibration.adopt",
        calibration,
        reason=body.reason,
        before={"calibration": earlier and earlier.id},
        after={
            "benchmark": calibration.benchmark_id,
            "calibration": calibration_id,
            "precision": calibration.precision,
            "runs": len(runs),
            "reference_runs_sha256": runs_sha256(runs),
        },
    )
    return _shown(session, calibration)


def _shown(session: Session, calibration: Calibration) -> CalibrationView:
    session.refresh(calibration)
    return get_calibration(session, calibration.id)


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
    """Return None for the reference's own precision."""
    try:
        return reference_of(benchmark).told(check_precision(benchmark, wanted))
    except RuleError as error:
        raise ContentError(f"{error}.") from error


def _queue_missing(session: Session, calibration: Calibration) -> int:
    benchmark = definition(session, calibration.benchmark_sha256)
    _require_trainable(benchmark, calibration.batch_sizes)
    chunks = chunks_of(session, calibration.id)
    taken = {seed for chunk in chunks for seed in chunk.seeds}
    counted = [row.batch_size for row in finished_runs(session, calibration.id)]
    for chunk in chunks:
        if chunk.state in OPEN:
            counted += [batch_size_of(chunk)] * chunk.runs
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
            order = Order(
                CALIBRATION,
                calibration.requested_by,
                calibration.reason,
                calibration=calibration,
                wishes=wishes,
            )
            taken |= set(queue_job(session, order).seeds)
        queued += missing
    return queued


def keep_runs(session: Session, verification: Verification, report: ReplayReport) -> None:
    """Store every run of a chunk, also diverged and timed-out ones."""
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


def summary(
    calibration: Calibration, *, finished: int, offered: Mapping[str, Benchmark]
) -> CalibrationSummary:
    """Summarise a calibration. `offered` has the current definitions by benchmark."""
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


def summaries(
    session: Session, rows: Iterable[Calibration], offered: Mapping[str, Benchmark]
) -> list[CalibrationSummary]:
    """Summarise calibrations with the number of their finished runs."""
    of = CalibrationRunRow.calibration_id
    counts = dict(session.execute(select(of, func.count()).group_by(of)).all())
    return [summary(row, finished=counts.get(row.id, 0), offered=offered) for row in rows]


@router.read("/calibrations")
def list_calibrations(
    session: Session, benchmark: BenchmarkId = None, limit: Limit = 20
) -> CalibrationList:
    """List calibrations, newest first."""
    query = select(Calibration).order_by(Calibration.created_at.desc()).limit(limit)
    if benchmark is not None:
        query = query.where(Calibration.benchmark_id == benchmark)
    found = summaries(session, session.scalars(query), benchmarks_of(session))
    return CalibrationList(calibrations=found)


@router.read("/calibrations/{calibration_id}")
def get_calibration(session: Session, calibration_id: str) -> CalibrationView:
    """Read a calibration: its progress, and epochs to converge and the band at each batch size."""
    calibration = find_row(session, Calibration, calibration_id)
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
    shown = summary(calibration, finished=len(rows), offered=benchmarks_of(session))
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
    """Return the batch size shared by the runs of a chunk."""
    return int(chunk.trainings[0].settings["batch_size"])


def _trained_so_far(chunk: Verification) -> int:
    latest = chunk.attempts[-1]
    if latest.state != "running" or latest.last_evaluation is None:
        return 0
    return min(int(latest.last_evaluation["run"]), chunk.runs)


@router.read("/calibrations/{calibration_id}/runs")
def get_calibration_runs(session: Session, calibration_id: str) -> CalibrationRuns:
    """List every finished run of a calibration: curve, seed, system and software."""
    calibration = find_row(session, Calibration, calibration_id)
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
    """Compare a calibration with another, or with the runs of the benchmark's file."""
    first = find_row(session, Calibration, calibration_id)
    second = None if other is None else find_row(session, Calibration, other)
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
