"""Judge a set of runs by the second half of the test items, which chose nothing.

The first half stops the clock at its first crossing, so it favours lucky evaluations. The second
half of the same evaluations was never looked at before, and its mean has no such bias.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from finishline.rules.benchmarks.quality import Direction
from finishline.rules.statistics.aggregate import mean
from finishline.rules.statistics.gaps import p_value_of_mean_beyond

ALPHA = 0.01
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
    second_halves: Sequence[float], *, target: float, direction: Direction
) -> HalvesVerdict:
    """Compare the second half of each run's deciding evaluation with the target.

    `confirmed`: the mean is at least as good. `short`: it is not, which luck may explain.
    `disagrees`: it is worse by more than luck explains (one-sided t-test, p < 0.01).

    Worked example, target 96.5 percent: 96.9, 96.4, 97.0, 96.6 and 96.6 have a mean of 96.7 and
    confirm, although one run is below. 96.3, 96.5, 96.4, 96.6 and 96.2 miss 0.1 points: t = -1.41,
    p = 0.115, `short`. 95.8, 96.0, 95.9, 96.1 and 95.7 miss 0.6 points: t = -8.49, p = 0.0005,
    `disagrees`.
    Raises StatisticsMissingError without SciPy where the mean is not at the target.
    Source: docs/trainings.md, "Two halves"; Student's one-sided one-sample t-test.
    """
    found = mean(second_halves)
    missing = target - found if direction == "higher" else found - target
    if missing <= 0:
        return HalvesVerdict("confirmed", found, 0.0, None)
    worse: Direction = "lower" if direction == "higher" else "higher"
    p_value = p_value_of_mean_beyond(second_halves, target, direction=worse)
    disagrees = p_value is not None and p_value < ALPHA
    return HalvesVerdict("disagrees" if disagrees else "short", found, missing, p_value)
