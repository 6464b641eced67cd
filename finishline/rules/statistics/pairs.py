"""Paired tests: Student's t on log ratios, and counting wins."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import NormalDist

from finishline.rules.scoring.aggregate import mean, standard_deviation
from finishline.rules.statistics.significance import t_probability, t_quantile

POWER = 0.8
MOST_PAIRS_NEEDED = 1_000_000  # Beyond this nobody will ever train them.
_LARGEST_LOG = 700.0  # Logarithms beyond this have no exponential.


@dataclass(frozen=True)
class PairedGap:
    """The first side over the second, from the log ratios of `pairs` pairs.

    `ratio` is the geometric mean of the ratios, below 1 where the first side is less; `low` and
    `high` bound the true ratio with the confidence asked for. `p_less` and `p_more` are one-sided:
    how likely is a ratio this far below, or above, 1 if the true one were 1? `log_stdev` is that
    of one pair's log ratio.
    """

    pairs: int
    ratio: float
    low: float
    high: float
    p_less: float
    p_more: float
    log_mean: float
    log_stdev: float

    def turned(self) -> "PairedGap":
        """The second side over the first."""
        ratio, low, high = 1 / self.ratio, 1 / self.high, 1 / self.low
        p_less, p_more, log_mean = self.p_more, self.p_less, -self.log_mean
        return PairedGap(self.pairs, ratio, low, high, p_less, p_more, log_mean, self.log_stdev)

    @property
    def visible_percent(self) -> float:
        """The least gap in percent that so many pairs with this spread can show."""
        return (self.high / self.ratio - 1) * 100

    @property
    def p_value(self) -> float:
        """Two-sided: how likely is a ratio this far from 1 if the true one were 1?"""
        return min(1.0, 2 * min(self.p_less, self.p_more))


def paired_gap(
    pairs: Sequence[tuple[float, float]], *, quantum: float, confidence: float = 0.95
) -> PairedGap | None:
    """Distance of two sides that were measured in pairs; None below two pairs.

    Figures are positive and read off in steps of `quantum`; the log ratios scatter no less than
    that rounding alone makes them, so that two equal readings are not taken for certainty.
    Source: Student's one-sample t-test on the differences of the logarithms.
    """
    count = len(pairs)
    if count < 2:
        return None
    logs = [(math.log(first), math.log(second)) for first, second in pairs]
    differences = [first - second for first, second in logs]
    centre = mean(differences)
    spread = max(standard_deviation(differences, ddof=1), _rounding(logs, quantum))
    error = spread / math.sqrt(count)
    half = t_quantile((1 + confidence) / 2, count - 1) * error
    t = centre / error
    return PairedGap(
        pairs=count,
        ratio=_exp(centre),
        low=_exp(centre - half),
        high=_exp(centre + half),
        p_less=t_probability(t, count - 1),
        p_more=t_probability(-t, count - 1),
        log_mean=centre,
        log_stdev=spread,
    )


def _rounding(logs: Sequence[tuple[float, float]], quantum: float) -> float:
    """The standard deviation that rounding to `quantum` gives a log ratio: relative, both sides."""
    sides = (mean([first for first, _ in logs]), mean([second for _, second in logs]))
    return math.hypot(*(quantum / _exp(side) for side in sides)) / math.sqrt(12)


def _exp(log: float) -> float:
    return math.exp(min(log, _LARGEST_LOG))


def pairs_to_separate(gap: PairedGap, *, alpha: float, power: float = POWER) -> int | None:
    """Number of pairs that find a true gap as wide as this one, at `alpha` two-sided, this often.

    None where there is no gap, or one so small that no count of pairs is worth naming.
    n = ((z(1 - alpha / 2) + z(power)) s / d)^2 + z(1 - alpha / 2)^2 / 2
    Source: Guenther (1981), "Sample size formulas for normal theory t tests": the normal formula
    with its correction for an estimated s; exact to within one pair.
    """
    effect = abs(gap.log_mean) / gap.log_stdev
    z_alpha, z_power = (NormalDist().inv_cdf(p) for p in (1 - alpha / 2, power))
    if effect * math.sqrt(MOST_PAIRS_NEEDED) < z_alpha + z_power:
        return None
    return max(2, math.ceil(((z_alpha + z_power) / effect) ** 2 + z_alpha**2 / 2))


def p_of_so_many_wins(won: int, *, of: int) -> float:
    """Probability of at least `won` wins of so many, if each side wins with chance 1/2.

    1.0 of none. Source: the one-sided sign test (Arbuthnot, 1710).
    """
    return float(sum(math.comb(of, wins) for wins in range(won, of + 1)) / 2**of)
