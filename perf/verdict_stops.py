"""Simulated claims of a benchmark with runs that all stop at the same step: the grammar one.

A run has the mean curve of the shipped runs and scatters around it as they do: half of the variance
is the run's own from beginning to end, half is new at each evaluation.
"""

import dataclasses
from collections import Counter
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from finishline.rules.benchmarks.benchmark import Benchmark, ReferenceRun, load_benchmark
from finishline.rules.scoring.violations import FIXED_STOP_P_VALUE
from finishline.rules.statistics.significance import p_value_of_mean_beyond
from perf.verdict_claims import PACE_STDEV, TRIALS_OF_A_REFERENCE, judged, reported, timed

REFERENCE_RUNS, CLAIMED, REPLAYS = 20, 5, 3
GRAMMAR = Path(__file__).resolve().parents[1] / "benchmarks" / "grammar.toml"
SEED = 20_261

Curves = NDArray[np.float64]


class Language:
    """Draws runs like the shipped ones, their loss lower by `shift` deviations at the stop."""

    def __init__(self, benchmark: Benchmark, random: np.random.Generator, shift: float) -> None:
        shipped = np.array([run.quality for run in benchmark.reference_runs])
        self.mean, self.stdev = shipped.mean(axis=0), shipped.std(axis=0, ddof=1)
        self.random, self.shift = random, shift

    def runs(self, count: int, *, better: float = 0.0) -> Curves:
        """Curves (count, epochs), lower still by `better` deviations of a run at the stop."""
        own = self.random.normal(0, np.sqrt(0.5), (count, 1))
        fresh = self.random.normal(0, np.sqrt(0.5), (count, len(self.mean)))
        curves = self.mean + self.stdev * (own + fresh)
        rounded: Curves = np.round(curves - (self.shift + better) * self.stdev[-1], 4)
        return rounded


def simulate(*, trials: int, margin: float = 4.0, better: float = 0.0) -> Counter[str]:
    """The outcomes of claims with a mean `better` deviations too good; "refused" at submission.

    `margin` is how far the reference's own mean is beyond the target, in deviations of a run.
    """
    grammar = load_benchmark(GRAMMAR)
    random = np.random.default_rng([SEED, round(10 * margin), round(10 * better)])
    shipped = Language(grammar, random, 0.0)
    away = (grammar.target.value - shipped.mean[-1]) / shipped.stdev[-1]
    language = Language(grammar, random, float(margin - away))
    benchmark, counts = grammar, Counter[str]()
    for trial in range(trials):
        if trial % TRIALS_OF_A_REFERENCE == 0:
            benchmark = _calibrated(grammar, language.runs(REFERENCE_RUNS))
        claimed = language.runs(CLAIMED, better=better)
        if is_refused(claimed[:, -1].tolist(), benchmark):
            counts["refused"] += 1
            continue
        counts[_outcome(benchmark, claimed, language.runs(REPLAYS), random)] += 1
    return counts


def is_refused(finals: list[float], benchmark: Benchmark) -> bool:
    """Whether the door refuses a claim: its own mean does not beat the target with p < 0.01."""
    target = benchmark.target
    p_value = p_value_of_mean_beyond(finals, target.value, direction=target.direction)
    return p_value is None or p_value >= FIXED_STOP_P_VALUE


def _calibrated(benchmark: Benchmark, curves: Curves) -> Benchmark:
    runs = tuple(ReferenceRun(32, 1000 + i, tuple(c)) for i, c in enumerate(curves.tolist()))
    return dataclasses.replace(benchmark, reference_runs=runs)


def _outcome(
    benchmark: Benchmark, claimed: Curves, replayed: Curves, random: np.random.Generator
) -> str:
    paces = np.exp(random.normal(0, PACE_STDEV, len(claimed) + len(replayed))).tolist()
    curves = [timed(curve, pace) for curve, pace in zip(claimed.tolist(), paces, strict=False)]
    again = [
        timed(curve, pace)
        for curve, pace in zip(replayed.tolist(), paces[len(claimed) :], strict=True)
    ]
    replays = [reported(2000 + i, curve, curve[-1].seconds) for i, curve in enumerate(again)]
    return judged(benchmark, curves, replays, batch_size=32).outcome
