"""How far further figures may lie from a reference: one-sided prediction for normal figures."""

import math
from functools import cache

from rules.significance import Reference
from rules.student import t_quantile

NODES = 48


def upper_deviations(count: int, *, alpha: float, figures: int) -> float:
    """How many reference deviations above the mean none of `figures` further figures lies.

    t(1 - alpha / figures, n - 1) * sqrt(1 + 1 / n) for a reference of `count` = n figures: at least
    one figure lies above with probability at most alpha.
    Source: Hahn & Meeker, "Statistical Intervals", 4.8 (Bonferroni).
    """
    return t_quantile(1 - alpha / figures, count - 1) * math.sqrt(1 + 1 / count)


def all_below_probability(limit: float, reference: Reference, *, count: int) -> float:
    """The probability that each of `count` further figures lies at or below a limit.

    E[Phi(m + k s) ^ count] with k = (limit - mean) / stdev, over the mean m ~ N(0, 1 / n) and the
    deviation s ~ sqrt(chi2(n - 1) / (n - 1)) of a reference of n figures.
    Source: predictive distribution of normal figures (Hahn & Meeker, "Statistical Intervals", 4.8).
    """
    from scipy.special import ndtr

    deviations = (limit - reference.mean) / reference.stdev
    weights, means, stdevs = _nodes(reference.count)
    return float((weights * ndtr(means + deviations * stdevs) ** count).sum())


@cache
def _nodes(count: int):  # type: ignore[no-untyped-def]  # arrays, loaded at the first use
    """Quadrature over the mean (Gauss-Hermite) and the deviation (quantiles) of a reference."""
    import numpy as np
    from scipy.special import chdtri

    points, mass = np.polynomial.hermite_e.hermegauss(NODES)
    ranks, rank_mass = np.polynomial.legendre.leggauss(NODES)
    freedom = count - 1
    stdevs = np.sqrt(chdtri(freedom, (ranks + 1) / 2) / freedom)
    weights = np.outer(mass / mass.sum(), rank_mass / 2)
    return weights, (points / math.sqrt(count))[:, None], stdevs[None, :]
