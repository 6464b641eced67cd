"""What all tests of verdicts judge."""

import dataclasses

import pytest

from finishline.rules.submissions.claim import Claim
from finishline.rules.verification.replay import judge
from tests.support.verdicts import HONEST_EPOCHS, LAPTOP, claimed, replay, report


@pytest.fixture(scope="module")
def curve(digits):
    """The mean curve of the reference at batch size 64: 97.5 % is reached at epoch 8."""
    columns = zip(*[run.quality for run in digits.reference_runs_at(64)], strict=True)
    means = [sum(column) / len(column) for column in columns]
    assert means[6] < 97.5 <= means[7]
    return means


@pytest.fixture
def verdict(digits, curve):
    """Judges a claim on digits; three replays that follow the reference where none are given."""

    def judge_it(
        runs=None,
        replays=None,
        *,
        benchmark=digits,
        hardware_class="cpu-x86_64",
        hyperparameters=None,
        division="closed",
        trained_with="reference",
        drift=None,
        accelerators=0,
        **others,
    ):
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
