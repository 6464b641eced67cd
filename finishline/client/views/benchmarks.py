"""Benchmarks."""

from datetime import datetime

from finishline.client.views.view import View


class DataSet(View):
    """Training and evaluation data; counts are None without a fixed set of items."""

    name: str
    source: str
    train_items: int | None
    test_items: int | None


class Target(View):
    """The quality to reach; `also` has the targets to reach with it."""

    metric: str
    value: float
    unit: str
    direction: str
    also: tuple["Target", ...] = ()


class RunsRule(View):
    """Runs a result is made of, how many are dropped at each end, how many are started."""

    count: int
    dropped: int
    started: int


class Phases(View):
    """The phase a benchmark is in, in words too, and its dates; None is no date."""

    phase: str
    sentence: str
    takes_submissions: bool
    rules_frozen: bool
    under_embargo: bool
    opens_at: datetime | None
    freezes_at: datetime | None
    closes_at: datetime | None
    embargo_until: datetime | None
    frozen_sha256: str | None


class Benchmark(View):
    """A benchmark: task, data set, target and rules version."""

    id: str
    title: str
    version: str
    task: str
    about: str
    data_set: DataSet
    target: Target
    clock: str
    runs: RunsRule
    divisions: tuple[str, ...]
    replayable: bool
    convergence_unit: str = "epochs"
    sha256: str
    submissions: int
    inference_submissions: int
    phases: Phases | None = None


class BenchmarkList(View):
    """Every benchmark of a server."""

    benchmarks: tuple[Benchmark, ...]
