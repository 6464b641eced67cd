"""Calibrations: batch sizes, runs, and how two compare."""

from datetime import datetime
from typing import Any

from finishline.api.schema import Schema
from finishline.rules.verification.messages import ControlPoint


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
