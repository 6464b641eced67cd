"""Student's t distribution: quantiles and probabilities.

SciPy is loaded at the first use: it takes longer to import than everything else a server starts
with, and a server answers many requests before it needs a quantile.
"""

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
