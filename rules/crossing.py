"""Between which evaluations a curve crossed its target: epochs finer than the evaluations."""

from collections.abc import Sequence
from dataclasses import dataclass

from rules.benchmark import QualityTarget, ReachRule
from rules.run import Evaluation
from rules.tta import first_evaluation_at_target


@dataclass(frozen=True)
class Crossing:
    """Where a curve reached its target.

    `epoch` is the epoch at which the target counts as reached, and `fraction` the same with the
    evaluation (the first in the row, where the rule wants several) replaced by the straight line to
    it from the one before. `interval_epochs` lies between those two evaluations, None where there
    is none before.
    """

    epoch: float
    fraction: float
    interval_epochs: float | None


def find_crossing(
    curve: Sequence[Evaluation], target: QualityTarget, reach: ReachRule
) -> Crossing | None:
    """Where a curve reaches its target; None if it never does or does not tell its epochs."""
    reached = first_evaluation_at_target(curve, target, reach) if curve else None
    if reached is None or reached.epoch is None:
        return None
    index = next(i for i, evaluation in enumerate(curve) if evaluation is reached)
    index -= reach.evaluations - 1
    at = curve[index]
    before = curve[index - 1] if index else None
    if before is None or before.epoch is None or at.epoch is None or at.epoch <= before.epoch:
        return Crossing(reached.epoch, reached.epoch, None)
    interval = at.epoch - before.epoch
    share = (target.value - before.quality) / (at.quality - before.quality)
    return Crossing(reached.epoch, reached.epoch - (1 - share) * interval, interval)
