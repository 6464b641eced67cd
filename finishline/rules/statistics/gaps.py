"""Compute Student's t: distances of means and of two sides, and the score that ranks a run."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from types import ModuleType
from typing import Literal, Protocol

from finishline.rules.errors import StatisticsMissingError
from finishline.rules.statistics.aggregate import (
    FEWEST_SEALED_RUNS,
    SHORTEST_SECONDS,
    Interval,
    Reference,
    Spread,
    dropped_at_each_end,
    mean,
    measured_seconds,
    pooled_spread,
    standard_deviation,
    variance_of_mean,
)

ALPHA = 0.05
LARGEST_LOG = 700.0  # Logarithms beyond this have no exponential.
WIDEST = 1e9
# Equal figures have means and spreads that differ by less in their last digits.
SAME_LOG, NO_SCATTER = 1e-9, 1e-14


def _scipy_special() -> ModuleType:
    """Import SciPy at the first use: it is the extra `stats`, and takes a quarter of a second."""
    try:
        import scipy.special
    except ModuleNotFoundError:
        raise StatisticsMissingError from None
    return scipy.special  # type: ignore[no-any-return]


@lru_cache(maxsize=4096)  # Welch's degrees of freedom are real numbers: endless.
def t_quantile(probability: float, degrees_of_freedom: float) -> float:
    """Return the quantile of Student's t at this probability.

    Fractional and very many degrees need SciPy, a slow import. Raises StatisticsMissingError.
    """
    if not float(degrees_of_freedom).is_integer() or degrees_of_freedom > MOST_WHOLE:
        return float(_scipy_special().stdtrit(degrees_of_freedom, probability))
    if probability < 0.5:
        return -t_quantile(1 - probability, degrees_of_freedom)
    low, high = 0.0, 1.0
    while _t_below(high, int(degrees_of_freedom)) < probability:
        low, high = high, 2 * high
    while low < (middle := (low + high) / 2) < high:
        if _t_below(middle, int(degrees_of_freedom)) < probability:
            low = middle
        else:
            high = middle
    return high


MOST_WHOLE = 2000


def _t_below(t: float, degrees_of_freedom: int) -> float:
    """Return P(Student's t < t): a finite sum for whole degrees of freedom.

    Source: Abramowitz and Stegun, Handbook of Mathematical Functions, 26.7.3 and 26.7.4.
    """
    angle, is_odd = math.atan(t / math.sqrt(degrees_of_freedom)), degrees_of_freedom % 2
    cosine = math.cos(angle)
    term = cosine if is_odd else 1.0
    total = 0.0
    for step in range(2 + is_odd, degrees_of_freedom + 1, 2):
        total += term
        term *= cosine**2 * (step - 1) / step
    total *= math.sin(angle)
    return 0.5 + ((angle + total) / math.pi if is_odd else total / 2)


@dataclass(frozen=True)
class Gap:
    """The first side over the second: log of the ratio, its standard error and its freedom.

    `ratio` is below 1 where the first side is less. `p_less` and `p_more` are one-sided. `counted`
    pairs have another number of degrees of freedom. With a `sign` the figures are qualities:
    instead of the log ratio it has their difference times the sign, so that less is better.
    """

    log_ratio: float
    error: float
    degrees_of_freedom: float
    counted: int | None = None
    sign: float = 0.0

    @property
    def difference(self) -> float:
        """Return the mean of the first side less the second's, of qualities."""
        return self.log_ratio * self.sign

    @property
    def ratio(self) -> float:
        """Return the geometric mean of the first side over the second's."""
        return math.exp(min(self.log_ratio, LARGEST_LOG))

    def interval(self) -> Interval:
        """Return the 95 % interval of the true ratio, or of the difference of qualities."""
        half = t_quantile(1 - ALPHA / 2, self.degrees_of_freedom) * self.error
        ends = (self.log_ratio - half, self.log_ratio + half)
        if self.sign:
            return Interval(*sorted(end * self.sign for end in ends))
        low, high = (math.exp(min(end, LARGEST_LOG)) for end in ends)
        return Interval(low=low, high=high)

    @property
    def low(self) -> float:
        return self.interval().low

    @property
    def high(self) -> float:
        return self.interval().high

    @property
    def p_less(self) -> float:
        """How likely is a ratio this far below 1 if the true one were 1?"""
        if self.error < NO_SCATTER:
            return 0.0 if self.log_ratio < -SAME_LOG else 1.0
        return float(_scipy_special().stdtr(self.degrees_of_freedom, self.log_ratio / self.error))

    @property
    def p_more(self) -> float:
        """How likely is a ratio this far above 1 if the true one were 1?"""
        return self.turned().p_less

    @property
    def p_value(self) -> float:
        """Two-sided: how likely is a ratio this far from 1 if the true one were 1?"""
        return min(1.0, 2 * min(self.p_less, self.p_more))

    @property
    def pairs(self) -> int:
        return self.counted or round(self.degrees_of_freedom) + 1

    @property
    def numbers(self) -> dict[str, float]:
        """Return the figures of a paired test, as a reason of a verdict has them."""
        name = "difference" if self.sign else "ratio"
        names = (name, "low", "high", "p_value", "pairs")
        return {name: float(getattr(self, name)) for name in names}

    def over(self, ratio: float) -> "Gap":
        """Return the gap beyond a ratio: its p-values are of this ratio instead of 1."""
        return replace(self, log_ratio=self.log_ratio - math.log(ratio))

    def turned(self) -> "Gap":
        """Return the second side over the first."""
        return replace(self, log_ratio=-self.log_ratio)


def interval_of(
    seconds: float, *, runs: int, spread: Spread | None, dropped: int | None = None
) -> Interval | None:
    """Return the 95 % interval of the mean of so many runs: seconds * exp(+- t * s * sqrt(c)).

    None without a spread, for a single run, and for a bound above a factor of 10^9: evaluations
    that far apart tell no time.
    """
    share = variance_of_mean(runs, dropped=dropped)
    if spread is None or share is None:
        return None
    around = Gap(0.0, spread.stdev * math.sqrt(share), spread.degrees_of_freedom).interval()
    if around.high > WIDEST:
        return None
    return Interval(low=seconds * around.low, high=seconds * around.high)


def lowest_mean(
    reference: Reference,
    *,
    weight: int,
    alpha: float,
    freedom: int | None = None,
    quantum: float = 0.0,
) -> float:
    """Return the least mean, worth `weight` runs, that is not too low for the reference.

    mean - t(1 - alpha, freedom) * s * sqrt(1 / n + 1 / weight), by default with `freedom` n - 1. s
    is the reference's deviation, at least that of rounding to steps of `quantum`. A mean within one
    quantum is never too low. The claim's own scatter is the claimant's to choose.
    Source: Student's one-sided t-test with the reference's variance. MLPerf training_rules.adoc,
    "Reference Convergence Points", for the closed form.
    """
    spread = max(reference.stdev, quantum / math.sqrt(12))
    error = spread * math.sqrt(1 / reference.count + 1 / weight)
    margin = error * t_quantile(1 - alpha, reference.count - 1 if freedom is None else freedom)
    return max(0.0, reference.mean - max(margin, quantum))


def p_value_of_mean_beyond(
    values: Sequence[float],
    limit: float,
    *,
    direction: Literal["higher", "lower"],
    beside: Sequence[float] = (),
) -> float | None:
    """Return the probability of a sample mean this far beyond `limit` if the true mean is at it.

    Beyond is above for "higher" and below for "lower". None for fewer than two values. The variance
    is pooled with the variance of the figures `beside`, without their mean.
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
    return Gap(distance, math.sqrt(squares / freedom / len(values)), freedom).p_more


@dataclass(frozen=True)
class LogTimes:
    """The runs of one side, on the log scale: `variance` of one run, if there are two."""

    count: int
    mean: float
    variance: float | None


def log_times(seconds: Sequence[float], *, quantum: float = SHORTEST_SECONDS) -> LogTimes | None:
    """Put runs, if any, on the log scale.

    A run counts as at least a millisecond, and two scatter at least by rounding to `quantum`: equal
    times are close rather than infinitely sure.
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
    """Apply Welch's t-test to two sides of at least two runs each.

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
    """Return Welch's two-sided p-value of figures as they are, at least two on either side."""
    gap = welch(*(log_times(each, quantum=0.0) for each in (first, second)))
    return None if gap is None else gap.p_value


def paired_gap(pairs: Sequence[tuple[float, float]], *, quantum: float) -> Gap | None:
    """Return the distance of two sides that were measured in pairs. None below two pairs.

    Figures are read off in steps of `quantum`, and count as at least the lesser of it and 1 ms. The
    log ratios scatter at least by this rounding: equal readings are not certain.
    Source: Student's one-sample t-test on the differences of the logarithms.
    """
    if len(pairs) < 2:
        return None
    least = min(quantum, SHORTEST_SECONDS)
    logs = [[math.log(max(each, least)) for each in pair] for pair in pairs]
    differences = [first - second for first, second in logs]
    sides = (mean([log[side] for log in logs]) for side in (0, 1))
    rounding = math.hypot(*(quantum / math.exp(min(side, LARGEST_LOG)) for side in sides))
    return gap_of(differences, least=rounding / math.sqrt(12))


def gap_of(differences: Sequence[float], *, least: float, sign: float = 0.0) -> Gap | None:
    """Return the gap of at least two differences that scatter by at least so much."""
    if len(differences) < 2:
        return None
    error = max(standard_deviation(differences, ddof=1), least) / math.sqrt(len(differences))
    return Gap(mean(differences), error, len(differences) - 1, sign=sign)


def gap_to_claim(
    replayed: Sequence[float],
    claimed_seconds: float,
    *,
    claimed_runs: Sequence[float],
    weight: int,
) -> Gap | None:
    """Return the distance of replays from the claim's ranked time, a mean worth `weight` runs.

    Student's t-test with the variances pooled, but the variance of `claimed_runs` counts no more
    than the replays': one absurd claimed run, dropped from the mean, must not excuse all others.
    None below two replays.
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
    distance = ours.mean - math.log(max(claimed_seconds, SHORTEST_SECONDS))
    return Gap(distance, math.sqrt(variance * (1 / ours.count + 1 / weight)), freedom)


# A set of runs is judged by the second half of the test items too. The first half stops the clock
# at its first crossing, so it favours lucky evaluations. The second half of the same evaluations
# chose nothing, and its mean has no such bias.
HALVES_ALPHA = 0.01
HalvesOutcome = Literal["confirmed", "short", "disagrees"]


@dataclass(frozen=True)
class HalvesVerdict:
    """The mean quality on the second half, in the target's unit.

    `missing` is its distance to the target, 0 where it is confirmed. `p_value` is the probability
    of a mean this far short if the true mean were at the target, None where it is confirmed, and
    for one run.
    """

    outcome: HalvesOutcome
    mean: float
    missing: float
    p_value: float | None


def judge_halves(
    second_halves: Sequence[float], *, target: float, direction: Literal["higher", "lower"]
) -> HalvesVerdict:
    """Compare the second half of each run's deciding evaluation with the target.

    `confirmed`: the mean is at least as good. `short`: it is not, which luck may explain.
    `disagrees`: it is worse by more than luck explains (one-sided t-test, p < 0.01).

    Worked example, target 96.5 percent: 96.9, 96.4, 97.0, 96.6 and 96.6 have a mean of 96.7 and
    confirm, although one run is below. 96.3, 96.5, 96.4, 96.6 and 96.2 miss 0.1 points: t = -1.41,
    p = 0.115, `short`. 95.8, 96.0, 95.9, 96.1 and 95.7 miss 0.6 points: t = -8.49, p = 0.0005,
    `disagrees`.
    Raises StatisticsMissingError without SciPy where the mean is not at the target.
    Source: docs/teacher.md, "Two halves". Student's one-sided one-sample t-test.
    """
    found = mean(second_halves)
    missing = target - found if direction == "higher" else found - target
    if missing <= 0:
        return HalvesVerdict("confirmed", found, 0.0, None)
    worse: Literal["higher", "lower"] = "lower" if direction == "higher" else "higher"
    p_value = p_value_of_mean_beyond(second_halves, target, direction=worse)
    disagrees = p_value is not None and p_value < HALVES_ALPHA
    return HalvesVerdict("disagrees" if disagrees else "short", found, missing, p_value)


class Ranked(Protocol):
    """A run, or a row: its time, and its quality."""

    @property
    def seconds(self) -> float | None:
        """Seconds to the evaluation that counts."""

    @property
    def quality(self) -> float | None:
        """Quality of that evaluation."""


@dataclass(frozen=True)
class Score:
    """The figure that ranks a run. Times are compared by their ratio, qualities by a difference.

    `direction` says which figure is better. Runs scatter at least by `quantum`, the step of the
    readings: a millisecond, or one test item. `unit` is of a quality.
    """

    by: Literal["time", "quality"] = "time"
    direction: Literal["higher", "lower"] = "lower"
    quantum: float = SHORTEST_SECONDS
    unit: str = ""

    @property
    def better(self) -> str:
        """Return the word for the side that is ahead."""
        return "faster" if self.by == "time" else "better"

    def more(self, difference: float, digits: int = 3) -> str:
        """Write a difference of qualities in words, of percent in percentage points."""
        points = " points" if self.unit == "percent" else ""
        side = "more" if difference >= 0 else "less"
        return f"{abs(difference):.{digits}g}{points} {side}"

    @property
    def missed(self) -> str:
        """Say of a run that its figure is missing."""
        if self.by == "time":
            return "did not reach the target"
        return "had no evaluation within the budget"

    def figure(self, run: Ranked) -> float | None:
        return run.seconds if self.by == "time" else run.quality

    def cost(self, figure: float) -> float:
        """Put a figure on the scale of the tests, where less is better: the log of a time."""
        if self.by == "time":
            return math.log(max(figure, SHORTEST_SECONDS))
        return -figure if self.direction == "higher" else figure

    def is_better(self, one: float, other: float) -> bool:
        return self.cost(one) < self.cost(other)

    def is_near(self, one: float, other: float) -> bool:
        """Whether a figure is hardly worse: by a tenth of a time, a hundredth of a quality."""
        most = math.log(1.1) if self.by == "time" else abs(other) / 100
        return self.cost(one) - self.cost(other) < most

    def without_misses(self, figures: Iterable[float | None]) -> list[float]:
        """Give each run that missed the worst figure of all. Empty if all missed."""
        given = list(figures)
        found = [each for each in given if each is not None]
        worst = max(found, key=self.cost, default=0.0)
        return [worst if each is None else each for each in given] if found else []

    def measured(self, figures: Sequence[float | None]) -> float | None:
        """Return the figure of measured runs: the olympic mean of times, the mean of qualities.

        None below three runs, and if more of them missed than the olympic mean drops.
        """
        missed = sum(each is None for each in figures)
        if self.by == "time":
            return measured_seconds(figures)
        if len(figures) < FEWEST_SEALED_RUNS or missed > dropped_at_each_end(len(figures)):
            return None
        return mean(self.without_misses(figures))

    def spread(self, pools: Iterable[Sequence[float]]) -> Spread | None:
        """Return the spread of one run's figure within pools of ten runs together."""
        found = pooled_spread(pools, scale=self.cost)
        return found if found is None or self.by == "time" else found.at_least(self.quantum)

    def interval(self, figure: float, *, runs: int, spread: Spread | None) -> Interval | None:
        """Return the 95 % interval of the mean quality of so many runs, by their spread."""
        if spread is None:
            return None
        half = self.difference(0.0, spread.stdev / math.sqrt(runs), spread.degrees_of_freedom).high
        return Interval(figure - half, figure + half)

    def sample(self, figures: Sequence[float]) -> LogTimes | None:
        """Return the figures of one side, if any, for a test."""
        if self.by == "time" or not figures:
            return log_times(figures, quantum=self.quantum)
        costs = [self.cost(each) for each in figures]
        if len(costs) < 2:
            return LogTimes(1, costs[0], None)
        return LogTimes(
            len(costs), mean(costs), max(standard_deviation(costs, ddof=1), self.quantum) ** 2
        )

    def gap(self, pairs: Sequence[tuple[float, float]]) -> Gap | None:
        """Return the distance of two sides that were measured in pairs. None below two pairs."""
        if self.by == "time":
            return paired_gap(pairs, quantum=self.quantum)
        differences = [self.cost(one) - self.cost(other) for one, other in pairs]
        return gap_of(differences, least=self.quantum, sign=self.cost(1.0))

    def difference(self, cost: float, error: float, degrees_of_freedom: float) -> Gap:
        return Gap(cost, error, degrees_of_freedom, sign=self.cost(1.0))


TIME = Score()
