"""Benchmarks: task, data set, target and rules, and their phases."""

from datetime import datetime
from typing import Literal

from finishline.api.schema import Schema

PhaseName = Literal["announced", "open", "frozen", "closed"]


class Dates(Schema):
    """Dates of a benchmark in UTC. None is no date."""

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None


class PhasesView(Dates):
    """The phase of a benchmark, as a `sentence` too. "frozen" is open under frozen rules.

    `frozen_sha256` names the definition that submissions are scored under since `freezes_at`.
    """

    phase: PhaseName
    sentence: str
    takes_submissions: bool
    rules_frozen: bool
    under_embargo: bool
    frozen_sha256: str | None


class TargetView(Schema):
    """Quality to reach, in the unit of its source. `also` has further targets to reach with it.

    With `budget_seconds` each run ends then, and its quality ranks.
    """

    metric: str
    value: float
    unit: str
    direction: str
    budget_seconds: float | None = None
    also: list["TargetView"] = []


class DataSetView(Schema):
    """Data set for training and evaluation. None if it is no fixed set of items."""

    name: str
    source: str
    train_items: int | None
    test_items: int | None


class RunsView(Schema):
    """Runs of a result, and how many are dropped at each end.

    A submission has `started` runs: more than `count` where the first `count` that reach the target
    make the result. With a `most` it has `count` to `most` runs, and all of them count.
    """

    count: int
    dropped: int
    started: int
    most: int | None = None


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
    convergence_unit: Literal["epochs", "samples", "steps"] = "epochs"
    time_unit: str | None = None
    sha256: str
    submissions: int
    inference_submissions: int
    phases: PhasesView | None = None


class BenchmarkList(Schema):
    """Every benchmark of this server."""

    benchmarks: list[BenchmarkView]
