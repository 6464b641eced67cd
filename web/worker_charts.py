"""Figures of a worker: its roofline, and its canary as a line with words."""

from collections.abc import Mapping, Sequence
from typing import Any

from finishline.rules.scoring.utilisation import TOLERANCE
from finishline.rules.text import count_text
from web.chart_parts import Figure, axis, label, layout, plain
from web.formats import DASH, day, percent, significant

View = Mapping[str, Any]

DECADES = 10.0
FALLBACK = (0.1, 1000.0)
GIGA_IN_TERA = 1_000.0
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")


def roofline_figure(found: View) -> Figure:
    """TFLOP/s against FLOP per byte, both logarithmic.

    Each floating type has a roof: a slope where the memory's bandwidth binds, then flat. A point is
    the training of one attempt. Without a measured bandwidth a roof is flat all the way.
    """
    low, high = _span(found)
    roofs = [
        _roof(order, roof, found["copy_gb_per_second"], low, high)
        for order, roof in enumerate(found["roofs"])
    ]
    return {
        "data": [*roofs, *([_dots(found["points"])] if found["points"] else [])],
        "layout": layout(
            xaxis=axis("Intensity (FLOP per byte)", type="log"),
            yaxis=axis("Arithmetic (TFLOP/s)", type="log"),
            height=380,
        ),
    }


def _span(found: View) -> tuple[float, float]:
    """Range of the axis: from a decade below the leftmost mark to one above the rightmost."""
    bandwidth = found["copy_gb_per_second"]
    places = [point["intensity"] for point in found["points"]]
    if bandwidth:
        places += [GIGA_IN_TERA * roof["tflops"] / bandwidth for roof in found["roofs"]]
    if not places:
        return FALLBACK
    return min(places) / DECADES, max(places) * DECADES


def _roof(
    order: int, roof: View, bandwidth: float | None, low: float, high: float
) -> dict[str, Any]:
    top = roof["tflops"]
    x, y = [low, high], [top, top]
    if bandwidth:
        ridge = GIGA_IN_TERA * top / bandwidth
        x, y = [low, ridge, high], [low * bandwidth / GIGA_IN_TERA, top, top]
    name = plain(roof["precision"])
    return {
        "type": "scatter",
        "mode": "lines",
        "name": f"roof, {name}",
        "x": x,
        "y": y,
        "line": {"width": 2, "dash": DASHES[order % len(DASHES)]},
        "hovertemplate": f"%{{y:.3~g}} TFLOP/s<extra>roof, {name}</extra>",
        "meta": {"paint": "series", "series": order},
    }


def _dots(points: list[View]) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "markers",
        "name": "training of an attempt",
        "x": [point["intensity"] for point in points],
        "y": [point["achieved_tflops"] for point in points],
        "text": [_words(point) for point in points],
        "hovertemplate": "%{text}<br>%{y:.3~g} TFLOP/s at %{x:.3~g} FLOP per byte<extra></extra>",
        "marker": {"size": 10, "symbol": "diamond", "line": {"width": 1}},
        "meta": {"paint": "front"},
    }


def _words(point: View) -> str:
    about = label(point["model"] or f"{point['benchmark']} reference")
    return f"{about} ({plain(point['precision'] or 'type not known')})"


WIDTH, HEIGHT = 160.0, 36.0
MARGIN = 3.0
LEAST_SPAN = 2 * TOLERANCE  # Of the baseline to either side: noise does not fill the picture.


def canary_line(probes: Sequence[View]) -> dict[str, Any] | None:
    """The latest configuration's readings (`probes` has the newest first), ready to be drawn.

    `path` is that of the line, `last` the place of its end; `middle`, `top` and `bottom` are the
    heights of the baseline and of the limits to either side, None before there is a baseline.
    `summary` says the same. None without a reading.
    """
    told = [p for p in probes if p["gflops"] is not None and p["moment"] != "roof"]
    if not told:
        return None
    readings = [p for p in told if p["configuration"] == told[0]["configuration"]][::-1]
    values = [probe["gflops"] for probe in readings]
    baseline = readings[-1]["baseline_gflops"]
    centre = baseline or (min(values) + max(values)) / 2 or 1.0
    span = max(LEAST_SPAN * centre, *(1.1 * abs(value - centre) for value in values))

    def height(value: float) -> float:
        return float(round(HEIGHT / 2 - (value - centre) / span * (HEIGHT / 2 - MARGIN), 1))

    step = (WIDTH - 2 * MARGIN) / max(1, len(values) - 1)
    places = [(round(MARGIN + i * step, 1), height(value)) for i, value in enumerate(values)]
    if len(places) == 1:
        places = [(MARGIN, places[0][1]), (WIDTH - MARGIN, places[0][1])]
    return {
        "width": WIDTH,
        "height": HEIGHT,
        "path": "M" + "L".join(f"{x:g} {y:g}" for x, y in places),
        "last": places[-1],
        "middle": height(baseline) if baseline else None,
        "top": height(baseline * (1 + TOLERANCE)) if baseline else None,
        "bottom": height(baseline * (1 - TOLERANCE)) if baseline else None,
        "summary": _summary(readings, baseline),
    }


def speed_text(gflops: float | None) -> str:
    """The speed of arithmetic: GFLOP/s, from a thousand on TFLOP/s, four digits."""
    if gflops is None:
        return DASH
    unit, value = ("TFLOP/s", gflops / 1_000) if gflops >= 1_000 else ("GFLOP/s", gflops)
    return f"{significant(value, 4)}\u00a0{unit}"


def off_text(ratio: float | None) -> str:
    """Deviation of a reading from its baseline: "0.4 % below"."""
    if ratio is None:
        return "no baseline yet"
    off = 100 * (ratio - 1)
    if abs(off) < 0.05:
        return "at its baseline"
    return f"{percent(abs(off))} {'above' if off > 0 else 'below'}"


def _summary(readings: Sequence[View], baseline: float | None) -> str:
    count = len(readings)
    since = f"{count_text(count, 'reading')} since {day(readings[0]['measured_at'])}"
    latest = f"the latest {speed_text(readings[-1]['gflops'])}"
    if baseline is None:
        return f"{since}, {latest}; no baseline yet."
    ratios = [probe["ratio"] for probe in readings if probe["ratio"] is not None]
    furthest = max(ratios, key=lambda ratio: abs(ratio - 1))
    return (
        f"{since}, {latest}: {off_text(readings[-1]['ratio'])} (baseline "
        f"{speed_text(baseline)}); furthest off {off_text(furthest)}."
    )
