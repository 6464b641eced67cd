"""Simulated entries of a benchmark with two halves: how often the second half confirms them.

A run has the true qualities of an entry at its asks. Each half of the test items samples each
quality anew, so that every relabelling is as lucky as it can be.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finishline.rules.benchmarks.quality import Direction
from finishline.rules.scoring.measured_time import measured_seconds
from finishline.rules.trainings.halves import judge_halves

SEED = 20_263


@dataclass(frozen=True)
class Halves:
    """A target in percent and the items of a half; `runs` of an entry."""

    target: float
    items: int
    runs: int
    direction: Direction = "higher"


def measured_share(rule: Halves, qualities: NDArray[np.float64], *, trials: int) -> float:
    """Share of simulated entries that are measured.

    `qualities` (draws, asks) are true ones in percent; a run takes those of one of the draws.
    """
    random = np.random.default_rng([SEED, rule.runs, len(qualities)])
    drawn = qualities[random.integers(0, len(qualities), (trials, rule.runs))]  # (T, runs, asks)
    first, second = (
        100 * random.binomial(rule.items, drawn / 100) / rule.items for _half in range(2)
    )
    at_target = first >= rule.target
    reached = np.any(at_target, axis=2, keepdims=True)[..., 0]
    deciding = at_target.argmax(axis=2)
    judged = np.take_along_axis(second, deciding[..., None], axis=2)[..., 0]
    return sum(map(_is_measured, [rule] * trials, reached, judged)) / trials


def _is_measured(
    rule: Halves, reached: NDArray[np.bool_], second_halves: NDArray[np.float64]
) -> bool:
    """Every started run counts; one that misses has no time, and no second half is judged."""
    times = [1.0 if each else None for each in reached.tolist()]
    if measured_seconds(times) is None:
        return False
    judged = second_halves[reached].tolist()
    return judge_halves(judged, target=rule.target, direction=rule.direction).outcome == "confirmed"
