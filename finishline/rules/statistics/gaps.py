"""Distance of two sides' figures on the log scale: Welch's, Student's paired and pooled t-tests."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import NormalDist

from finishline.rules.statistics.aggregate import Interval, mean, standard_deviation
from finishline.rules.statistics.significance import SHORTEST_SECONDS, t_probability, t_quantile

ALPHA = 0.05
POWER = 0.8
MOST_NEEDED = 1_000_000  # Nobody will ever train so many runs or pairs.
LARGEST_LOG = 700.0  # Logarithms beyond this have no exponential.
# Equal figures have means and spreads that differ by less in their last digits.
SAME_LOG, NO_SCATTER = 1e-9, 1e-14


@dataclass(frozen=True)
class Gap:
    """The first side over the second: log of the ratio, its standard error and its freedom.

    `ratio` is below 1 where the first side is less. `p_less` and `p_more` are one-sided: how likely
    is a ratio this far below, or above, 1 if the true one were 1?
    """

    log_ratio: float
    error: float
    degrees_of_freedom: float

    @property
    def ratio(self) -> float:
        """The geometric mean of the first side over that of the second."""
        return math.exp(min(self.log_ratio, LARGEST_LOG))

    @property
    def low(self) -> float:
        """Lower end of the 95 % interval of the true ratio."""
        return self.interval().low

    @property
    def high(self) -> float:
        """Upper end of the 95 % interval of the true ratio."""
        return self.interval().high

    def interval(self, confidence: float = 1 - ALPHA) -> Interval:
        """The interval of the true ratio."""
        half = t_quantile((1 + confidence) / 2, self.degrees_of_freedom) * self.error
        ends = (self.log_ratio - half, self.log_ratio + half)
        low, high = (math.exp(min(end, LARGEST_LOG)) for end in ends)
        return Interval(low=low, high=high)

    @property
    def p_more(self) -> float:
        """How likely is a ratio this far above 1 if the true one were 1?"""
        return self._tail(-self.log_ratio)

    @property
    def p_less(self) -> float:
        """How likely is a ratio this far below 1 if the true one were 1?"""
        return self._tail(self.log_ratio)

    def _tail(self, distance: float) -> float:
        if self.error < NO_SCATTER:
            return 0.0 if distance < -SAME_LOG else 1.0
        return t_probability(distance / self.error, self.degrees_of_freedom)

    @property
    def p_value(self) -> float:
        """Two-sided: how likely is a ratio this far from 1 if the true one were 1?"""
        return min(1.0, 2 * min(self.p_less, self.p_more))

    @property
    def visible_percent(self) -> float:
        """The least gap in percent that so many runs with this spread can show."""
        return (self.high / self.ratio - 1) * 100

    @property
    def pairs(self) -> int:
        """Number of pairs of a paired test."""
        return round(self.degrees_of_freedom) + 1

    @property
    def log_stdev(self) -> float:
        """Standard deviation of one pair's log ratio, in a paired test."""
        return self.error * math.sqrt(self.pairs)

    @property
    def numbers(self) -> dict[str, float]:
        """Figures of a paired test, as a reason of a verdict has them."""
        names = ("ratio", "low", "high", "p_value", "pairs")
        return {name: float(getattr(self, name)) for name in names}

    def over(self, ratio: float) -> "Gap":
        """The same gap beyond a ratio: its p-values are of that ratio and not of 1."""
        return replace(self, log_ratio=self.log_ratio - math.log(ratio))

    def turned(self) -> "Gap":
        """The second side over the first."""
        return replace(self, log_ratio=-self.log_ratio)


@dataclass(frozen=True)
class LogTimes:
    """The runs of one side, on the log scale: `variance` of one run, None below two runs."""

    count: int
    mean: float
    variance: float | None


def log_times(seconds: Sequence[float], *, quantum: float = SHORTEST_SECONDS) -> LogTimes | None:
    """The runs on the log scale, None if there are none.

    No run counts as shorter than a millisecond. No two scatter less than rounding to `quantum`
    makes them, a log's milliseconds: equal times are close and not infinitely sure.
    """
    if not seconds:
        return None
    logs = [math.log(max(s, SHORTEST_SECONDS)) for s in seconds]
    centre = mean(logs)
    if len(logs) < 2:
        return LogTimes(1, centre, None)
    rounding = quantum / math.exp(centre) / math.sqrt(12)
    return LogTimes(len(logs), centre, max(standard_deviation(logs, ddof=1), rounding) ** 2)


def welch(first: LogTimes | None, second: LogTimes | None) -> Gap | None:
    """Welch's t-test of two sides; None where one has fewer than two runs.

    Source: Welch (1947), on logarithms, so that the figure tested is a ratio.
    """
    if first is None or second is None or first.variance is None or second.variance is None:
        return None
    one, other = first.variance / first.count, second.variance / second.count
    total = one + other
    freedom = math.inf
    if total > 0.0:
        freedom = total**2 / (one**2 / (first.count - 1) + other**2 / (second.count - 1))
    return Gap(first.mean - second.mean, math.sqrt(total), freedom)


