"""Benchmarks: task, data set, target and rules version, and convergence."""

from typing import Literal

from finishline.api.phases import PhasesView
from finishline.api.schema import Schema


class TargetView(Schema):
    """Quality to reach, in the unit of its source; `also` has further targets to reach with it."""

    metric: str
    value: float
    unit: str
    direction: str
    also: list["TargetView"] = []


class DataSetView(Schema):
    """Data set for training and evaluation; None if it is no fixed set of items."""

    name: str
    source: str
    train_items: int | None
    test_items: int | None


class RunsView(Schema):
    """Runs of a result, and how many are dropped at each end.

    A submission must have `started` runs. That is more than `count` if only the first `count` that
    reach the target make the result.
    """

    count: int
    dropped: int
    started: int


class BenchmarkView(Schema):
    """A benchmark: task, data set, target and rules version.

    `convergence_unit`, "epochs" or "samples", is the unit of a training's length, `time_unit` the
    unit that pages show times in, None where the times of a board choose it. `submissions`
    counts all, `inference_submissions` those of inference. `phases` are as of the response, and
    None if the benchmark is only named in it.
    """

    id: str
    title: str
    version: str
    task: str
    about: str
    data_set: DataSetView
    target: TargetView
    clock: str
    runs: RunsView
    divisions: list[str]
    replayable: bool
    convergence_unit: Literal["epochs", "samples"] = "epochs"
    time_unit: str | None = None
    sha256: str
    submissions: int
    inference_submissions: int
    phases: PhasesView | None = None


class BenchmarkList(Schema):
    """Every benchmark of this server."""

    benchmarks: list[BenchmarkView]


class ReferencePointView(Schema):
    """Reference at one batch size; `lowest` is None if no submission is held to it."""

    batch_size: int
    mean: float
    stdev: float
    lowest: float | None
    pruned: bool


class EnvelopePoint(Schema):
    """Point on the line through the points that pruning keeps."""

    batch_size: int
    mean: float
    lowest: float | None


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
    benchmark's file, `calibration` has those that were measured and adopted, None without.
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
