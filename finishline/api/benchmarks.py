"""Benchmarks: task, data set, target and rules, their phases, and convergence."""

import re
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, StrictBool, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from finishline.api.schema import Body, Schema, Sentence, example
from finishline.rules.benchmarks.phases import PhaseName, Phases, faults

FIRST_YEAR, LAST_YEAR = 2000, 8999
MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d+)?)?([Zz]|[+-]\d\d:\d\d)", re.ASCII)


def _read_moment(value: Any) -> datetime:
    """Parse a text with a time zone to a moment in UTC, in whole seconds. Rejects numbers."""
    text = value if isinstance(value, str) else ""
    try:
        # The first and the last days of all cannot be moved to another time zone.
        if not (MOMENT.fullmatch(text) and FIRST_YEAR <= int(text[:4]) <= LAST_YEAR):
            raise ValueError(text)
        moment = datetime.fromisoformat(text.upper())
    except ValueError:
        raise PydanticCustomError(
            "no_moment",
            "no moment; expected one with its time zone, like 2026-11-21T18:00:00Z, of the years "
            "2000 to 8999",
        ) from None
    return moment.astimezone(UTC).replace(microsecond=0)


Moment = Annotated[
    datetime,
    BeforeValidator(_read_moment),
    WithJsonSchema({"type": "string", "format": "date-time"}),
]


class PhasesCreate(Body):
    """All dates of a benchmark, and the reason. An omitted date is removed.

    `unfreeze` allows a change of `freezes_at` after it has passed, so that nobody does it by
    leaving the date out.
    """

    model_config = example(
        opens_at="2026-12-01T00:00:00Z",
        freezes_at="2026-12-01T00:00:00Z",
        closes_at="2027-01-15T00:00:00Z",
        embargo_until="2027-02-01T00:00:00Z",
        reason="the winter round",
    )

    opens_at: Moment | None = None
    freezes_at: Moment | None = None
    closes_at: Moment | None = None
    embargo_until: Moment | None = None
    reason: Sentence
    unfreeze: StrictBool = False

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        found = faults(self.phases)
        if found:
            raise PydanticCustomError("dates_out_of_order", "{text}", {"text": " ".join(found)})
        return self

    @property
    def phases(self) -> Phases:
        """The dates."""
        return Phases(self.opens_at, self.freezes_at, self.closes_at, self.embargo_until)


class Dates(Schema):
    """Dates of a benchmark in UTC; None is no date.

    `frozen_sha256` names the definition that submissions are scored under since `freezes_at`.
    """

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None


class PhasesView(Dates):
    """The phase of a benchmark, as a `sentence` too. "frozen" is open under frozen rules."""

    phase: PhaseName
    sentence: str
    takes_submissions: bool
    rules_frozen: bool
    under_embargo: bool


class PhasesSet(Dates):
    """A change of the dates: by whom, when and why."""

    reason: str
    set_by: str
    set_at: datetime


class PhasesHistory(Schema):
    """Current phases, and every change, the latest first."""

    benchmark: str
    phases: PhasesView
    history: list[PhasesSet]


class TargetView(Schema):
    """Quality to reach, in the unit of its source. `also` has further targets to reach with it."""

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

    A submission has `started` runs: more than `count` where the first `count` that reach the target
    make the result.
    """

    count: int
    dropped: int
    started: int


class BenchmarkView(Schema):
    """A benchmark: task, data set, target and rules version.

    `convergence_unit` is the unit of a training's length, `time_unit` the unit that pages show
    times in, None where the times of a board choose it. `submissions` counts all of them. `phases`
    are None if the benchmark is only named in an answer.
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