def two_sided_p(first: Sequence[float], second: Sequence[float]) -> float | None:
    """Welch's two-sided p-value of figures as they are; None below two on either side."""
    gap = welch(log_times(first, quantum=0.0), log_times(second, quantum=0.0))
    return None if gap is None else gap.p_value


def paired_gap(pairs: Sequence[tuple[float, float]], *, quantum: float) -> Gap | None:
    """Distance of two sides that were measured in pairs; None below two pairs.

    Figures are positive and read off in steps of `quantum`. The log ratios scatter no less than
    that rounding alone makes them, so that two equal readings are not taken for certainty.
    Source: Student's one-sample t-test on the differences of the logarithms.
    """
    if len(pairs) < 2:
        return None
    logs = [(math.log(first), math.log(second)) for first, second in pairs]
    differences = [first - second for first, second in logs]
    sides = (mean([log[side] for log in logs]) for side in (0, 1))
    rounding = math.hypot(*(quantum / math.exp(min(side, LARGEST_LOG)) for side in sides))
    spread = max(standard_deviation(differences, ddof=1), rounding / math.sqrt(12))
    return Gap(mean(differences), spread / math.sqrt(len(pairs)), len(pairs) - 1)


def gap_of_all(
    first: Sequence[float | None], second: Sequence[float | None], *, quantum: float
) -> Gap | None:
    """The paired gap, None where a run of either side has no figure.

    A miss counts as infinitely long: a ratio of the other pairs alone would favour its side.
    """
    pairs = [
        (one, other)
        for one, other in zip(first, second, strict=False)
        if one is not None and other is not None
    ]
    if len(pairs) < max(len(first), len(second)):
        return None
    return paired_gap(pairs, quantum=quantum)


def gap_to_claim(
    replayed: Sequence[float],
    claimed_seconds: float,
    *,
    claimed_runs: Sequence[float],
    weight: int,
) -> Gap | None:
    """Distance of replays from the claim's ranked time, a mean worth `weight` runs.

    Student's t-test with the variances pooled, but that of `claimed_runs` counts no more than that
    of the replays: the claim's scatter is the claimant's to choose, and one absurd run, dropped
    from the mean, must not excuse all others. None below two replays.
    """
    ours, theirs = (log_times(runs, quantum=0.0) for runs in (replayed, claimed_runs))
    if ours is None or ours.variance is None:
        return None
    freedom, variance = ours.count - 1, ours.variance
    if theirs is not None and theirs.variance is not None:
        more = theirs.count - 1
        squares = freedom * variance + more * min(variance, theirs.variance)
        freedom += more
        variance = squares / freedom
    error = math.sqrt(variance * (1 / ours.count + 1 / weight))
    return Gap(ours.mean - math.log(max(claimed_seconds, SHORTEST_SECONDS)), error, freedom)


def runs_needed(first: LogTimes, second: LogTimes) -> int | None:
    """Runs on each side that separate a true gap as wide as the one between two means.

    Within one run of the exact power at p = 0.05. None where no count is worth naming.
    """
    gap = first.mean - second.mean
    if first.variance is None or second.variance is None or gap == 0.0:
        return None
    total = first.variance + second.variance
    sides = total**2 / (first.variance**2 + second.variance**2)
    return _count_needed(math.sqrt(total) / abs(gap), sides=sides, alpha=ALPHA)


def pairs_needed(gap: Gap, *, alpha: float) -> int | None:
    """Pairs that find a true gap as wide as this one at `alpha` two-sided; None for no gap."""
    if gap.log_ratio == 0.0:
        return None
    return _count_needed(gap.log_stdev / abs(gap.log_ratio), sides=1.0, alpha=alpha)


def _count_needed(inverse_effect: float, *, sides: float, alpha: float) -> int | None:
    """n = ((z(1 - alpha / 2) + z(0.8)) s / d)^2 + z(1 - alpha / 2)^2 / (2 k), at least two.

    The normal formula with a correction for Student's t with k (n - 1) degrees of freedom.
    Source: Guenther (1981), "Sample size formulas for normal theory t tests".
    """
    certain, powerful = NormalDist().inv_cdf(1 - alpha / 2), NormalDist().inv_cdf(POWER)
    root = (certain + powerful) * inverse_effect
    wanted = root * root + certain**2 / (2 * sides)
    return max(2, math.ceil(wanted)) if wanted <= MOST_NEEDED else None


def p_of_so_many_wins(won: int, *, of: int) -> float:
    """Probability of at least `won` wins of so many, if each side wins with chance 1/2.

    1.0 of none. Source: the one-sided sign test (Arbuthnot, 1710).
    """
    return float(sum(math.comb(of, wins) for wins in range(won, of + 1)) / 2**of)
