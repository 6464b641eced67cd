"""The band a replay must stay in, evaluation by evaluation."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from finishline.rules.scoring.aggregate import mean, standard_deviation
from finishline.rules.statistics.t import t_quantile
from finishline.rules.verification.messages import ControlPoint


@dataclass(frozen=True)
class BandBreak:
    """A replay left the band at one control point."""

    index: int
    quality: float
    lower: float
    upper: float
    side: str


def control_points(
    reference_curves: Sequence[Sequence[float]],
    *,
    runs: int,
    alpha: float,
    resolution: float,
) -> list[ControlPoint]:
    """The prediction band of `runs` further runs, one point per evaluation.

    For evaluation j of m: mean +- t(1 - alpha / (2 m runs), n - 1) * s * sqrt(1 + 1 / n) over the n
    reference qualities, s with ddof = 1 and the half width never below `resolution`: all
    evaluations of all `runs` stay inside with probability at least 1 - alpha. Empty if there are
    fewer than 2 * runs reference curves. Curves of different length count to the shortest.
    Source: Bonferroni bound on the Student-t prediction interval (Hahn & Meeker, "Statistical
    Intervals", 4.7).
    """
    n = len(reference_curves)
    if n < 2 * runs:
        return []
    m = min(len(curve) for curve in reference_curves)
    quantile = t_quantile(1 - alpha / (2 * m * runs), n - 1)
    points = []
    for j in range(m):
        column = [curve[j] for curve in reference_curves]
        spread = standard_deviation(column, ddof=1)
        half = max(resolution, quantile * spread * math.sqrt(1 + 1 / n))
        centre = mean(column)
        points.append(
            ControlPoint(index=j + 1, mean=centre, lower=centre - half, upper=centre + half)
        )
    return points


def first_break(
    qualities: Sequence[float], points: Sequence[ControlPoint], *, higher_is_better: bool
) -> BandBreak | None:
    """The first control point at which a curve is outside the band, or None.

    `side` is "below" for worse than the band and "above" for better, in either direction of the
    metric. Evaluations without a control point are not judged.
    """
    for quality, point in zip(qualities, points, strict=False):
        if point.lower <= quality <= point.upper:
            continue
        worse = quality < point.lower if higher_is_better else quality > point.upper
        return BandBreak(
            index=point.index,
            quality=quality,
            lower=point.lower,
            upper=point.upper,
            side="below" if worse else "above",
        )
    return None
