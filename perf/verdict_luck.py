"""Luck in our own runs: its possible gain for a row, by the rules that make the ranked time.

The time of a run is lognormal. Every ratio is the expected time of an honest row of the same
settings and class over that of a submitter who tries their luck.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from finishline.rules.scoring.measured_time import Spread, dropped_at_each_end, interval_of

SEED = 20_262
CONFIRM_RUNS, FIRST_RUNS, TRIES = 10, 3, 20
# Many replays of a class: its spread is known about as well as it ever is.
DEGREES_OF_FREEDOM = 60.0

Times = NDArray[np.float64]


@dataclass(frozen=True)
class Gain:
    """Gain of a strategy: in the printed row, and in the first three, after fresh runs.

    `half_interval` is the half width of the printed interval, relative, None where nothing is
    printed; `bar` is the largest ratio in the first three.
    """

    name: str
    below: float
    first_three: float
    half_interval: float | None
    bar: float = 1.005


def gains(trials: int, *, variation: float = 0.08) -> list[Gain]:
    """Every way to try one's luck with our own runs."""
    random = np.random.default_rng([SEED, round(variation * 1000)])
    sigma = math.sqrt(math.log(1 + variation**2))

    def times(*shape: int) -> Times:
        return np.exp(random.normal(0, sigma, (trials, *shape)))

    honest, fresh = mean_of(times(FIRST_RUNS)).mean(), mean_of(times(CONFIRM_RUNS)).mean()
    confirmed = mean_of(times(CONFIRM_RUNS)).mean()
    luck: dict[str, Callable[[Times], tuple[Times, Times]]] = {
        "best of 20 accounts": _all_runs,
        "stop when lucky": _stop_when_lucky,
        "withdraw and repeat": _all_runs,
    }
    found = []
    for name, try_luck in luck.items():
        ranked, runs = try_luck(times(TRIES * FIRST_RUNS))
        half = half_interval(sigma, int(np.median(runs)))
        found.append(Gain(name, honest / ranked.mean(), fresh / confirmed, half))
    for count, bar in ((2, 1.025), (5, 1.035), (20, 1.055)):
        best = mean_of(times(count, CONFIRM_RUNS)).min(axis=1).mean()
        name = f"the best of {count} equal configurations, ten fresh runs each"
        found.append(Gain(name, fresh / best, fresh / best, None, bar))
    return found


def claim_gains(trials: int, *, variation: float = 0.05) -> dict[int, float]:
    """Ratio of the mean claimed epochs to those of the best of 20 honest sets, by runs of a set."""
    random = np.random.default_rng([SEED, 2])
    sigma = math.sqrt(math.log(1 + variation**2))
    found = {}
    for runs in (3, 5, 10):
        sets = mean_of(np.exp(random.normal(0, sigma, (trials, TRIES, runs))))
        found[runs] = float(sets.mean() / sets.min(axis=1).mean())
    return found


def mean_of(times: Times) -> Times:
    """The olympic mean over the last axis, as rules.measured_time takes it."""
    runs = times.shape[-1]
    drop = dropped_at_each_end(runs)
    kept: Times = np.sort(times, axis=-1)[..., drop : runs - drop].mean(axis=-1)
    return kept


def half_interval(sigma: float, runs: int) -> float:
    """The half width of the interval that is printed beside a mean of so many runs, relative."""
    interval = interval_of(1.0, runs=runs, spread=Spread(sigma, DEGREES_OF_FREEDOM))
    return 0.0 if interval is None else 1 - interval.low


def _all_runs(times: Times) -> tuple[Times, Times]:
    """Rank by all runs of a configuration: one pool, for any requester and after withdrawals."""
    return mean_of(times), np.full(len(times), times.shape[-1])


def _stop_when_lucky(times: Times) -> tuple[Times, Times]:
    """Ask for three more runs until the pool is 5 % under its true time, at most 20 times."""
    ranked, runs = mean_of(times[:, :FIRST_RUNS]), np.full(len(times), FIRST_RUNS)
    going = ranked > 0.95
    for asked in range(2, TRIES + 1):
        count = asked * FIRST_RUNS
        pooled = mean_of(times[:, :count])
        ranked, runs = np.where(going, pooled, ranked), np.where(going, count, runs)
        going = going & (pooled > 0.95)
    return ranked, runs
