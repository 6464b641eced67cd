"""From the runs of a set to one figure, and how much the runs vary."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtrit

from rules.errors import RuleError


@dataclass(frozen=True)
class Interval:
    """A two-sided confidence interval."""

    low: float
    high: float


def olympic_mean(times: Sequence[float | None], *, dropped: int) -> float | None:
    """Mean without the `dropped` fastest and slowest runs, or None if too few converged.

    `times` holds seconds, None for a run that did not converge; such a run counts as slower than
    every other, so `dropped` of them may be dropped and one more makes the set invalid.
    Raises RuleError if nothing is left to average.
    Source: MLPerf training_rules.adoc, "Benchmark results".
    """
    if len(times) <= 2 * dropped:
        raise RuleError(f"{len(times)} runs, {dropped} to drop at each end", expected="more runs")
    ordered = sorted(math.inf if seconds is None else seconds for seconds in times)
    kept = ordered[dropped : len(ordered) - dropped]
    return None if math.isinf(kept[-1]) else mean(kept)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float], *, ddof: int) -> float:
    """The standard deviation of more than `ddof` values."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - ddof))


def coefficient_of_variation_percent(values: Sequence[float]) -> float | None:
    """Population standard deviation over mean, in percent; None for fewer than two values.

    Over all runs that converged, nothing dropped (ddof = 0): this reproduces the figures
    published for MLPerf Training v0.5. Source: Verma et al., "Demystifying the MLPerf Training
    Benchmark Suite".
    """
    if len(values) < 2:
        return None
    return standard_deviation(values, ddof=0) / mean(values) * 100.0


def interval_of_mean(values: Sequence[float], *, confidence: float = 0.95) -> Interval | None:
    """The Student-t interval of the mean; None for fewer than three values."""
    n = len(values)
    if n < 3:
        return None
    quantile = float(stdtrit(n - 1, (1 + confidence) / 2))
    half = quantile * standard_deviation(values, ddof=1) / math.sqrt(n)
    centre = mean(values)
    return Interval(low=max(0.0, centre - half), high=centre + half)
