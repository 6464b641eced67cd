"""A board as a small picture: time against accelerators, both logarithmic, as SVG."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from finishline.rules.benchmarks.accelerators import Accelerator
from finishline.rules.ranking import ranked_seconds
from web.chart_parts import even_sample, log_ticks, time_ticks, vendor_paint
from web.formats import TimeFormat, number
from web.names import accelerator_of_system, byline

WIDTH, HEIGHT = 360, 176
LEFT, RIGHT, TOP, BOTTOM = 56, 12, 14, 24
FEWEST_POINTS, MOST_POINTS = 2, 60
MOST_TICKS = 5
DOUBLINGS = tuple(8**power for power in range(7))
_MARGIN = 0.06  # Of a scale, at each of its ends.
_LETTER, _LINE = 5.9, 12.0

View = Mapping[str, Any]


@dataclass(frozen=True)
class Mark:
    """An entry in the picture: its place, the class of its shape, its address and its words."""

    x: float
    y: float
    css: str
    address: str
    words: str


@dataclass(frozen=True)
class Name:
    """The name of a point on the front, where it hides neither a point nor another name."""

    x: float
    y: float
    anchor: str
    text: str


@dataclass(frozen=True)
class Tick:
    """A place on an axis and its words."""

    at: float
    text: str


@dataclass(frozen=True)
class BoardMap:
    """Everything that the template draws, in the coordinates of WIDTH x HEIGHT."""

    marks: tuple[Mark, ...]
    names: tuple[Name, ...]
    front: str
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    unit: str
    words: str


@dataclass(frozen=True)
class _Point:
    entry: View
    count: int
    seconds: float
    accelerator: Accelerator


def board_map(entries: Iterable[View], time: TimeFormat) -> BoardMap | None:
    """The numbered entries of a board with a time and a number of accelerators.

    The front are the entries that no other beats with as few accelerators. None below two points.
    """
    points = [point for entry in entries if (point := _point(entry)) is not None]
    if len(points) < FEWEST_POINTS:
        return None
    front = _front(points)
    rest = [point for point in points if point not in front]
    drawn = [*even_sample(rest, max(0, MOST_POINTS - len(front))), *front]
    across = _Scale.of([point.count for point in points], LEFT, WIDTH - RIGHT)
    up = _Scale.of([point.seconds / time.scale for point in points], HEIGHT - BOTTOM, TOP)
    places = {id(point): (across(point.count), up(point.seconds / time.scale)) for point in drawn}
    steps = [places[id(point)] for point in front]
    return BoardMap(
        marks=tuple(_mark(point, *places[id(point)], time) for point in drawn),
        names=tuple(_names(front, steps)),
        front="M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in steps),
        x_ticks=tuple(Tick(across(at), number(at)) for at in _counts(across)),
        y_ticks=tuple(
            Tick(up(at), time(at) if time.is_stopwatch else number(at))
            for at in up.thin(time_ticks(time, up.low, up.high))
        ),
        unit="h:mm:ss" if time.is_stopwatch else time.word,
        words=f"Time against accelerators of {len(points)} entries. No entry is faster with as "
        f"few accelerators as {', '.join(_name(point) for point in front)}.",
    )


@dataclass(frozen=True)
class _Scale:
    """A logarithmic scale from its lowest to its highest value, drawn between two places."""

    low: float
    high: float
    start: float
    end: float

    @classmethod
    def of(cls, values: Sequence[float], start: float, end: float) -> "_Scale":
        low, high = min(values), max(values)
        return cls(low, high, start, end) if high > low else cls(low / 2, high * 2, start, end)

    def __call__(self, value: float) -> float:
        part = math.log(value / self.low) / math.log(self.high / self.low)
        inside = _MARGIN + (1 - 2 * _MARGIN) * part
        return round(self.start + (self.end - self.start) * inside, 1)

    def thin(self, ticks: Iterable[float]) -> list[float]:
        """At most so many of the ticks that are within the range."""
        known = [at for at in ticks if self.low <= at <= self.high]
        return known[:: math.ceil(len(known) / MOST_TICKS) or 1]


def _point(entry: View) -> _Point | None:
    seconds = ranked_seconds(entry)
    accelerator = accelerator_of_system(entry["system"])
    if entry["rank"] is None or not seconds or not accelerator.count:
        return None
    return _Point(entry, accelerator.count, seconds, accelerator)


def _front(points: Sequence[_Point]) -> list[_Point]:
    """The points that none with as few accelerators beats, by their accelerators."""
    front: list[_Point] = []
    for point in sorted(points, key=lambda point: (point.count, point.seconds)):
        if not front or point.seconds < front[-1].seconds:
            front.append(point)
    return front


def _mark(point: _Point, x: float, y: float, time: TimeFormat) -> Mark:
    vendor = vendor_paint(point.accelerator.vendor or "other")
    words = f"{_name(point)}, {byline(point.entry)}: {time(point.seconds)}"
    address = f"/submissions/{point.entry['submission_id']}"
    return Mark(x, y, f"{vendor} is-{point.entry['evidence']}", address, words)


def _name(point: _Point) -> str:
    return point.accelerator.words


def _counts(scale: _Scale) -> list[float]:
    known = [float(at) for at in DOUBLINGS if scale.low <= at <= scale.high]
    return known if len(known) > 1 else scale.thin(log_ticks(scale.low, scale.high))


def _names(front: Sequence[_Point], places: Sequence[tuple[float, float]]) -> list[Name]:
    """A name above or below each point to its right or left, if there is room for it."""
    taken = [(x - 5, y - 5, x + 5, y + 5) for x, y in places]
    names = []
    for point, (x, y) in zip(front, places, strict=True):
        text = _name(point)
        width = _LETTER * len(text)
        for right, above in ((True, True), (False, False), (True, False), (False, True)):
            left = x + 6 if right else x - 6 - width
            top = y - 5 - _LINE if above else y + 3
            box = (left, top, left + width, top + _LINE)
            fits = left >= LEFT and box[2] <= WIDTH and top >= 0 and box[3] <= HEIGHT - BOTTOM
            if fits and not any(_overlap(box, other) for other in taken):
                taken.append(box)
                end = "start" if right else "end"
                names.append(Name(x + 6 if right else x - 6, round(top + 9.5, 1), end, text))
                break
    return names


def _overlap(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    return one[0] < other[2] and other[0] < one[2] and one[1] < other[3] and other[1] < one[3]
