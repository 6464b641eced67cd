"""Convergence of a benchmark's reference, and of its submissions."""

import itertools
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from sqlalchemy import and_, select
from sqlalchemy.orm import Session

from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import RcpRule, ReferencePoint
from finishline.rules.scoring.convergence import (
    FACTOR_COUNTS,
    ConvergenceLimit,
    convergence_limits,
    limit_at,
    prune,
)
from finishline.rules.scoring.tta import calibrated_epochs, calibrated_sizes
from finishline.rules.statistics.aggregate import mean, olympic_mean
from server.base.models import DISPLAY_NAME, SUBMITTER, RunRow, Submission
from server.base.visibility import ranks
from server.benchmarks.calibrations import adopted_calibration, judging_benchmark
from web.names import hardware_words

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
