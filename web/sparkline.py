"""The history of a record as a small step line, with the same in words."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.statistics.significance import SHORTEST_SECONDS
from finishline.rules.text import count_text
from web.formats import day, duration, moment

WIDTH = 120
HEIGHT = 36
_PAD = 3.0
_HOLD = 0.06  # How much of the width the last record is drawn to hold.


@dataclass(frozen=True)
class Sparkline:
    """A path within WIDTH x HEIGHT, the point it ends in, and what it shows in words."""

    path: str
    end_x: float
    end_y: float
    words: str


def record_sparkline(records: Sequence[Mapping[str, Any]]) -> Sparkline | None:
    """The records of a division from first to last, times on a logarithmic scale.

    None where there is no history: fewer than two, or all of one day, as of an imported round.
    """
    if len({day(record["date"]) for record in records}) < 2:
        return None
    days = [moment(record["date"]).timestamp() / 86_400 for record in records]
    # An archive may have any time, and the page this is on is everybody's.
    levels = [math.log(max(record["tta_seconds"], SHORTEST_SECONDS)) for record in records]
    span, height = days[-1] - days[0], levels[0] - levels[-1] or 1.0
    points = [
        (
            round(_PAD + (WIDTH - 2 * _PAD) * (1 - _HOLD) * (one - days[0]) / span, 1),
            round(_PAD + (HEIGHT - 2 * _PAD) * (levels[0] - level) / height, 1),
        )
        for one, level in zip(days, levels, strict=True)
    ]
    end_x, end_y = WIDTH - _PAD, points[-1][1]
    steps = "".join(f"H{x:g}V{y:g}" for x, y in points[1:])
    path = f"M{points[0][0]:g} {points[0][1]:g}{steps}H{end_x:g}"
    return Sparkline(path, end_x, end_y, _words(records))


def _words(records: Sequence[Mapping[str, Any]]) -> str:
    first, last = records[0], records[-1]
    return (
        f"{count_text(len(records), 'record')}, "
        f"from {duration(first['tta_seconds'])} on {day(first['date'])} "
        f"down to {duration(last['tta_seconds'])} on {day(last['date'])}"
    )
