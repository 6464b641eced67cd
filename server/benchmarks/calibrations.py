"""Read calibrations: their runs, the one that judges a verification, and how two compare."""

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.orm import Session, selectinload

from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import RcpRule, ReferencePoint, ReferenceRun
from finishline.rules.scoring.convergence import (
    FACTOR_COUNTS,
    ConvergenceLimit,
    convergence_limits,
    limit_at,
    prune,
)
from finishline.rules.scoring.tta import calibrated_epochs, calibrated_sizes
from finishline.rules.statistics.aggregate import mean, olympic_mean, standard_deviation
from finishline.rules.statistics.gaps import two_sided_p
from finishline.rules.text import count_text
from finishline.rules.verification.calibration import calibrated_by
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.messages import ControlPoint
from finishline.rules.verification.purposes import CALIBRATION, PURPOSES
from finishline.rules.verification.verdict import SHARES
from server.base.database import utc_now
from server.base.errors import no_such
from server.base.events import VerificationChanged
from server.base.models import (
    DISPLAY_NAME,
    SUBMITTER,
    Calibration,
    CalibrationRunRow,
    RunRow,
    Submission,
    Verification,
)
from server.base.standing import ENDED, OPEN
from server.base.visibility import ranks
from server.benchmarks.calibration_views import (
    BandDifference,
    ConvergenceAt,
    SizeComparisonView,
    SizeFigures,
)
from server.benchmarks.definitions import definition
from web.names import hardware_words

COMPLETE = ("reached", "not_reached")  # A run that failed has no curve to its end.


def find_calibration(session: Session, calibration_id: str) -> Calibration:
    """Read a calibration by id. Raises NotFoundError."""
    calibration = session.get(Calibration, calibration_id)
    if calibration is None:
        raise no_such("calibration", calibration_id)
    return calibration


def list_calibrations(
    session: Session, *, benchmark_id: str | None, limit: int
) -> list[Calibration]:
    """Calibrations, newest first."""
    query = select(Calibration).order_by(Calibration.created_at.desc()).limit(limit)
    if benchmark_id is not None:
        query = query.where(Calibration.benchmark_id == benchmark_id)
    return list(session.scalars(query))


def count_runs(session: Session) -> dict[str, int]:
    """Finished runs by calibration id."""
    of = CalibrationRunRow.calibration_id
    return dict(session.execute(select(of, func.count()).group_by(of)).all())


def chunks_of(session: Session, calibration_id: str) -> list[Verification]:
    """Chunks of measured runs of a calibration, in the order they were planned."""
    return list(
        session.scalars(
            select(Verification)
            .where(
                Verification.calibration_id == calibration_id, Verification.kind == "calibration"
            )
            .order_by(Verification.created_at, Verification.id)
            .options(selectinload(Verification.attempts), selectinload(Verification.trainings))
        )
    )


def finished_runs(session: Session, calibration_id: str) -> list[CalibrationRunRow]:
    """Every run of a calibration that ended, by batch size and seed."""
    return list(
        session.scalars(
            select(CalibrationRunRow)
            .where(CalibrationRunRow.calibration_id == calibration_id)
            .order_by(CalibrationRunRow.batch_size, CalibrationRunRow.seed)
        )
    )


def reference_runs(rows: list[CalibrationRunRow]) -> list[ReferenceRun]:
    """Runs that went to their end, in the form of a benchmark file."""
    return [
        ReferenceRun(batch_size=row.batch_size, seed=row.seed, quality=tuple(row.quality))
        for row in rows
        if row.status in COMPLETE
    ]


def adopted_calibration(
    session: Session, benchmark_sha256: str, precision: str | None = None
) -> Calibration | None:
    """Calibration adopted last for a definition and a precision, None for the reference's own.

    It judges verifications planned from then on.
    """
    return session.scalars(
        select(Calibration)
        .where(
            Calibration.benchmark_sha256 == benchmark_sha256,
            Calibration.adopted_at.is_not(None),
            Calibration.precision.is_(None)
            if precision is None
            else Calibration.precision == precision,
        )
        .order_by(Calibration.adopted_at.desc(), Calibration.version.desc())
        .limit(1)
    ).first()


def judging_ids(session: Session) -> set[str]:
    """Ids of the calibrations adopted last, one for each definition and precision."""
    adopted = session.scalars(
        select(Calibration)
        .where(Calibration.adopted_at.is_not(None))
        .order_by(Calibration.adopted_at, Calibration.version)
    )
    last = {(each.benchmark_sha256, each.precision): each.id for each in adopted}
    return set(last.values())


