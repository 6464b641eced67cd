"""Student's t distribution, and Holm's correction of p-values for several tests at once."""

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Literal

from finishline.rules.errors import StatisticsMissingError
from finishline.rules.statistics.aggregate import mean, standard_deviation


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


def lowest_mean(
    reference: Reference,
    *,
    weight: int,
    alpha: float,
    freedom: int | None = None,
    quantum: float = 0.0,
) -> float:
    """The least mean, worth `weight` runs, that is not too low for the reference.

    mean - t(1 - alpha, freedom) * s * sqrt(1 / n + 1 / weight), s the standard deviation of the
    reference, and `freedom` n - 1 where none is given. s is never below that of rounding to steps
    of `quantum` (quantum / sqrt(12)), because figures read off at evaluations cannot scatter less.
    For the same reason a mean within one quantum of the reference's is never too low. The claim's
    own scatter does not enter: it is the claimant's to choose.
    Source: Student's one-sided t-test with the reference's variance; MLPerf training_rules.adoc,
    "Reference Convergence Points", for the closed form.
    """
    spread = max(reference.stdev, quantum / math.sqrt(12))
    quantile = t_quantile(1 - alpha, reference.count - 1 if freedom is None else freedom)
    margin = quantile * spread * math.sqrt(1 / reference.count + 1 / weight)
    return max(0.0, reference.mean - max(margin, quantum))


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


SHORTEST_SECONDS = 0.001  # Logs are stamped in milliseconds: nothing shorter was measured.
LONGEST_SECONDS = 1e12  # No log has so late a time stamp.
