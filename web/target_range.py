"""The range within which a board's target can be slid."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from finishline.rules.benchmarks.quality import UNITS
from finishline.rules.submissions.claim_checks import LARGEST_QUALITY

STEPS = 100
# Where no run went beyond the target, a target so much of it away is still of interest.
NARROWEST = 0.01
EASIER = 4.0
SLACK = 1e-9


@dataclass(frozen=True)
class TargetRange:
    """The ends of a slider, easiest and hardest in either order, and its step."""

    low: float
    high: float
    step: float


def target_range(target: Mapping[str, Any], qualities: tuple[float, float] | None) -> TargetRange:
    """From four times as far on the easy side of the target as the best run is on the hard one.

    `qualities` are the lowest and the highest of the best qualities on the board. Each end is a
    multiple of the step, which is one, two or five of a power of ten, and inside the range.
    """
    own, higher = float(target["value"]), target["direction"] == "higher"
    low, high = qualities or (own, own)
    largest = UNITS.get(str(target["unit"])) or LARGEST_QUALITY
    low, high = max(low, 0.0), min(high, largest)  # An archive may have any figure.
    beyond = max((high - own) if higher else (own - low), abs(own) * NARROWEST, 1e-9)
    step = _round_step(beyond * (1.0 + EASIER) / STEPS)
    below, above = (EASIER, 1.0) if higher else (1.0, EASIER)
    return TargetRange(
        low=_at_step(math.ceil(max(0.0, own - below * beyond) / step - SLACK), step),
        high=_at_step(math.floor(min(largest, own + above * beyond) / step + SLACK), step),
        step=step,
    )


def _round_step(wanted: float) -> float:
    power = 10.0 ** math.floor(math.log10(wanted))
    return _at_step(next(f for f in (1, 2, 5, 10) if f * power >= wanted * (1 - SLACK)), power)


def _at_step(steps: int, step: float) -> float:
    """So many steps, without the tail that floating point adds."""
    return float(f"{steps * step:.10g}")
