"""When a replay may stop: at its target, or below the band of its control points."""

from collections.abc import Sequence

from finishline.rules.benchmarks.benchmark import QualityTarget, ReachRule
from finishline.rules.scoring.run import Evaluation
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.verification.control_points import first_break
from finishline.rules.verification.messages import ControlPoint, TargetSpec


def is_reached(qualities: Sequence[float], target: TargetSpec) -> bool:
    """Whether a run may stop at its target after these evaluations; never before a fixed stop."""
    if not qualities or target.fixed_stop:
        return False
    goal = QualityTarget(
        metric=target.metric, value=target.value, unit="", direction=target.direction
    )
    evaluations = [Evaluation(epoch=None, seconds=0.0, quality=quality) for quality in qualities]
    reach = ReachRule("sustained", target.evaluations_in_a_row)
    return first_evaluation_at_target(evaluations, goal, reach) is not None


def is_below_band(
    qualities: Sequence[float], points: Sequence[ControlPoint], target: TargetSpec
) -> bool:
    """Whether the latest evaluation is worse than the band at its control point.

    Better than the band is for the server to judge: stopping would save nothing.
    """
    point = next((point for point in points if point.index == len(qualities)), None)
    if point is None:
        return False
    broken = first_break([qualities[-1]], [point], higher_is_better=target.direction == "higher")
    return broken is not None and broken.side == "below"
