"""The job of a speed-up: reference and package in turn, on equal seeds and data."""

from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from finishline.rules.errors import RuleError
from finishline.rules.verification.job import Request
from finishline.rules.verification.speed_up import (
    SPEED_UP,
    judge_speed_up,
    measured_speed_up,
    side_of_run,
)
from tests.rules.test_ablation import ENTRY, case_of

ENTROPY, REFERENCE = bytes(range(32)), "b" * 64


def requested(benchmark):
    return Request(benchmark, ENTROPY, claims=[ENTRY], reference=REFERENCE)


def case_with(benchmark, pairs):
    """A report of these pairs of the reference's and the package's seconds."""
    plan = SPEED_UP.plan(requested(benchmark))[: 2 * len(pairs)]
    seconds = [
        pairs[index // 2][0 if side_of_run(index) == "reference" else 1]
        for index in range(len(plan))
    ]
    return case_of(benchmark, plan, seconds)


def test_reference_and_package_are_trained_in_turn_on_one_seed_and_draw(digits):
    plan = SPEED_UP.plan(requested(digits))

    # Five runs of an entry of digits: an even number of pairs, so that a drift cancels.
    assert len(plan) == 12
    letters = "".join("R" if each.package == f"sha256:{REFERENCE}" else "P" for each in plan)
    assert letters == "RPPR" * 3
    pairs = [(plan[at], plan[at + 1]) for at in range(0, 12, 2)]
    for one, other in pairs:
        assert (one.seed, one.data_nonce) == (other.seed, other.data_nonce)
    assert len({one.seed for one, _ in pairs}) == len({one.data_nonce for one, _ in pairs}) == 6


def test_speed_up_is_the_paired_ratio_with_student_s_interval(digits):
    reference, package = [3.0, 3.1, 2.95, 3.2], [2.0, 2.2, 1.9, 2.1]
    case = case_with(digits, list(zip(reference, package, strict=True)))

    found, verdict = measured_speed_up(digits, case.report), judge_speed_up(case)

    test = stats.ttest_1samp(np.log(reference) - np.log(package), 0)
    low, high = test.confidence_interval()
    ratio = np.exp((np.log(reference) - np.log(package)).mean())
    assert (found.ratio, found.low, found.high, found.p_value) == pytest.approx(
        (ratio, np.exp(low), np.exp(high), test.pvalue)
    )
    assert verdict.outcome == "verified"
    (reason,) = verdict.reasons
    assert reason.numbers["pairs"] == 4
    assert "1.50 times the package's time" in reason.message


@pytest.mark.parametrize(
    ("pairs", "told"),
    [
        # A ratio of the other pairs alone would favour the side that missed.
        ([(3.0, 2.0)] * 3 + [(3.0, None)], "the package missed the target in 1 of its 4 runs"),
        ([(None, 2.0)] + [(3.0, 2.0)] * 3, "the reference missed the target in 1 of its 4 runs"),
        ([(3.0, 2.0)], "too few pairs"),
    ],
)
def test_a_missed_run_leaves_the_speed_up_open(digits, pairs, told):
    verdict = judge_speed_up(case_with(digits, pairs))

    assert verdict.outcome == "inconclusive"
    assert told in verdict.reasons[0].message


def test_a_benchmark_without_a_reference_package_says_so(digits):
    policy = digits.trainings
    assert policy is not None
    bare = replace(digits, trainings=replace(policy, files={"task.py": "0" * 64}))

    assert SPEED_UP.why_not(bare, [ENTRY]) == ("digits has no reference package to train beside it")
    with pytest.raises(RuleError, match="no reference package"):
        SPEED_UP.plan(requested(bare))
    logs = replace(ENTRY, package=None)
    assert "a speed-up is of a training package" in str(SPEED_UP.why_not(digits, [logs]))
