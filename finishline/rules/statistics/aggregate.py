"""Aggregate the runs of a set into one figure with its spread."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.errors import RuleError
from finishline.rules.text import count_text


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
        raise RuleError(
            f"{count_text(len(times), 'run')}, {dropped} to drop at each end", expected="more runs"
        )
    ordered = sorted(math.inf if seconds is None else seconds for seconds in times)
    kept = ordered[dropped : len(ordered) - dropped]
    return None if math.isinf(kept[-1]) else mean(kept)


def olympic_weight(count: int, *, dropped: int) -> int:
    """Of how many runs the plain mean scatters no less than the olympic mean of `count` runs.

    The variance of an olympic mean of normal figures is below sigma^2 / (count - dropped): for 3
    runs 0.449 sigma^2, for 5 0.227, for 10 0.105 (variances of trimmed means).
    """
    return count - dropped


def median_window(times: Sequence[float | None], *, count: int, dropped: int) -> slice:
    """Find the `count` consecutive runs with the median olympic mean of all such windows.

    An invalid window counts as infinite. Of an even number of windows the slower of the two in
    the middle is taken, because the submitter chose how many runs there are; of equal windows the
    first. All runs where there are no more than `count`.
    Source: MLPerf training_rules.adoc, "Benchmark results" (M > N runs).
    """
    windows = [slice(i, i + count) for i in range(len(times) - count + 1)]

    def olympic_seconds(window: slice) -> float:
        seconds = olympic_mean(times[window], dropped=dropped)
        return math.inf if seconds is None else seconds

    return sorted(windows, key=olympic_seconds)[len(windows) // 2] if windows else slice(None)


def mean(values: Sequence[float]) -> float:
    """The arithmetic mean of at least one value."""
    return math.fsum(values) / len(values)


def standard_deviation(values: Sequence[float], *, ddof: int) -> float:
    """The standard deviation of more than `ddof` values."""
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - ddof))


def coefficient_of_variation_percent(values: Sequence[float]) -> float | None:
    """Population standard deviation over mean, in percent; None below two values or at mean 0.

    Over all runs that converged, nothing dropped (ddof = 0): this reproduces the figures
    published for MLPerf Training v0.5. Source: Verma et al., "Demystifying the MLPerf Training
    Benchmark Suite".
    """
    if len(values) < 2 or mean(values) == 0.0:
        return None
    return standard_deviation(values, ddof=0) / mean(values) * 100.0
