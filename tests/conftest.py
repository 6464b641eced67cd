"""Factories and benchmarks that tests of several rooms share."""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from rules.benchmark import (
    Benchmark,
    DataSet,
    QualityTarget,
    ReachRule,
    RunsRule,
    load_benchmark,
)
from rules.clock import Clock
from rules.run import Evaluation, Run
from tests.support.chromium import running_chromium

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture(scope="session")
def benchmarks_dir() -> Path:
    """The folder of benchmark definitions that is shipped."""
    return BENCHMARKS


@pytest.fixture(scope="session")
def digits() -> Benchmark:
    """The digits benchmark: closed and open, 3 runs of which 1 is dropped at each end, replayed."""
    return load_benchmark(BENCHMARKS / "digits.toml")


@pytest.fixture(scope="session")
def cifar10() -> Benchmark:
    """The CIFAR-10 benchmark: DAWNBench's rules, one run, replayed but not calibrated."""
    return load_benchmark(BENCHMARKS / "cifar10.toml")


@pytest.fixture
def make_benchmark() -> Callable[..., Benchmark]:
    """Builds a benchmark without a replay: 94 % of 10,000 items, 1 run, the DAWNBench clock."""

    def build(
        *,
        value: float = 94.0,
        direction: str = "higher",
        reach: str = "first_crossing",
        evaluations: int = 1,
        clock: str = "dawnbench",
        count: int = 1,
        dropped: int = 0,
        **others: Any,
    ) -> Benchmark:
        settings: dict[str, Any] = {
            "benchmark_id": "cifar10",
            "title": "CIFAR-10",
            "version": "1",
            "task": "Image classification",
            "about": "For tests.",
            "data_set": DataSet("CIFAR-10", "https://example.org", 50_000, 10_000, None),
            "target": QualityTarget("top1Accuracy", value, "percent", direction, 0.01),  # type: ignore[arg-type]
            "reach": ReachRule(reach, evaluations),
            "clock": Clock(clock),
            "runs": RunsRule(count, dropped),
            "divisions": ("closed", "open"),
            "log_names": ("cifar10",),
            "hyperparameters": {},
            "replay": None,
            "reference_runs": (),
            "sha256": "0" * 64,
        }
        return Benchmark(**(settings | others))

    return build


@pytest.fixture
def make_run() -> Callable[..., Run]:
    """Builds a run from its qualities: one evaluation an epoch, `seconds_per_epoch` apart."""

    def build(
        qualities: Sequence[float],
        *,
        name: str = "run_0.log",
        seconds_per_epoch: float = 10.0,
        clock: str = "dawnbench",
        **others: Any,
    ) -> Run:
        evaluations = tuple(
            Evaluation(epoch=float(epoch), seconds=epoch * seconds_per_epoch, quality=quality)
            for epoch, quality in enumerate(qualities, 1)
        )
        return Run(name=name, clock=clock, evaluations=evaluations, **others)

    return build


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """One Chromium for all tests that visit pages: its driver allows no second one."""
    with running_chromium() as opened:
        yield opened