def judging_benchmark(
    session: Session, benchmark_sha256: str, calibration_id: str | None
) -> Benchmark:
    """Definition, with the runs of a calibration in place of its own if one is named."""
    benchmark = definition(session, benchmark_sha256)
    if calibration_id is None:
        return benchmark
    return calibrated_by(benchmark, reference_runs(finished_runs(session, calibration_id)))


def benchmark_of(session: Session, verification: Verification) -> Benchmark:
    """Benchmark that judges a verification, as planned: a later adoption does not change it."""
    judged_by = verification.calibration_id if PURPOSES[verification.kind].is_replay else None
    return judging_benchmark(session, verification.benchmark_sha256, judged_by)


def settle_calibration(session: Session, event: VerificationChanged) -> None:
    """End the calibration of a chunk that has ended, if it was the last one under way."""
    verification = event.verification
    if verification.kind != CALIBRATION.name or verification.calibration_id is None:
        return
    if event.moment not in ENDED:
        return
    session.flush()
    calibration = find_calibration(session, verification.calibration_id)
    if any(chunk.state in OPEN for chunk in chunks_of(session, calibration.id)):
        return
    calibration.state = "done" if has_every_run(session, calibration) else "incomplete"
    calibration.ended_at = utc_now()


def has_every_run(session: Session, calibration: Calibration) -> bool:
    """Whether each batch size has as many finished runs as were requested."""
    counts = Counter(run.batch_size for run in finished_runs(session, calibration.id))
    return all(counts[size] >= calibration.runs for size in calibration.batch_sizes)


RUNS_PER_CHUNK = 10


