"""A figure as SVG in the page: lines, marks and bands on two axes, without a script.

Coordinates of paths lie in a sandbox of 1000 by 1000, those of marks and ticks are percentages: the
template stretches them to the width of the page without stretching a line or a letter. A figure
with views has a panel for each.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from web.chart_parts import Figure, even_sample, log_ticks
from web.formats import number
from web.target_label import LabelPlace, label_place

Trace = Mapping[str, Any]
Point = tuple[float, float]
BOX = 1000.0
MOST_POINTS = 200
MOST_MARKED = 60  # Marks on the points of more lines would hide them.
MOST_TICKS = 6
MARGIN = 0.05
# Ends of axes; beyond them their distance is no number.
SMALLEST, LARGEST = 1e-200, 1e200
DASHES = {
    "dash": "6 4",
    "dot": "2 3",
    "dashdot": "6 3 2 3",
    "longdash": "10 4",
    "longdashdot": "10 3 2 3",
}
_SYMBOLS = {
    "circle": "M-4.5 0A4.5 4.5 0 1 0 4.5 0A4.5 4.5 0 1 0-4.5 0Z",
    "square": "M-4-4H4V4H-4Z",
    "diamond": "M0-5.5L5.5 0L0 5.5L-5.5 0Z",
    "triangle-up": "M0-5.5L5.5 4.5H-5.5Z",
    "cross": "M-1.5-5H1.5V-1.5H5V1.5H1.5V5H-1.5V1.5H-5V-1.5H-1.5Z",
    "x": "M-4-4L4 4M-4 4L4-4",
    "star": "M0-5.5L1.5-1.5H5.5L2.5 1L3.5 5L0 2.5L-3.5 5L-2.5 1L-5.5-1.5H-1.5Z",
}


@dataclass(frozen=True)
class Mark:
    """A point: where, its words, and the page that it leads to."""

    x: float
    y: float
    words: str
    address: str | None = None


@dataclass(frozen=True)
class Drawn:
    """A trace: its line or band, its marks, and whether the legend names it."""

    name: str
    paint: str
    path: str
    width: float
    dash: str
    opacity: float
    symbol: str
    is_open: bool
    marks: tuple[Mark, ...]
    in_legend: bool

    @property
    def is_band(self) -> bool:
        return self.paint == "band"


@dataclass(frozen=True)
class Tick:
    """A mark of an axis, in percent of the plot from the left or from the top."""

    at: float
    text: str


@dataclass(frozen=True)
class Panel:
    """A view of a figure."""

    label: str
    traces: tuple[Drawn, ...]
    x_ticks: tuple[Tick, ...]
    y_ticks: tuple[Tick, ...]
    x_title: str
    y_title: str
    target: Tick | None
    target_label: LabelPlace | None

    @property
    def has_links(self) -> bool:
        """Whether a mark leads to a page."""
        return any(mark.address for trace in self.traces for mark in trace.marks)


@dataclass(frozen=True)
class Drawing:
    """A figure as panels, or a sentence on why there is nothing to draw."""

    panels: tuple[Panel, ...]
    height: int
    empty: str | None = None
    note: str | None = None


def draw(figure: Figure) -> Drawing:
    """Lay a figure out as SVG: scatter traces on linear or logarithmic axes."""
    layout = figure["layout"]
    meta = layout.get("meta") or {}
    if meta.get("empty"):
        return Drawing((), 0, empty=meta["empty"])
    views = meta.get("views") or [{"name": None, "label": "", "title": None}]
    panels = (_panel(figure, view) for view in views)
    return Drawing(tuple(panels), min(int(layout.get("height", 360)), 360), note=meta.get("note"))


@dataclass(frozen=True)
class _Scale:
    low: float
    high: float
    is_log: bool

    def share(self, value: float) -> float:
        """Place of a value between the ends, from 0 to 1."""
        if self.is_log:
            return math.log(max(value, SMALLEST) / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


def _panel(figure: Figure, view: Mapping[str, Any]) -> Panel:
    layout = figure["layout"]
    name = view["name"]
    shown = [t for t in figure["data"] if t.get("meta", {}).get("view") in (None, name)]
    lines = [shape["y0"] for shape in layout.get("shapes", ())]
    x = _scale(layout["xaxis"], (v for t in shown for v in t["x"]))
    y = _scale(layout["yaxis"], [*_heights(shown), *lines])
    fills = {id(upper): lower for lower, upper in pairwise(shown) if upper.get("fill")}
    lowers = {id(lower) for lower in fills.values()}
    is_crowded = sum(len(t["x"]) for t in shown) > MOST_MARKED
    traces = [_drawn(t, x, y, fills.get(id(t)), is_crowded) for t in shown if id(t) not in lowers]
    y_ticks = tuple(Tick(100 * (1 - y.share(at)), text) for at, text in _ticks(layout["yaxis"], y))
    target, place = None, None
    if lines:
        words = layout["shapes"][0].get("label", {}).get("text", "target")
        target = Tick(100 * (1 - y.share(lines[0])), html.unescape(words))
        places = ([p for p in _places(t, x, y) if p is not None] for t in shown)
        curves = ([(across / 10, down / 10) for across, down in curve] for curve in places)
        place = label_place(target.at, curves, (tick.at for tick in y_ticks))
    return Panel(
        label=view["label"],
        traces=tuple(traces),
        x_ticks=tuple(Tick(100 * x.share(at), text) for at, text in _ticks(layout["xaxis"], x)),
        y_ticks=y_ticks,
        x_title=html.unescape(view["title"] or layout["xaxis"]["title"]["text"]),
        y_title=html.unescape(layout["yaxis"]["title"]["text"]),
        target=target,
        target_label=place,
    )


def _heights(traces: Iterable[Trace]) -> Iterable[float | None]:
    for trace in traces:
        spread = trace.get("error_y", {}).get("array") or [0.0] * len(trace["y"])
        for value, off in zip(trace["y"], spread, strict=True):
            yield from (None,) if value is None else (value - off, value + off)


def _scale(axis: Mapping[str, Any], values: Iterable[float | None]) -> _Scale:
    known = [value for value in values if value is not None]
    is_log = axis.get("type") == "log"
    if "range" in axis and not is_log:
        low, high = axis["range"]
        return _Scale(low, high, is_log=False)
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    if is_log:
        low, high = (min(max(end, SMALLEST), LARGEST) for end in (low, high))
        room = (high / low) ** MARGIN if high > low else 2.0
        return _Scale(low / room, high * room, is_log=True)
    low, high = (min(max(end, -LARGEST), LARGEST) for end in (low, high))
    room = max(high - low or abs(high) or 1.0, SMALLEST) * MARGIN
    clip = axis.get("autorangeoptions", {})
    low, high = max(low - room, clip.get("clipmin", -math.inf)), high + room
    return _Scale(low, min(high, clip.get("clipmax", math.inf)), is_log=False)


def _ticks(axis: Mapping[str, Any], scale: _Scale) -> list[tuple[float, str]]:
    """Ticks within the ends of an axis: those that it names, else round numbers."""
    places = axis.get("tickvals") or (
        log_ticks(scale.low, scale.high) if scale.is_log else _round_numbers(axis, scale)
    )
    texts = axis.get("ticktext") or [number(place) for place in places]
    pairs = zip(places, texts, strict=True)
    return [(at, html.unescape(str(text))) for at, text in pairs if scale.low <= at <= scale.high]


def _round_numbers(axis: Mapping[str, Any], scale: _Scale) -> list[float]:
    span = (scale.high - scale.low) / MOST_TICKS
    power = 10.0 ** math.floor(math.log10(span))
    step = next((n * power for n in (1, 2, 5) if n * power >= span), 10 * power)
    step = max(step, axis.get("dtick", 0))
    first, last = math.ceil(scale.low / step), math.floor(scale.high / step)
    return [place * step for place in range(first, last + 1)]


def _drawn(trace: Trace, x: _Scale, y: _Scale, lower: Trace | None, is_crowded: bool) -> Drawn:
    meta, line, marker = trace.get("meta", {}), trace.get("line", {}), trace.get("marker", {})
    paint = meta.get("paint", "front")
    symbol, _, rest = str(marker.get("symbol", "circle")).partition("-open")
    symbol, _, _ = symbol.partition("-cross")
    mode = trace.get("mode", "lines")
    has_marks = mode == "markers" or ("markers" in mode and not is_crowded)
    path = _path(_places(trace, x, y)) if "lines" in mode else ""
    if lower is not None:
        path = _path([*_places(trace, x, y), *reversed(_places(lower, x, y))])
    return Drawn(
        name=html.unescape(trace.get("name", "")),
        paint=f"series-{meta.get('series', 0) % 8}" if paint == "series" else paint,
        path=path + _error_bars(trace, x, y),
        width=line.get("width", 2),
        dash=DASHES.get(line.get("dash", ""), ""),
        opacity=trace.get("opacity", 1.0),
        symbol=_SYMBOLS.get(symbol, _SYMBOLS["circle"]),
        is_open="open" in str(marker.get("symbol", "")) or bool(rest),
        marks=tuple(_marks(trace, x, y)) if has_marks else (),
        in_legend=trace.get("showlegend", True) is not False,
    )


def _places(trace: Trace, x: _Scale, y: _Scale) -> list[Point | None]:
    pairs = even_sample(list(zip(trace["x"], trace["y"], strict=True)), MOST_POINTS)
    return [
        None if at is None or value is None else (BOX * x.share(at), BOX * (1 - y.share(value)))
        for at, value in pairs
    ]


def _path(places: Sequence[Point | None]) -> str:
    """A path through places, broken where there is none."""
    steps, is_new = [], True
    for place in places:
        if place is not None:
            steps.append(f"{'M' if is_new else 'L'}{place[0]:.1f} {place[1]:.1f}")
        is_new = place is None
    return "".join(steps)


def _error_bars(trace: Trace, x: _Scale, y: _Scale) -> str:
    spread = trace.get("error_y", {}).get("array") or ()
    bars = zip(trace["x"], trace["y"], spread, strict=False)
    return "".join(
        f"M{BOX * x.share(at):.1f} {BOX * (1 - y.share(value - off)):.1f}"
        f"V{BOX * (1 - y.share(value + off)):.1f}"
        for at, value, off in bars
    )


def _marks(trace: Trace, x: _Scale, y: _Scale) -> Iterable[Mark]:
    texts, addresses = trace.get("text"), trace.get("customdata")
    for place, (at, value) in enumerate(zip(trace["x"], trace["y"], strict=True)):
        if at is None or value is None:
            continue
        words = texts[place] if texts else f"{trace.get('name', '')}: {number(value, 5)}"
        yield Mark(
            100 * x.share(at),
            100 * (1 - y.share(value)),
            html.unescape(words.replace("<br>", ", ")),
            addresses[place] if addresses else None,
        )
