"""Benchmarks: task, data set, target and rules, and their phases."""

from datetime import datetime
from typing import Literal

from finishline.api.schema import Schema

PhaseName = Literal["announced", "open", "frozen", "closed"]


class Dates(Schema):
    """Dates of a benchmark in UTC. None means the date is open."""

    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None


class PhasesView(Dates):
    """Phase of a benchmark, and the same as a `sentence`. "frozen" is open under frozen rules.

    Submissions since `freezes_at` are scored under the definition `frozen_sha256`.
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
    """Data set for training and evaluation. Counts are None without a fixed set of items."""

    name: str
    source: str
    train_items: int | None
    test_items: int | None


class RunsView(Schema):
    """Runs of a result, and how many are dropped at each end.

    A submission has `started` runs, and its first `count` runs that reach the target make the
    result. With `most` it has `count` to `most` runs, and all of them count.
    """

    count: int
    dropped: int
    started: int
    most: int | None = None


class BenchmarkView(Schema):
    """A benchmark: task, data set, target and rules version.

    `convergence_unit` is the unit of a training's length. `time_unit` is the unit of times on
    pages, and each board chooses it if it is None. `phases` are None where an answer only names the
    benchmark.
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
    """All benchmarks of this server."""

    benchmarks: list[BenchmarkView]
