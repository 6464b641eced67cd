"""API and page models of benchmarks."""

from typing import Literal

from pydantic import BaseModel

from finishline.api.benchmarks import TargetView
from finishline.rules.benchmarks.benchmark import Benchmark, QualityTarget
from server.benchmarks.phase_schemas import PhasesView
from server.benchmarks.queries import NO_SUBMISSIONS, Counts


class DataSetView(BaseModel):
    """Data set for training and evaluation; None if it is no fixed set of items."""

    name: str
    source: str
    train_items: int | None
    test_items: int | None


class RunsView(BaseModel):
    """Runs of a result, and how many are dropped at each end.

    A submission must have `started` runs. That is more than `count` if only the first `count` that
    reach the target make the result.
    """

    count: int
    dropped: int
    started: int


class BenchmarkView(BaseModel):
    """A benchmark: task, data set, target and rules version.

    `convergence_unit`, "epochs" or "samples", is the unit of a training's length. `submissions`
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
    sha256: str
    submissions: int
    inference_submissions: int
    phases: PhasesView | None = None


class BenchmarkList(BaseModel):
    """Every benchmark of this server."""

    benchmarks: list[BenchmarkView]


def target_view(benchmark: Benchmark) -> TargetView:
    """View of a benchmark's target."""
    return _view_of(benchmark.target)


def _view_of(target: QualityTarget) -> TargetView:
    return TargetView(
        metric=target.metric,
        value=target.value,
        unit=target.unit,
        direction=target.direction,
        also=[_view_of(other) for other in target.also],
    )


def benchmark_view(
    benchmark: Benchmark, counts: Counts = NO_SUBMISSIONS, *, phases: PhasesView | None = None
) -> BenchmarkView:
    """View of a benchmark with the number of its submissions."""
    data_set = benchmark.data_set
    return BenchmarkView(
        id=benchmark.benchmark_id,
        title=benchmark.title,
        version=benchmark.version,
        task=benchmark.task,
        about=benchmark.about,
        data_set=DataSetView(
            name=data_set.name,
            source=data_set.source,
            train_items=data_set.train_items,
            test_items=data_set.test_items,
        ),
        target=target_view(benchmark),
        clock=benchmark.clock.name,
        runs=RunsView(
            count=benchmark.runs.count,
            dropped=benchmark.runs.dropped,
            started=benchmark.runs.wanted,
        ),
        divisions=list(benchmark.divisions),
        replayable=benchmark.replay is not None,
        convergence_unit="samples" if benchmark.convergence_unit == "samples_count" else "epochs",
        sha256=benchmark.sha256,
        submissions=counts.train + counts.inference,
        inference_submissions=counts.inference,
        phases=phases,
    )
