"""What all tests of verdicts judge."""

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from finishline.rules.benchmarks.benchmark import Benchmark
from finishline.rules.scoring.scoring import RunScore
from finishline.rules.submissions.claim import Claim, TrainedWith
from finishline.rules.verification.judge import judge
from finishline.rules.verification.messages import ReplayRun
from finishline.rules.verification.verdict import Verdict
from tests.support.verdicts import (
    HONEST_EPOCHS,
    LAPTOP,
    Judge,
    claimed,
    replay,
    report,
)


@pytest.fixture(scope="module")
def curve(digits: Benchmark) -> list[float]:
    """The mean curve of the reference at batch size 64: 97.5 % is reached at epoch 8."""
    columns = zip(*[run.quality for run in digits.reference_runs_at(64)], strict=True)
    means = [sum(column) / len(column) for column in columns]
    assert means[6] < 97.5 <= means[7]
    return means


@pytest.fixture
def verdict(digits: Benchmark, curve: list[float]) -> Judge:
    """Judges a claim on digits; three replays that follow the reference where none are given."""

    def judge_it(
        runs: list[RunScore] | None = None,
        replays: Sequence[ReplayRun] | None = None,
        *,
        benchmark: Benchmark = digits,
        hardware_class: str = "cpu-x86_64",
        hyperparameters: dict[str, float] | None = None,
        division: str = "closed",
        trained_with: TrainedWith = "reference",
        drift: str | None = None,
        accelerators: int = 0,
        **others: Any,
    ) -> Verdict:
        claim = Claim(
            "digits",
            division,
            "m",
            "f",
            LAPTOP,
            ("run_0.log",),
            hyperparameters or {},
            trained_with=trained_with,
        )
        if replays is None:
            slow = (0.97, 1.0, 1.04)
            replays = [replay(i, curve[:8], slowness=slow[i]) for i in range(3)]
        told = report(replays, hardware_class=hardware_class)
        system = dataclasses.replace(told.system, accelerator_count=accelerators)
        return judge(
            benchmark,
            claim,
            claimed(HONEST_EPOCHS) if runs is None else runs,
            dataclasses.replace(told, system=system, drift=drift),
            **others,
        )

    return judge_it
