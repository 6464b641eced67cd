"""Is a worker still as fast as it was? Its canary against its own baseline."""

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

TOLERANCE = 0.03
BASELINE_READINGS = 5
FEWEST_READINGS = 3


@dataclass(frozen=True)
class Drift:
    """How far a canary is from its worker's baseline; `ratio` is above 1 where it is faster."""

    baseline_gflops: float
    ratio: float

    @property
    def is_too_far(self) -> bool:
        """Whether the worker is off by more than 3 %, in either direction."""
        return abs(self.ratio - 1.0) > TOLERANCE

    def sentence(self) -> str:
        """What is wrong and what to do about it."""
        side = "slower" if self.ratio < 1 else "faster"
        return (
            f"{100 * abs(self.ratio - 1):.1f} % {side} than its own baseline of "
            f"{self.baseline_gflops:.4g} GFLOP/s, where {100 * TOLERANCE:g} % is allowed: look for "
            "a busy neighbour, heat, a power limit or another driver"
        )


def baseline_of(readings_gflops: Sequence[float]) -> float | None:
    """The median of a worker's first five readings, oldest first; None with fewer than three.

    The first and not the latest: a worker that loses a little every day does not take its
    baseline along. Readings that were themselves too far off are not among them.
    """
    first = readings_gflops[:BASELINE_READINGS]
    if len(first) < FEWEST_READINGS:
        return None
    return float(statistics.median(first))


def drift_of(reading_gflops: float, baseline_gflops: float | None) -> Drift | None:
    """A reading against its baseline, None where there is no baseline yet."""
    if baseline_gflops is None or baseline_gflops <= 0:
        return None
    return Drift(baseline_gflops, reading_gflops / baseline_gflops)
