"""Student's t distribution, and Holm's correction of p-values for several tests at once."""

from collections.abc import Sequence
from functools import lru_cache


@lru_cache(maxsize=4096)  # Welch's degrees of freedom are no whole numbers: without end.
def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """The value below which Student's t lies with this probability."""
    from scipy.special import stdtrit

    return float(stdtrit(degrees_of_freedom, probability))


def t_probability(value: float, degrees_of_freedom: float) -> float:
    """The probability that Student's t is below a value."""
    from scipy.special import stdtr

    return float(stdtr(degrees_of_freedom, value))


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
