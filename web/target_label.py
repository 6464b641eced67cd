"""Where the words of a target stand in a figure: at the end of its line that curves leave free."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

Point = tuple[float, float]
# The words in percent of a plot: their width on a phone, their height with the gap to the line.
WIDTH, HEIGHT = 27.0, 8.0
TICK_HEIGHT = 4.0
UNDER, OVER = 14, -5  # Pixels from the line to the baseline of the words.


@dataclass(frozen=True)
class LabelPlace:
    """An end of the target's line: "end" is the right one; `dy` is in pixels below the line."""

    anchor: str
    dy: int

    @property
    def x(self) -> str:
        return "100%" if self.anchor == "end" else "0"


def label_place(
    target_at: float, curves: Iterable[Sequence[Point]], ticks: Iterable[float]
) -> LabelPlace:
    """The place that the fewest pieces of curves cross; of equals the right end, under the line.

    Coordinates are percentages of the plot from the left and from the top; `ticks` are heights of
    the vertical axis, whose words stand over them at the left end.
    """
    pieces = [piece for curve in curves for piece in _pieces(curve)]
    pieces += [((0.0, at - TICK_HEIGHT), (0.0, at)) for at in ticks]
    places = [LabelPlace(anchor, dy) for anchor in ("end", "start") for dy in (UNDER, OVER)]
    fits = [place for place in places if 0 <= target_at + _side(place) * HEIGHT <= 100]
    return min(fits or places, key=lambda place: _crossed(place, target_at, pieces))


def _pieces(curve: Sequence[Point]) -> Iterable[tuple[Point, Point]]:
    return pairwise(curve) if len(curve) > 1 else [(one, one) for one in curve]


def _side(place: LabelPlace) -> int:
    return 1 if place.dy > 0 else -1


def _crossed(place: LabelPlace, target_at: float, pieces: Iterable[tuple[Point, Point]]) -> int:
    """Number of pieces of curves in the sandbox of the words."""
    left, right = (100 - WIDTH, 100.0) if place.anchor == "end" else (0.0, WIDTH)
    top, bottom = sorted((target_at, target_at + _side(place) * HEIGHT))
    count = 0
    for one, other in pieces:
        (x0, y0), (x1, y1) = sorted((one, other))
        if x1 < left or x0 > right:
            continue
        slope = (y1 - y0) / (x1 - x0) if x1 > x0 else 0.0
        ends = (
            y0 + slope * (max(x0, left) - x0),
            y1 if x1 <= right else y0 + slope * (right - x0),
        )
        count += min(ends) < bottom and max(ends) > top
    return count
