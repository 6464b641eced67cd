"""Student's t distribution, and Holm's correction of p-values for several tests at once."""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Literal

from finishline.rules.errors import StatisticsMissingError
from finishline.rules.scoring.aggregate import mean, standard_deviation


@lru_cache(maxsize=4096)  # Welch's degrees of freedom are no whole numbers: without end.
def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The value below which Student's t lies with this probability.

    Raises StatisticsMissingError without SciPy, as each of these functions does.
    """
    return float(_scipy_special().stdtrit(degrees_of_freedom, probability))


def t_probability(value: float, degrees_of_freedom: float) -> float:
    """The probability that Student's t is below a value."""
    return float(_scipy_special().stdtr(degrees_of_freedom, value))


def has_scipy() -> bool:
    """Whether SciPy is installed, without importing it."""
    return importlib.util.find_spec("scipy") is not None


def _scipy_special() -> ModuleType:
    """Import SciPy at the first use: it is the extra `stats`, and takes a tenth of a second."""
    try:
        import scipy.special
    except ModuleNotFoundError:
        raise StatisticsMissingError from None
    special: ModuleType = scipy.special
    return special


def holm(p_values: Sequence[float]) -> list[float]:
    """Each p-value adjusted for all of them, in the order given.

    To reject where the adjusted value is at most alpha keeps the chance of any false rejection at
    alpha, however the tests depend on each other. Source: Holm (1979), "A simple sequentially
    rejective multiple test procedure".
    """
    places = sorted(range(len(p_values)), key=p_values.__getitem__)
    adjusted = [1.0] * len(p_values)
    highest = 0.0
    for step, place in enumerate(places):
        highest = max(highest, min(1.0, (len(p_values) - step) * p_values[place]))
        adjusted[place] = highest
    return adjusted


@dataclass(frozen=True)
class Reference:
    """Mean and spread of a figure over `count` reference runs; `stdev` with ddof = 1."""

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
    sample_mean: float, reference: Reference, *, weight: int, alpha: float, quantum: float = 0.0
) -> LowestMean:
    """One-sided t-test as a limit: is a mean worth `weight` runs too low for the reference?

    lowest = mean - t(1 - alpha, n_ref - 1) * s * sqrt(1 / n_ref + 1 / weight), s the standard
    deviation of the reference, and never below that of rounding to steps of `quantum`
    (quantum / sqrt(12)), because figures read off at evaluations cannot scatter less; for the
    same reason a mean within one quantum of the reference's is never too low. The claim's own
    scatter does not enter: it is the claimant's to choose.
    Source: Student's t-test with the reference's variance; MLPerf training_rules.adoc,
    "Reference Convergence Points", for the closed form.
    """
    spread = max(reference.stdev, quantum / math.sqrt(12))
    quantile = t_quantile(1 - alpha, reference.count - 1)
    margin = quantile * spread * math.sqrt(1 / reference.count + 1 / weight)
    return LowestMean(
        reference=reference,
        sample_mean=sample_mean,
        lowest=max(0.0, reference.mean - max(margin, quantum)),
    )


def p_value_of_mean_beyond(
    values: Sequence[float],
    limit: float,
    *,
    direction: Literal["higher", "lower"],
    beside: Sequence[float] = (),
) -> float | None:
    """Probability of a sample mean this far beyond `limit` if the true mean is just at it.

    Beyond is above for "higher" and below for "lower". None for fewer than two values. The variance
    is pooled with that of the figures `beside`; their mean does not enter.
    Source: Student's one-sided one-sample t-test.
    """
    if len(values) < 2:
        return None
    distance = mean(values) - limit if direction == "higher" else limit - mean(values)
    squares, freedom = 0.0, 0
    for group in (values, beside):
        if len(group) > 1:
            squares += (len(group) - 1) * standard_deviation(group, ddof=1) ** 2
            freedom += len(group) - 1
    error = math.sqrt(squares / freedom / len(values))
    if error == 0.0:
        return 0.0 if distance > 0 else 1.0
    return t_probability(-distance / error, freedom)


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
    """Test if `seconds` is over `null_ratio` times slower than `than`; None below two values each.

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
    return WelchTest(ratio, t_probability(-difference / math.sqrt(total), freedom), freedom)


SHORTEST_SECONDS = 0.001  # Logs are stamped in milliseconds: nothing shorter was measured.
LONGEST_SECONDS = 1e12  # No log has so late a time stamp.


@dataclass(frozen=True)
class SlowerTest:
    """Ratio of replayed to claimed time, and whether it is more than noise.

    `ratio` is the geometric mean of the replays over the claimed time; `p_slower` the one-sided
    probability of such a ratio if the true ratio were the tolerated one.
    """

    ratio: float
    p_slower: float
    degrees_of_freedom: int


def slower_than_claimed(
    replayed: Sequence[float],
    claimed_seconds: float,
    *,
    claimed_runs: Sequence[float],
    weight: int,
    tolerated_ratio: float,
) -> SlowerTest | None:
    """Test if the replays are more than `tolerated_ratio` times slower than the claimed result.

    `claimed_seconds` is the claim's ranked time, a mean worth `weight` runs. Student's t-test on
    log times with the variances pooled, but that of `claimed_runs` counts no more than that of the
    replays: the claim's scatter is the claimant's to choose, and one absurd run, dropped from the
    mean, must not excuse all others. None below two replays.
    """
    if len(replayed) < 2:
        return None
    logs = [math.log(max(s, SHORTEST_SECONDS)) for s in replayed]
    claimed_logs = [math.log(max(s, SHORTEST_SECONDS)) for s in claimed_runs]
    own = standard_deviation(logs, ddof=1) ** 2
    freedom, variance = len(logs) - 1, own
    if len(claimed_logs) >= 2:
        theirs = min(own, standard_deviation(claimed_logs, ddof=1) ** 2)
        more = len(claimed_logs) - 1
        variance = (freedom * own + more * theirs) / (freedom + more)
        freedom += more
    difference = mean(logs) - math.log(max(claimed_seconds, SHORTEST_SECONDS))
    excess = difference - math.log(tolerated_ratio)
    error = math.sqrt(variance * (1 / len(logs) + 1 / weight))
    if error == 0.0:
        return SlowerTest(math.exp(difference), 0.0 if excess > 0 else 1.0, freedom)
    return SlowerTest(math.exp(difference), t_probability(-excess / error, freedom), freedom)
