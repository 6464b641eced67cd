"""Speed-up of a package over a reference: the ratio of times on equal seeds and data, in pairs."""

from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.statistics.gaps import paired_gap

# A stamp is taken when the worker wakes up; it is no finer than this.
STAMP_SECONDS = 0.001


@dataclass(frozen=True)
class SpeedUp:
    """Seconds of the reference over seconds of the package: above 1 where the package is faster.

    `low` and `high` bound the true ratio with 95 % confidence: Student's t on the logarithms of
    `pairs` ratios. `p_value` is two-sided.
    """

    ratio: float
    low: float
    high: float
    pairs: int
    p_value: float


def speed_up(package: Sequence[float | None], reference: Sequence[float | None]) -> SpeedUp | None:
    """Speed-up from seconds by pair; None below two pairs, or where a run missed the target.

    A miss counts as infinitely long: a ratio of the other pairs alone would favour its side.
    """
    pairs = [
        (other, own)
        for own, other in zip(package, reference, strict=True)
        if own is not None and other is not None
    ]
    gap = paired_gap(pairs, quantum=STAMP_SECONDS) if len(pairs) == len(package) else None
    if gap is None:
        return None
    return SpeedUp(gap.ratio, gap.low, gap.high, gap.pairs, gap.p_value)
