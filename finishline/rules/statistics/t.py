"""Student's t distribution, and Holm's correction of p-values for several tests at once."""

import importlib.util
from collections.abc import Sequence
from functools import lru_cache
from types import ModuleType

from finishline.rules.errors import StatisticsMissingError


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
