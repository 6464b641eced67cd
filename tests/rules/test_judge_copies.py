"""Copied curves; the distances are those of scipy."""

from collections.abc import Sequence

import numpy as np
import pytest
import scipy.spatial.distance

from rules.benchmark import Benchmark
from rules.judge_copies import judge_copies

KNOWN = np.random.default_rng(3).normal(90.0, 2.0, (7, 8))
ALPHA, SHARE = 0.01, 0.08


def judged(
    digits: Benchmark, curves: Sequence[Sequence[float | None]]
) -> list[tuple[str, dict[str, float]]]:
    assert digits.replay is not None
    assert digits.replay.alpha == ALPHA
    longer = [*map(tuple, KNOWN[:-1]), (*KNOWN[-1], 98.0)]  # The shortest of them has 8 epochs.
    names = [f"run_{i}.log" for i in range(len(curves))]
    reasons = judge_copies(names, [[curve] for curve in curves], tuple(longer), digits.replay)
    assert {(r.code, r.weight) for r in reasons} <= {("curve_copied", "leaves_open")}
    return [(r.message, r.numbers) for r in reasons]


@pytest.mark.parametrize("runs", [1, 2])
@pytest.mark.parametrize("epochs", [5, 8, 10])
def test_a_curve_nearer_than_chance_allows_to_a_calibrated_one_is_told(
    digits: Benchmark, epochs: int, runs: int
) -> None:
    """The limit is median * (2 a / N) ^ (1 / 3), both as far as the curves go."""
    length = min(epochs, 8)
    copied = [*(KNOWN[2] + 0.01), 98.0, 98.5][:epochs]
    own = [*(KNOWN.mean(axis=0) + 3.0)]
    between = scipy.spatial.distance.cdist(KNOWN[:, :length], KNOWN[:, :length]) / length**0.5
    median = np.median(np.where(np.eye(7), np.inf, between).min(axis=1))

    ((message, numbers),) = judged(digits, [own, copied][-runs:])

    assert message.startswith(f"run_{runs - 1}.log stays within 0.01 of calibrated run 3,")
    assert numbers["distance"] == pytest.approx(0.01)
    assert numbers["honest_median"] == pytest.approx(median)
    figures = runs * (1 + (runs - 1) / (2 * 7))
    assert numbers["limit"] == pytest.approx(median * (2 * ALPHA * SHARE / figures) ** (1 / 3))


def test_one_training_under_two_names_is_told_of_the_later(digits: Benchmark) -> None:
    """By the distance in which the two go, where the later one stopped an epoch earlier."""
    own = [*(KNOWN.mean(axis=0) + 3.0)]
    again = [quality - 0.01 for quality in own[:6]]
    between = scipy.spatial.distance.cdist(KNOWN[:, :6], KNOWN[:, :6]) / 6**0.5
    median = np.median(np.where(np.eye(7), np.inf, between).min(axis=1))

    ((message, numbers),) = judged(digits, [own, again])

    assert message.startswith("run_1.log stays within 0.01 of run_0.log,")
    assert numbers["distance"] == pytest.approx(0.01)
    assert numbers["honest_median"] == pytest.approx(median)


def test_epochs_without_an_evaluation_are_left_out_and_five_are_enough(digits: Benchmark) -> None:
    gap = [*KNOWN[2][:3], None, *KNOWN[2][4:]]
    at = [0, 1, 2, 4, 5, 6, 7]
    between = scipy.spatial.distance.cdist(KNOWN[:, at], KNOWN[:, at]) / 7**0.5

    ((_, numbers),) = judged(digits, [gap])
    median = np.median(np.where(np.eye(7), np.inf, between).min(axis=1))
    assert numbers["honest_median"] == pytest.approx(median)
    assert judged(digits, [KNOWN[2][:4].tolist()]) == []
    assert judged(digits, [[*KNOWN[2][:4], None, None]]) == []
    assert len(judged(digits, [[*KNOWN[2], None]])) == 1  # beyond the calibrated epochs
