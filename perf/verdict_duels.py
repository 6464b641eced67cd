"""Challenges of a record, simulated: the real plan's order and the real judge, lognormal times.

A trial is one duel of ten pairs. Each run has luck of its own; luck that a pair shares, as that of
its drawn data, cancels in the ratio and is left out.
"""

import math
from dataclasses import dataclass

import numpy as np

from finishline.rules.ranking.records import DUEL_ALPHA
from finishline.rules.verification.duel import RECORD_PAIRS
from finishline.rules.verification.duel_pairs import (
    DuelRun,
    Pair,
    interleave,
    judge_duel,
    p_challenger_no_faster,
)

SEED = 20_263
VARIATIONS = (0.02, 0.05, 0.08)
GAINS = (0.0, 0.05, 0.1, 0.2)
# Challenges won by an equal package, whose chance is the test's own level, and by one 20 % faster.
EQUAL_BAR, FASTER_BAR = DUEL_ALPHA, 0.95
DRIFT = 0.05  # Of the host, over the whole duel: it slows down steadily.


@dataclass(frozen=True)
class Won:
    """Share of challenges won of `trials`, by a package that takes `gain` less time."""

    variation: float
    gain: float
    drift: float
    share: float
    trials: int

    @property
    def is_met(self) -> bool:
        """Whether the share is within its bar, or three standard errors of it, if it has one."""
        if self.gain == 0.0:
            error = math.sqrt(EQUAL_BAR * (1 - EQUAL_BAR) / self.trials)
            return self.share <= EQUAL_BAR + 3 * error
        return self.gain < 0.2 or self.share >= FASTER_BAR


def challenges(trials: int) -> list[Won]:
    """Every variation and gain, on a steady host and on one that slows down."""
    return [
        Won(variation, gain, drift, _share_won(trials, variation, gain, drift), trials)
        for drift in (0.0, DRIFT)
        for variation in VARIATIONS
        for gain in GAINS
    ]


def _share_won(trials: int, variation: float, gain: float, drift: float) -> float:
    random = np.random.default_rng(
        [SEED, *(round(figure * 1000) for figure in (variation, gain, drift))]
    )
    sigma = math.sqrt(math.log(1 + variation**2))
    order = interleave(RECORD_PAIRS)
    pace = np.array([1.0 - gain if side == "challenger" else 1.0 for side in order])
    slower = 1.0 + drift * np.arange(len(order)) / (len(order) - 1)
    times = pace * slower * np.exp(random.normal(0, sigma, (trials, len(order))))
    return sum(_is_won(row.tolist()) for row in times) / trials


def _is_won(seconds: list[float]) -> bool:
    order, pairs = interleave(RECORD_PAIRS), []
    for at in range(0, len(order), 2):
        runs = {
            order[index]: DuelRun(index, index, "reached", seconds[index]) for index in (at, at + 1)
        }
        pairs.append(Pair(at // 2 + 1, runs["challenger"], runs["holder"]))
    p_value = p_challenger_no_faster(judge_duel(pairs))
    return p_value is not None and p_value < DUEL_ALPHA
