import dataclasses
from collections.abc import Sequence

import pytest

from rules.benchmark import Benchmark, ReplayPolicy
from rules.judge_selection import judge_selection
from rules.prediction import all_below_probability
from rules.significance import Reference

REFERENCE = Reference(mean=8.0, stdev=0.5, count=40)


@pytest.fixture(scope="module")
def policy(digits: Benchmark) -> ReplayPolicy:
    assert digits.replay is not None
    return digits.replay


@pytest.mark.parametrize(
    ("claimed", "reference", "told"),
    [
        ([6.2, 6.3, 6.4], REFERENCE, True),
        ([6.3, 6.4], REFERENCE, True),
        ([6.2, 6.3, 8.0], REFERENCE, False),  # the slowest alone tells
        ([6.2, 6.3, None], REFERENCE, False),  # and it did not reach the target
        ([6.2], REFERENCE, False),  # its mean is tested already
        ([6.2, 6.3], Reference(8.0, 0.0, 40), False),  # nothing scatters: there is no choice
    ],
)
def test_runs_that_are_all_faster_than_chance_allows_were_chosen(
    policy: ReplayPolicy, claimed: Sequence[float | None], reference: Reference, told: bool
) -> None:
    reasons = judge_selection(claimed, reference, 0.1, policy)

    assert [(r.code, r.weight) for r in reasons] == [("runs_selected", "leaves_open")] * told


@pytest.mark.parametrize(("quantum", "limit"), [(0.1, 6.4), (1.0, 7.4)])
def test_whole_epochs_may_lie_one_below_what_was_needed(
    policy: ReplayPolicy, quantum: float, limit: float
) -> None:
    always = dataclasses.replace(policy, alpha=1.0)

    (reason,) = judge_selection([6.2, 6.3, 6.4], REFERENCE, quantum, always)

    assert reason.numbers["slowest_claimed_epochs"] == 6.4
    assert reason.numbers["probability"] == pytest.approx(
        all_below_probability(limit, REFERENCE, count=3)
    )
