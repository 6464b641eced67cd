"""The stopwatch of a run: phases on the benchmark's clock, and the target it stops at."""

from collections.abc import Sequence

from finishline.rules.benchmarks.definition_tables import ReachRule
from finishline.rules.benchmarks.quality import QualityTarget
from finishline.rules.run import Clock, Evaluation, Ledger, Phase
from finishline.rules.scoring.tta import first_evaluation_at_target
from finishline.rules.verification.control_points import first_break
from finishline.rules.verification.messages import ControlPoint, TargetSpec

PREPARATION = frozenset({Phase.INIT, Phase.COMPILE, Phase.WARMUP})
RELATIVE_TOLERANCE = 0.02
ABSOLUTE_TOLERANCE_SECONDS = 0.05


class Stopwatch:
    """Seconds per phase of one run, from the start of its process on.

    `started_at` is the stamp at which the first phase after the preparation began, None before.
    """

    def __init__(self, at: float) -> None:
        self.phase = Phase.INIT
        self.ledger = Ledger()
        self.started_at: float | None = None
        self._last = at

    def stamp(self, at: float) -> None:
        """Count the time since the last stamp to the present phase."""
        self.ledger = self.ledger.plus(self.phase, at - self._last)
        self._last = at

    def enter(self, phase: Phase, at: float) -> None:
        """Enter `phase`: the time belongs to it from this stamp on."""
        self.stamp(at)
        self.phase = phase
        if self.started_at is None and phase not in PREPARATION:
            self.started_at = at

    def seconds(self, clock: Clock, *, division: str) -> float:
        """Seconds of the ledger on a clock, up to the last stamp."""
        return clock.seconds(self.ledger, division=division)


def clocks_disagree(parent_seconds: float, child_seconds: float) -> bool:
    """Whether two measurements of one span differ by more than 2 % + 50 ms."""
    allowed = RELATIVE_TOLERANCE * parent_seconds + ABSOLUTE_TOLERANCE_SECONDS
    return abs(parent_seconds - child_seconds) > allowed


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
