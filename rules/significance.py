"""Is the difference more than noise: one-sided tests with closed-form limits."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from scipy.special import stdtr, stdtrit

from rules.aggregate import mean, standard_deviation


@dataclass(frozen=True)
class Reference:
    """What is known of a figure from `count` reference runs; `stdev` with ddof = 1."""

    mean: float
    stdev: float
    count: int


def reference_of(values: Sequence[float]) -> Reference:
    """The reference that at least two figures make."""
    return Reference(mean(values), standard_deviation(values, ddof=1), len(values))


@dataclass(frozen=True)
class LowestMean:
    """The least mean a sample may have before it is too small to come from the reference."""

    reference: Reference
    sample_mean: float
    lowest: float

    @property
    def is_too_low(self) -> bool:
        """Whether the sample mean is below the limit."""
        return self.sample_mean < self.lowest


def lowest_mean(
    sample: Sequence[float], reference: Reference, *, alpha: float, quantum: float = 0.0
) -> LowestMean:
    """One-sided t-test as a limit: is the mean of `sample` too low for the reference?

    lowest = mean - t(1 - alpha, n_ref - 1) * s * sqrt(1 / n_ref + 1 / n_sample), s the standard
    deviation of the reference, and never below that of rounding to steps of `quantum`
    (quantum / sqrt(12)), because figures read off at evaluations cannot scatter less. The claim's
    own scatter does not enter: it is the claimant's to choose.
    Source: Student's t-test with the reference's variance; MLPerf training_rules.adoc,
    "Reference Convergence Points", for the closed form.
    """
    spread = max(reference.stdev, quantum / math.sqrt(12))
    quantile = float(stdtrit(reference.count - 1, 1 - alpha))
    margin = quantile * spread * math.sqrt(1 / reference.count + 1 / len(sample))
    return LowestMean(
        reference=reference,
        sample_mean=mean(sample),
        lowest=max(0.0, reference.mean - margin),
    )


@dataclass(frozen=True)
class WelchTest:
    """Welch's t-test on the logarithms of two samples of seconds.

    `ratio` is the geometric mean of the first over that of the second; `p_slower` the one-sided
    probability of a ratio this far above `null_ratio` if the true ratio were `null_ratio`.
    """

    ratio: float
    p_slower: float
    degrees_of_freedom: float


def welch_slower(
    seconds: Sequence[float], than: Sequence[float], *, null_ratio: float = 1.0
) -> WelchTest | None:
    """Is `seconds` more than `null_ratio` times slower than `than`? None below two values each.

    Source: Welch (1947), on log times, so that the figure tested is a ratio.
    """
    if len(seconds) < 2 or len(than) < 2:
        return None
    first, second = [math.log(s) for s in seconds], [math.log(s) for s in than]
    difference = mean(first) - mean(second) - math.log(null_ratio)
    variances = [standard_deviation(logs, ddof=1) ** 2 / len(logs) for logs in (first, second)]
    total = sum(variances)
    ratio = math.exp(mean(first) - mean(second))
    if total == 0.0:
        return WelchTest(ratio, 0.0 if difference > 0 else 1.0, math.inf)
    freedom = total**2 / sum(
        v**2 / (len(logs) - 1) for v, logs in zip(variances, (first, second), strict=True)
    )
    return WelchTest(ratio, float(stdtr(freedom, -difference / math.sqrt(total))), freedom)