def chunk_sizes(runs: int) -> list[int]:
    """Number of runs in each verification of a calibration: even, and at most ten.

    A worker that is lost loses one chunk, and a lease is never held for hours.
    """
    chunks = math.ceil(runs / RUNS_PER_CHUNK)
    return [runs // chunks + (i < runs % chunks) for i in range(chunks)]


def convergence_at(
    benchmark: Benchmark, runs: Sequence[ReferenceRun], batch_size: int
) -> ConvergenceAt:
    """Epochs to the target at one batch size."""
    measured = calibrated_by(benchmark, runs)
    epochs = tuple(calibrated_epochs(measured, batch_size))
    return ConvergenceAt(
        batch_size=batch_size,
        runs=len(measured.reference_runs_at(batch_size)),
        reached=len(epochs),
        epochs=epochs,
        mean=mean(epochs) if epochs else None,
        stdev=standard_deviation(epochs, ddof=1) if len(epochs) > 1 else None,
    )


def band_at(
    benchmark: Benchmark, runs: Sequence[ReferenceRun], batch_size: int
) -> list[ControlPoint]:
    """The band that the benchmark's largest replay has to stay in at one batch size."""
    policy = benchmark.replay
    if policy is None:
        return []
    curves, alpha = _curves(runs, batch_size), policy.alpha * SHARES.replay_band
    resolution = benchmark.target.resolution or 0.0
    return control_points(curves, runs=policy.max_runs, alpha=alpha, resolution=resolution)


def why_not_adoptable(benchmark: Benchmark, runs: Sequence[ReferenceRun]) -> str | None:
    """Reason why a benchmark cannot be judged by these runs, None if it can.

    Each batch size needs twice as many runs as the largest replay makes, or it has no band.
    """
    needed = 2 * (benchmark.replay.max_runs if benchmark.replay is not None else 1)
    for size in sorted({run.batch_size for run in runs}):
        point = convergence_at(benchmark, runs, size)
        if point.runs < needed:
            runs_there = count_text(point.runs, "run")
            return f"batch size {point.batch_size} has {runs_there} of at least {needed}"
        if len(point.epochs) < 2:
            return f"at batch size {point.batch_size} fewer than two runs reached the target"
    return None if runs else "it has no run"


def compare_calibrations(
    benchmark: Benchmark, first: Sequence[ReferenceRun], second: Sequence[ReferenceRun]
) -> list[SizeComparisonView]:
    """Compare two sets of runs at each batch size that both have, the smallest first.

    Source: Welch (1947) on the logarithms of the epochs to the target, two-sided.
    """
    found = []
    for size in sorted({run.batch_size for run in first} & {run.batch_size for run in second}):
        one, other = (convergence_at(benchmark, runs, size) for runs in (first, second))
        difference = None if one.mean is None or other.mean is None else one.mean - other.mean
        found.append(
            SizeComparisonView(
                batch_size=size,
                first=SizeFigures.of(one),
                second=SizeFigures.of(other),
                difference=difference,
                p_value=two_sided_p(one.epochs, other.epochs),
                band=list(_band_differences(benchmark, first, second, size)),
            )
        )
    return found


def _band_differences(
    benchmark: Benchmark,
    first: Sequence[ReferenceRun],
    second: Sequence[ReferenceRun],
    batch_size: int,
) -> Iterator[BandDifference]:
    bands = [band_at(benchmark, runs, batch_size) for runs in (first, second)]
    columns = [list(zip(*_curves(runs, batch_size), strict=False)) for runs in (first, second)]
    for j, (one, other) in enumerate(zip(*columns, strict=False)):
        a, b = (band[j] if j < len(band) else None for band in bands)
        yield BandDifference(
            index=j + 1,
            mean_difference=mean(one) - mean(other),
            lower_difference=a.lower - b.lower if a and b else None,
            upper_difference=a.upper - b.upper if a and b else None,
        )


def _curves(runs: Sequence[ReferenceRun], batch_size: int) -> list[tuple[float, ...]]:
    return [run.quality for run in runs if run.batch_size == batch_size]


STEPS_BETWEEN_POINTS = 12
UNITS = {"epoch_num": "epochs", "samples_count": "samples"}


class EnvelopePoint(Schema):
    """Point on the line through the points that pruning keeps."""

    batch_size: int
    mean: float
    lowest: float | None


class ReferencePointView(EnvelopePoint):
    """Reference at one batch size. `lowest` is None if no submission is held to it."""

    stdev: float
    pruned: bool


class PlacedSubmission(Schema):
    """Submission by its batch size and the mean of its runs' convergence."""

    id: str
    submitter: str
    display_name: str | None = None
    model: str
    hardware: str
    division: str
    batch_size: int
    mean: float
    verdict: str | None
    normalised: bool


class CalibratedPoints(Schema):
    """Points of the calibration that judges verifications planned today."""

    id: str
    version: int
    points: list[ReferencePointView]


class ConvergenceView(Schema):
    """Epochs or samples to converge by batch size, of the reference and the submissions.

    `judged` is whether closed submissions are held to `lowest`, less the `allowance`. `left_out`
    counts submissions without a known batch size or without convergence. `points` are those of the
    benchmark's file, `calibration` has those that were measured and adopted.
    """

    benchmark: str
    unit: str
    judged: bool
    allowance: float
    points: list[ReferencePointView]
    envelope: list[EnvelopePoint]
    submissions: list[PlacedSubmission]
    left_out: int
    calibration: CalibratedPoints | None = None


def convergence_view(session: Session, benchmark: Benchmark) -> ConvergenceView:
    """Convergence of the reference, and the place of each submission on it."""
    adopted = adopted_calibration(session, benchmark.sha256)
    calibration = None
    if adopted is not None:
        judging = judging_benchmark(session, benchmark.sha256, adopted.id)
        calibration = CalibratedPoints.of(adopted, points=_points(judging))
    placed = _placed_submissions(session, benchmark)
    return ConvergenceView(
        benchmark=benchmark.benchmark_id,
        unit=UNITS[benchmark.convergence_unit],
        judged=benchmark.rcp is not None,
        allowance=benchmark.rcp.allowance if benchmark.rcp is not None else 0.0,
        points=_points(benchmark),
        envelope=_envelope(benchmark),
        submissions=[view for view in placed if view is not None],
        left_out=sum(view is None for view in placed),
        calibration=calibration,
    )


def _limits(benchmark: Benchmark) -> tuple[list[ConvergenceLimit], list[ConvergenceLimit]]:
    """Convergence of the reference at each batch size, and the limits that pruning keeps."""
    rule = benchmark.rcp or RcpRule("all", 0.0, _points_of_calibration(benchmark))
    runs = replace(benchmark.runs, count=_runs(benchmark))
    limits = list(convergence_limits(rule, runs, pruned=False))
    return limits, limits if benchmark.rcp is None else list(prune(limits))


def _runs(benchmark: Benchmark) -> int:
    return max(3, benchmark.runs.count)


def _lowest(benchmark: Benchmark, limit: ConvergenceLimit) -> float | None:
    return limit.lowest if benchmark.rcp is not None else None


def _points(benchmark: Benchmark) -> list[ReferencePointView]:
    limits, kept = _limits(benchmark)
    return [
        ReferencePointView.of(limit, lowest=_lowest(benchmark, limit), pruned=limit not in kept)
        for limit in limits
    ]


def _envelope(benchmark: Benchmark) -> list[EnvelopePoint]:
    """The kept points and steps between them, even on a logarithmic axis."""
    _, kept = _limits(benchmark)
    sizes = {point.batch_size for point in kept}
    for low, high in itertools.pairwise(kept):
        ratio = high.batch_size / low.batch_size
        for step in range(1, STEPS_BETWEEN_POINTS):
            sizes.add(math.floor(low.batch_size * ratio ** (step / STEPS_BETWEEN_POINTS)))
    limits = [limit_at(size, kept, runs=_runs(benchmark)) for size in sorted(sizes)]
    return [
        EnvelopePoint.of(limit, lowest=_lowest(benchmark, limit))
        for limit in limits
        if limit is not None
    ]


def _points_of_calibration(benchmark: Benchmark) -> tuple[ReferencePoint, ...]:
    """Epochs to the target of the calibrated runs, which are evaluated after every epoch.

    A run that never reached it is left out, and so is a batch size with too few runs to average.
    """
    points = [
        ReferencePoint(size, calibrated_epochs(benchmark, size))
        for size in calibrated_sizes(benchmark)
    ]
    return tuple(point for point in points if len(point.epochs) > 2 * benchmark.runs.dropped)


def _placed_submissions(session: Session, benchmark: Benchmark) -> list[PlacedSubmission | None]:
    of_benchmark = and_(
        Submission.benchmark_id == benchmark.benchmark_id, Submission.kind == "train", ranks()
    )
    figures: dict[str, list[Any]] = defaultdict(list)
    for run in session.execute(
        select(RunRow.submission_id, RunRow.batch_size, RunRow.convergence)
        .join(Submission, Submission.id == RunRow.submission_id)
        .where(of_benchmark)
        .order_by(RunRow.index)
    ):
        figures[run.submission_id].append(run)
    submissions = session.execute(
        select(
            Submission.id,
            Submission.model,
            Submission.system,
            Submission.division,
            Submission.hyperparameters,
            Submission.result,
            SUBMITTER,
            DISPLAY_NAME,
        )
        .join(Submission.user)
        .outerjoin(Submission.published)
        .where(of_benchmark)
        .order_by(Submission.submitted_at, Submission.id)
    )
    return [_placed(row, figures[row.id], benchmark) for row in submissions]


def _placed(row: Any, runs: Sequence[Any], benchmark: Benchmark) -> PlacedSubmission | None:
    rcp = row.result.get("rcp")
    batch_size = _batch_size(row, runs, benchmark)
    convergence = _mean_convergence(rcp, runs, dropped=benchmark.runs.dropped)
    if batch_size is None or convergence is None:
        return None
    return PlacedSubmission.of(
        row,
        hardware=hardware_words(row.system),
        batch_size=batch_size,
        mean=convergence,
        verdict=rcp["verdict"] if rcp else None,
        normalised=bool(rcp) and rcp["verdict"] in FACTOR_COUNTS and rcp["factor"] > 1.0,
    )


def _batch_size(row: Any, runs: Sequence[Any], benchmark: Benchmark) -> int | None:
    """Batch size in the logs, else in the claim. None if the runs differ."""
    logged = {run.batch_size for run in runs if run.batch_size is not None}
    if logged:
        return next(iter(logged)) if len(logged) == 1 else None
    claimed = (benchmark.defaults() | row.hyperparameters).get("batch_size")
    return None if claimed is None else int(claimed)


def _mean_convergence(rcp: Any, runs: Sequence[Any], *, dropped: int) -> float | None:
    """Mean that was judged; else the mean as for times, or that of the converged runs."""
    if rcp is not None:
        judged: float | None = rcp["submission_mean"]
        return judged
    figures = [run.convergence for run in runs]
    if len(figures) > 2 * dropped and (olympic := olympic_mean(figures, dropped=dropped)):
        return olympic
    converged = [figure for figure in figures if figure is not None]
    return mean(converged) if converged else None
