"""Calibrations as they cross the API."""

from datetime import datetime
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

BatchSizes = Annotated[list[Annotated[int, Field(ge=1, le=2**31 - 1)]], Field(max_length=16)]
Runs = Annotated[int, Field(ge=1, le=200)]
Reason = Annotated[str, Field(min_length=1, max_length=2000)]


class CalibrationCreate(BaseModel):
    """How many runs of which benchmark's reference, at which batch sizes."""

    model_config = ConfigDict(
        extra="forbid",
        json_schema_extra={
            "examples": [{"benchmark": "digits", "batch_sizes": [32, 64, 128], "runs": 20}]
        },
    )

    benchmark: str = Field(min_length=1, max_length=100)
    batch_sizes: Annotated[BatchSizes, Field(min_length=1)]
    runs: Runs
    reason: Reason | None = None


class CalibrationContinue(BaseModel):
    """Up to how many runs a calibration goes on, and at which batch sizes beside its own."""

    model_config = ConfigDict(extra="forbid")

    batch_sizes: BatchSizes | None = None
    runs: Runs | None = None


class CalibrationAdopt(BaseModel):
    """Why verifications are judged by a calibration from now on."""

    model_config = ConfigDict(extra="forbid")

    reason: Reason


class ReferenceBandView(BaseModel):
    """The band at one evaluation of the largest replay."""

    index: int
    mean: float
    lower: float
    upper: float


class BatchSizeView(BaseModel):
    """One batch size: runs, and the epochs to the target of those that reached it.

    `under_way` counts runs that are trained but not yet reported.
    """

    batch_size: int
    planned: int
    finished: int
    under_way: int
    reached: int
    epochs: list[float]
    mean: float | None
    stdev: float | None
    band: list[ReferenceBandView]


class ChunkView(BaseModel):
    """The sealed runs of one verification of a calibration."""

    verification_id: str
    batch_size: int
    runs: int
    state: str


class CalibrationSummary(BaseModel):
    """A calibration in one line. `version` counts per benchmark.

    `outdated` is whether the benchmark has another definition now, or none: then nothing that is
    planned is judged by it.
    """

    id: str
    benchmark: str
    benchmark_sha256: str
    version: int
    state: str
    reason: str | None
    requested_by: str
    batch_sizes: list[int]
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

    `runs_sha256` names the runs that went to their end: it is what a verification's seal covers.
    `judges` is whether what is planned now for this definition is judged by it.
    """

    judges: bool
    runs_sha256: str
    sizes: list[BatchSizeView]
    chunks: list[ChunkView]


class CalibrationList(BaseModel):
    """Calibrations, newest first."""

    calibrations: list[CalibrationSummary]


class CalibrationRunView(BaseModel):
    """One run: its curve, on which system, and in which verification its seed was sealed."""

    batch_size: int
    seed: int
    status: str
    quality: list[float]
    seconds: list[float]
    verification_id: str
    system: dict[str, Any]


class CalibrationRuns(BaseModel):
    """Every finished run of a calibration."""

    id: str
    benchmark: str
    benchmark_sha256: str
    version: int
    runs_sha256: str
    created_at: datetime
    runs: list[CalibrationRunView]


class SizeFigures(BaseModel):
    """Epochs to the target at one batch size."""

    runs: int
    reached: int
    mean: float | None
    stdev: float | None


class BandDifferenceView(BaseModel):
    """The first's band less the second's at one evaluation; bounds where both have a band."""

    index: int
    mean_difference: float
    lower_difference: float | None
    upper_difference: float | None


class SizeComparisonView(BaseModel):
    """Two calibrations at one batch size; `p_value` is Welch's, two-sided, on log epochs."""

    batch_size: int
    first: SizeFigures
    second: SizeFigures
    difference: float | None
    p_value: float | None
    band: list[BandDifferenceView]


class CalibrationComparison(BaseModel):
    """Two calibrations; `second` is None where the benchmark file's own runs are compared with."""

    first: str
    second: str | None
    benchmark: str
    sizes: list[SizeComparisonView]
