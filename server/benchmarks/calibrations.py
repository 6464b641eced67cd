"""Calibrations: their runs, which of them judges a verification, and how two compare."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any

from sqlalchemy import select
from sqlalchemy.orm import Session, selectinload

from finishline.api.schema import Schema
from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.benchmarks.definition_tables import ReferenceRun
from finishline.rules.scoring.tta import calibrated_epochs
from finishline.rules.statistics.aggregate import mean, standard_deviation
from finishline.rules.statistics.gaps import two_sided_p
from finishline.rules.text import count_text
from finishline.rules.verification.calibration import calibrated_by
from finishline.rules.verification.control_points import control_points
from finishline.rules.verification.messages import ControlPoint
from finishline.rules.verification.verdict import SHARES
from server.base.models import Calibration, Verification
from server.benchmarks.definitions import finished_runs


class SizeFigures(Schema):
    """Epochs to the target at one batch size."""

    runs: int
    reached: int
    mean: float | None
    stdev: float | None


class ConvergenceAt(SizeFigures):
    """Epochs the reference needs to its target at one batch size, of the runs that reached it.

    `stdev` has ddof = 1 and is None below two figures.
    """

    batch_size: int
    epochs: tuple[float, ...]


class BandDifference(Schema):
    """Distance of two calibrations at one evaluation, with bounds where both have a band."""

    index: int
    mean_difference: float
    lower_difference: float | None
    upper_difference: float | None


class SizeComparisonView(Schema):
    """Two calibrations at one batch size. `p_value` is Welch's, two-sided, on log epochs."""

    batch_size: int
    first: SizeFigures
    second: SizeFigures
    difference: float | None
    p_value: float | None
    band: list[BandDifference]


class BatchSizeView(Schema):
    """One batch size: its runs, also runs to come, and their epochs to the target."""

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
    """The measured runs of one verification of a calibration. `why` says why it failed."""

    verification_id: str
    batch_size: int
    runs: int
    state: str
    why: str | None = None


class CalibrationSummary(Schema):
    """A calibration in one line. `version` counts per benchmark.

    `precision` is null if the reference chooses it by the device. An `outdated` calibration judges
    nothing any more: the benchmark's definition has changed since, or is gone.
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

    `runs_sha256` is part of a verification's seal. `judges` is true if it judges verifications
    planned today for this definition.
    """

    judges: bool
    runs_sha256: str
    sizes: list[BatchSizeView]
    chunks: list[ChunkView]


class CalibrationList(Schema):
    """Calibrations, newest first."""

    calibrations: list[CalibrationSummary]


class CalibrationRunView(Schema):
    """One run: its curve, its system, and the verification of its sealed seed."""

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
    """Two calibrations. `second` is null for the runs of the benchmark's file."""

    first: str
    second: str | None
    benchmark: str
    sizes: list[SizeComparisonView]


def chunks_of(session: Session, calibration_id: str) -> list[Verification]:
    """List a calibration's verifications in the order they were planned."""
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


def judging_ids(session: Session) -> set[str]:
    """List the ids of calibrations adopted last, one for each definition and precision."""
    adopted = session.scalars(
        select(Calibration)
        .where(Calibration.adopted_at.is_not(None))
        .order_by(Calibration.adopted_at, Calibration.version)
    )
    last = {(each.benchmark_sha256, each.precision): each.id for each in adopted}
    return set(last.values())


def has_every_run(session: Session, calibration: Calibration) -> bool:
    """Return whether each batch size has as many finished runs as requested."""
    counts = Counter(run.batch_size for run in finished_runs(session, calibration.id))
    return all(counts[size] >= calibration.runs for size in calibration.batch_sizes)


RUNS_PER_CHUNK = 10


def chunk_sizes(runs: int) -> list[int]:
    """Split runs evenly, at most ten a chunk: a lost worker loses one, and leases stay short."""
    chunks = math.ceil(runs / RUNS_PER_CHUNK)
    return [runs // chunks + (i < runs % chunks) for i in range(chunks)]


def convergence_at(
    benchmark: Benchmark, runs: Sequence[ReferenceRun], batch_size: int
) -> ConvergenceAt:
    """Describe the epochs to the target at one batch size."""
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
    """Return the band for the benchmark's largest replay at one batch size."""
    policy = benchmark.replay
    if policy is None:
        return []
    curves, alpha = _curves(runs, batch_size), policy.alpha * SHARES.replay_band
    resolution = benchmark.target.resolution or 0.0
    return control_points(curves, runs=policy.max_runs, alpha=alpha, resolution=resolution)


def why_not_adoptable(benchmark: Benchmark, runs: Sequence[ReferenceRun]) -> str | None:
    """Say why these runs can't judge a benchmark, if so.

    A band takes twice as many runs at each batch size as the largest replay makes.
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
    """Compare two sets of runs at each common batch size, the smallest first.

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
