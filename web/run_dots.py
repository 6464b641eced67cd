"""The runs of a board's rows as dots, one each, so that their scatter can be compared."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from web.formats import TimeFormat

WIDTH, HEIGHT, RADIUS = 96, 14, 3
# Runs further from their median than this stand at the edge.
FURTHEST = math.log(2)


@dataclass(frozen=True)
class Dots:
    """The runs of a row: where each stands from the left, and their times in words."""

    places: tuple[float, ...]
    words: str


def run_dots(times: Mapping[str, Sequence[float]], time: TimeFormat) -> dict[str, Dots]:
    """The dots of each row around its median, on one logarithmic scale for all rows."""
    offsets = {
        name: [_offset(one, median(runs)) for one in runs] for name, runs in times.items() if runs
    }
    widest = max((abs(at) for row in offsets.values() for at in row), default=0.0) or FURTHEST
    half = WIDTH / 2
    return {
        name: Dots(
            tuple(round(half + at / widest * (half - RADIUS - 1), 1) for at in row),
            "runs of " + ", ".join(time(one) for one in times[name]),
        )
        for name, row in offsets.items()
    }


def _offset(seconds: float, middle: float) -> float:
    if seconds <= 0 or middle <= 0:
        return 0.0
    return max(-FURTHEST, min(FURTHEST, math.log(seconds / middle)))
